#include "train/base.h"
#include "base/arena.h"
#include "base/try.h"
#include "model/convert_folder.h"
#include "nn/graph.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { NAME = 192, LOOKED_AT = 4096 };

static const char *const learns[] = {"all", "chosen", "lora", "forms"};

const char *heed_learn_name(int i)
{
    return i >= 0 && i < (int)(sizeof learns / sizeof *learns) ? learns[i] : NULL;
}

static bool is_gguf(const heed_base *base)
{
    return heed_model_file_format(base->file) == HEED_FORMAT_GGUF;
}

/* The prefix of names in a folder: the first with which a tensor of the first layer is there. */
static heed_status find_prefix(heed_base *base)
{
    char name[NAME];
    base->prefix = base->architecture->prefixes[0];
    if (is_gguf(base))
        return HEED_OK;
    for (const char *const *prefix = base->architecture->prefixes; *prefix; prefix++)
        for (const heed_tensor_name *entry = base->architecture->tensors; entry->gguf; entry++) {
            heed_convert_name(*prefix, entry->json, 0, ".weight", NAME, name);
            if (entry->role >= HEED_FIRST_OF_LAYER && heed_model_file_find(base->file, name)) {
                base->prefix = *prefix;
                return HEED_OK;
            }
        }
    return heed_fail(HEED_FORMAT, "%s: none of its tensors has a name that models of %s have",
                     heed_model_file_path(base->file), base->architecture->name);
}

static bool is_norm(heed_role role)
{
    switch (role) {
    case HEED_EMBEDDING_NORM:
    case HEED_LAST_NORM:
    case HEED_ATTENTION_NORM:
    case HEED_QUERY_NORM:
    case HEED_KEY_NORM:
    case HEED_ATTENTION_POST_NORM:
    case HEED_ATTENTION_SUM_NORM:
    case HEED_FEED_NORM:
    case HEED_FEED_POST_NORM:
    case HEED_FEED_SUM_NORM:
        return true;
    default:
        return false;
    }
}

/* The sizes that a tensor must have, as its parameter lies; rank 0: any. */
static int expected(const heed_config *c, heed_role role, bool bias, int64_t shape[2])
{
    const int64_t q = c->heads * c->head_dim, kv = c->kv_heads * c->head_dim, f = c->feed_forward;
    const struct {
        heed_role role;
        int64_t rows, cols;
    } sizes[] = {{HEED_POSITIONS, c->positions, c->width},
                 {HEED_QUERY, q, c->width},
                 {HEED_KEY, kv, c->width},
                 {HEED_VALUE, kv, c->width},
                 {HEED_QUERY_KEY_VALUE, q + 2 * kv, c->width},
                 {HEED_QUERY_NORM, c->head_dim, 0},
                 {HEED_KEY_NORM, c->head_dim, 0},
                 {HEED_ATTENTION_OUTPUT, c->width, q},
                 {HEED_GATE, f, c->width},
                 {HEED_UP, f, c->width},
                 {HEED_GATE_UP, 2 * f, c->width},
                 {HEED_DOWN, c->width, f}};
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++)
        if (sizes[i].role == role) {
            shape[0] = sizes[i].rows;
            shape[1] = sizes[i].cols;
            return bias || !sizes[i].cols ? 1 : 2;
        }
    shape[0] = is_norm(role) ? c->width : 0;
    shape[1] = c->width;
    return is_norm(role) ? 1 : 0;
}

static heed_status check_shape(const heed_base *base, const heed_base_tensor *tensor)
{
    const heed_tensor *t = &tensor->from->tensor;
    int64_t shape[2];
    const int rank = expected(&base->config, tensor->role, tensor->bias, shape);
    if (t->type == HEED_TYPES || !t->data)
        return heed_fail(HEED_UNSUPPORTED, "the tensor %.150s is %s, a type that heed cannot read",
                         tensor->from->name, tensor->from->dtype);
    bool fits = rank == 0 ? t->rank == 2 && t->shape[1] == shape[1] : t->rank == rank;
    for (int d = 0; fits && d < rank; d++)
        fits = t->shape[d] == shape[tensor->turned ? rank - 1 - d : d];
    if (!fits)
        return heed_fail(HEED_FORMAT, "the tensor %.150s does not have the shape that config says",
                         tensor->from->name);
    if (tensor->heads > 0 && base->config.rope.dim != base->config.head_dim)
        return heed_fail(
            HEED_UNSUPPORTED, "the tensor %.150s: only %lld of %lld numbers of a head turn, and side by side",
            tensor->from->name, (long long)base->config.rope.dim, (long long)base->config.head_dim);
    return HEED_OK;
}

static heed_status add_tensor(heed_base *base, const heed_tensor_name *entry, int64_t layer, bool bias,
                              bool *used)
{
    char name[NAME], in_file[NAME];
    const char *suffix = bias ? ".bias" : ".weight",
               *prefix = entry->flags & HEED_OUTSIDE ? "" : base->prefix;
    const heed_config *c = &base->config;
    heed_convert_name(prefix, entry->json, layer, suffix, NAME, name);
    heed_convert_name("", entry->gguf, layer, suffix, NAME, in_file);
    const heed_model_tensor *from = heed_model_file_find(base->file, is_gguf(base) ? in_file : name);
    const bool needed = bias ? (entry->flags & HEED_BIAS) != 0 : !(entry->flags & HEED_OPTIONAL);
    if (!from)
        return needed ? heed_fail(HEED_FORMAT, "the tensor %s is missing", is_gguf(base) ? in_file : name)
                      : HEED_OK;
    if (strlen(name) + 16 >= HEED_BASE_NAME)
        return heed_fail(HEED_UNSUPPORTED, "%.150s: the name is too long", name);
    for (int i = 0; i < heed_model_file_tensors(base->file); i++)
        if (heed_model_file_tensor(base->file, i) == from)
            used[i] = true;
    heed_base_tensor *tensor = &base->tensor[base->tensors++];
    *tensor = (heed_base_tensor){.from = from, .role = entry->role, .layer = layer, .bias = bias};
    memcpy(tensor->name, name, strlen(name) + 1);
    if (c->rope.adjacent && (entry->role == HEED_QUERY || entry->role == HEED_KEY))
        tensor->heads = (int)(entry->role == HEED_QUERY ? c->heads : c->kv_heads);
    if (!bias && is_norm(entry->role))
        tensor->shift = c->norm_shift;
    tensor->turned = !bias && c->transposed && entry->role >= HEED_FIRST_OF_LAYER && !is_norm(entry->role);
    return check_shape(base, tensor);
}

static bool fits_unused(const char *pattern, const char *name)
{
    const size_t length = strlen(pattern), size = strlen(name);
    if (*pattern == '*')
        return size + 1 >= length && !strcmp(name + size - (length - 1), pattern + 1);
    if (length && pattern[length - 1] == '*')
        return !strncmp(pattern, name, length - 1);
    return !strcmp(pattern, name);
}

static heed_status check_all_used(const heed_base *base, const bool *used)
{
    for (int i = 0; i < heed_model_file_tensors(base->file); i++) {
        const char *name = heed_model_file_tensor(base->file, i)->name;
        bool known = used[i];
        for (const char *const *unused = base->architecture->unused; unused && *unused; unused++)
            known |= fits_unused(*unused, name);
        if (!known)
            return heed_fail(HEED_UNSUPPORTED,
                             "the tensor %.150s is not understood by training: models of %s, as it knows "
                             "them, have none such",
                             name, base->architecture->name);
    }
    return HEED_OK;
}

/* One matrix for both ends where there is only one, or where the file says so: as when the model runs. */
static heed_status share_ends(heed_base *base)
{
    const heed_base_tensor *found_in = heed_base_find(base, HEED_EMBEDDING, 0, false);
    heed_base_tensor *in = base->tensor + (found_in ? found_in - base->tensor : 0), *out = NULL;
    for (int i = 0; i < base->tensors; i++)
        if (base->tensor[i].role == HEED_OUTPUT)
            out = &base->tensor[i];
    heed_config *c = &base->config;
    if (!found_in && !out)
        return heed_fail(HEED_FORMAT, "%s has no embedding", heed_model_file_path(base->file));
    if (!found_in)
        out->role = HEED_EMBEDDING;
    const bool differ =
        found_in && out &&
        (in->from->tensor.type != out->from->tensor.type || in->from->bytes != out->from->bytes ||
         memcmp(in->from->tensor.data, out->from->tensor.data, in->from->bytes) != 0);
    base->shared = !found_in || !out || !differ || (c->tied && c->tied_given);
    if (found_in && out && base->shared)
        memcpy(out->name, in->name, sizeof out->name);
    if (found_in && out && out->from->tensor.shape[0] != in->from->tensor.shape[0])
        return heed_fail(HEED_FORMAT, "%s: embedding and output matrix have %lld and %lld rows",
                         heed_model_file_path(base->file), (long long)in->from->tensor.shape[0],
                         (long long)out->from->tensor.shape[0]);
    c->vocabulary = (found_in ? in : out)->from->tensor.shape[0];
    return HEED_OK;
}

static uint64_t sum_bytes(uint64_t sum, const void *data, size_t bytes)
{
    for (size_t i = 0; i < bytes; i++)
        sum = (sum ^ ((const unsigned char *)data)[i]) * 0x100000001b3u;
    return sum;
}

static void take_fingerprint(heed_base *base)
{
    uint64_t sum = 0xcbf29ce484222325u;
    for (int i = 0; i < base->tensors; i++) {
        const heed_model_tensor *from = base->tensor[i].from;
        const size_t ends = from->bytes < LOOKED_AT ? from->bytes : LOOKED_AT;
        sum = sum_bytes(sum, from->name, strlen(from->name));
        sum = sum_bytes(sum, from->dtype, strlen(from->dtype));
        sum = sum_bytes(sum, from->shape, (size_t)from->rank * sizeof *from->shape);
        sum = sum_bytes(sum, from->tensor.data, ends);
        sum = sum_bytes(sum, (const char *)from->tensor.data + from->bytes - ends, ends);
    }
    base->fingerprint = sum;
}

static heed_status read_tensors(heed_base *base)
{
    const int most = heed_model_file_tensors(base->file);
    bool *used = calloc((size_t)most + 1, sizeof *used);
    base->tensor = calloc((size_t)most + 1, sizeof *base->tensor);
    heed_status status = used && base->tensor
                             ? HEED_OK
                             : heed_fail(HEED_NO_MEMORY, "no memory for a list of %d tensors", most);
    for (const heed_tensor_name *entry = base->architecture->tensors; entry->gguf && !status; entry++) {
        const int64_t layers = entry->role >= HEED_FIRST_OF_LAYER ? base->config.layers : 1;
        for (int64_t l = 0; l < layers && !status; l++) {
            status = add_tensor(base, entry, l, false, used);
            if (!status)
                status = add_tensor(base, entry, l, true, used);
        }
    }
    if (!status)
        status = check_all_used(base, used);
    free(used);
    return status;
}

static heed_status open_base(heed_base *base, const char *path)
{
    TRY(heed_model_file_open(&base->file, path));
    TRY(heed_convert_read_config(base->file, &base->architecture, &base->config));
    TRY(find_prefix(base));
    TRY(read_tensors(base));
    TRY(share_ends(base));
    take_fingerprint(base);
    base->config.rope.adjacent = base->config.window_rope.adjacent = false;
    return HEED_OK;
}

heed_status heed_base_open(heed_base **base, const char *path)
{
    *base = NULL;
    heed_base *made = calloc(1, sizeof *made);
    if (!made)
        return heed_fail(HEED_NO_MEMORY, "no memory for a model");
    const heed_status status = open_base(made, path);
    if (status)
        heed_base_close(made);
    else
        *base = made;
    return status;
}

void heed_base_close(heed_base *base)
{
    if (!base)
        return;
    if (base->file)
        heed_model_file_close(base->file);
    free(base->tensor);
    free(base);
}

const heed_base_tensor *heed_base_find(const heed_base *base, heed_role role, int64_t layer, bool bias)
{
    for (int i = 0; i < base->tensors; i++) {
        const heed_base_tensor *tensor = &base->tensor[i];
        if (tensor->role == role && tensor->layer == layer && tensor->bias == bias)
            return tensor;
    }
    return NULL;
}

/* A pattern with * for anything, against all of a text. */
static bool matches(const char *pattern, size_t length, const char *text)
{
    if (length == 0)
        return !*text;
    if (*pattern != '*')
        return *text == *pattern && matches(pattern + 1, length - 1, text + 1);
    for (;; text++) {
        if (matches(pattern + 1, length - 1, text))
            return true;
        if (!*text)
            return false;
    }
}

static bool fits_one(const char *pattern, size_t length, const char *name)
{
    char stem[HEED_BASE_NAME];
    snprintf(stem, sizeof stem, "%s", name);
    char *last = strrchr(stem, '.');
    if (last && (!strcmp(last, ".weight") || !strcmp(last, ".bias")))
        *last = 0;
    if (matches(pattern, length, name) || matches(pattern, length, stem))
        return true;
    for (const char *part = strchr(name, '.'); part; part = strchr(part + 1, '.'))
        if (matches(pattern, length, part + 1))
            return true;
    for (const char *part = strchr(stem, '.'); part; part = strchr(part + 1, '.'))
        if (matches(pattern, length, part + 1))
            return true;
    return false;
}

bool heed_base_fits(const char *patterns, const char *name)
{
    while (*patterns) {
        const size_t length = strcspn(patterns, " ,");
        if (length && fits_one(patterns, length, name))
            return true;
        patterns += length + (patterns[length] != 0);
    }
    return false;
}

bool heed_base_has_lora(const heed_base_learn *learn, const char *name)
{
    return learn->learn == HEED_LEARN_LORA &&
           (!learn->targets[strspn(learn->targets, " ,")] || heed_base_fits(learn->targets, name));
}

/* What LoRA can stand beside. */
static bool is_linear(const heed_base_tensor *tensor)
{
    return !tensor->bias && tensor->role >= HEED_FIRST_OF_LAYER && !is_norm(tensor->role);
}

heed_status heed_base_check(const heed_base *base, const heed_base_learn *learn)
{
    const bool lora = learn->learn == HEED_LEARN_LORA;
    const char *patterns = lora ? learn->targets : learn->tensors, *key = lora ? "lora_targets" : "tensors";
    if (!lora && learn->learn != HEED_LEARN_CHOSEN)
        return HEED_OK;
    if (!patterns[strspn(patterns, " ,")])
        return lora ? HEED_OK
                    : heed_fail(HEED_INVALID, "%s is missing: names of tensors, with * for anything", key);
    while (*patterns) {
        const size_t length = strcspn(patterns, " ,");
        bool fits = length == 0;
        for (int i = 0; i < base->tensors && !fits; i++)
            fits = (!lora || is_linear(&base->tensor[i])) && fits_one(patterns, length, base->tensor[i].name);
        if (!fits) {
            const heed_base_tensor *down = heed_base_find(base, HEED_DOWN, 0, false);
            return heed_fail(HEED_INVALID, "%s: %.*s fits no %s of the model; one is %s", key,
                             (int)(length < 80 ? length : 80), patterns, lora ? "linear map" : "tensor",
                             down ? down->name : base->tensor[0].name);
        }
        patterns += length + (patterns[length] != 0);
    }
    return HEED_OK;
}

/* Row r of a parameter stands in this row of the file. */
static int64_t row_in_file(const heed_base_tensor *tensor, int64_t rows, int64_t r)
{
    if (tensor->heads <= 0)
        return r;
    const int64_t dim = rows / tensor->heads, place = r % dim;
    return r - place + (place % (dim / 2)) * 2 + place / (dim / 2);
}

static void decode(const heed_base_tensor *tensor, float *to)
{
    const heed_tensor *from = &tensor->from->tensor;
    const int64_t rows = from->rank == 2 ? from->shape[0] : tensor->heads > 0 ? from->shape[0] : 1;
    const int64_t cols = from->rank == 2 ? from->shape[1] : from->shape[0] / rows;
    const int64_t bytes = heed_type_bytes(from->type, cols);
    if (tensor->turned) {
        for (int64_t r = 0; r < rows; r++)
            for (int64_t c = 0; c < cols; c++)
                heed_load(from->type,
                          (const char *)from->data + (r * cols + c) * heed_type_bytes(from->type, 1),
                          to + c * rows + r, 1);
        return;
    }
    for (int64_t r = 0; r < rows; r++)
        heed_load(from->type, (const char *)from->data + row_in_file(tensor, rows, r) * bytes, to + r * cols,
                  cols);
    for (int64_t i = 0; tensor->shift != 0.0f && i < rows * cols; i++)
        to[i] += tensor->shift;
}

static heed_status load_tensor(const heed_base *base, const heed_base_tensor *tensor,
                               heed_parameters *parameters, const char *prefix, const heed_base_learn *learn)
{
    char name[NAME];
    const heed_tensor *from = &tensor->from->tensor;
    int64_t shape[2] = {from->shape[0], from->rank == 2 ? from->shape[1] : 0};
    if (tensor->turned) {
        shape[0] = from->shape[1];
        shape[1] = from->shape[0];
    }
    snprintf(name, sizeof name, "%s%s", prefix, tensor->name);
    if (heed_parameters_find(parameters, name))
        return HEED_OK;
    const heed_initial initial = {.kind = HEED_INITIAL_CONSTANT};
    heed_parameter *made = heed_parameters_make(parameters, name, from->rank, shape, &initial);
    if (!made)
        return HEED_NO_MEMORY;
    decode(tensor, made->value);
    heed_model_file_release(base->file, tensor->from);
    made->plain = from->rank == 1;
    made->frozen =
        !learn || !(learn->learn == HEED_LEARN_ALL ||
                    (learn->learn == HEED_LEARN_CHOSEN && heed_base_fits(learn->tensors, tensor->name)));
    return HEED_OK;
}

heed_status heed_base_load(const heed_base *base, heed_parameters *parameters, const char *prefix,
                           const heed_base_learn *learn)
{
    for (int i = 0; i < base->tensors; i++)
        TRY(load_tensor(base, &base->tensor[i], parameters, prefix, learn));
    return HEED_OK;
}
