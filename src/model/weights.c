/* From the tensors of a file to packed weights. */
#include "model/weights.h"
#include "base/arena.h"
#include "base/try.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { NAME_SIZE = 192 };

typedef struct loader {
    heed_model *model;
    const heed_architecture *architecture;
    const char *prefix; /* of names in safetensors */
    bool *read;         /* [tensors of the file] */
} loader;

/* The tensor of a role, NULL where the file has none; `suffix` is ".weight" or ".bias". */
static const heed_model_tensor *look_up(loader *l, const heed_tensor_name *name, int64_t layer,
                                        const char *suffix, char text[NAME_SIZE])
{
    const heed_model_file *file = l->model->file;
    const bool gguf = heed_model_file_format(file) == HEED_FORMAT_GGUF;
    const char *pattern = gguf ? name->gguf : name->json, *place = strstr(pattern, "%d");
    const char *prefix = gguf || name->flags & HEED_OUTSIDE ? "" : l->prefix;
    if (place)
        snprintf(text, NAME_SIZE, "%s%.*s%lld%s%s", prefix, (int)(place - pattern), pattern, (long long)layer,
                 place + 2, suffix);
    else
        snprintf(text, NAME_SIZE, "%s%s%s", prefix, pattern, suffix);
    const heed_model_tensor *tensor = heed_model_file_find(file, text);
    for (int i = 0; tensor && i < heed_model_file_tensors(file); i++)
        if (heed_model_file_tensor(file, i) == tensor)
            l->read[i] = true;
    return tensor;
}

static const heed_tensor_name *name_of(const loader *l, heed_role role)
{
    const heed_tensor_name *name = l->architecture->tensors;
    while (name->gguf && name->role != role)
        name++;
    return name->gguf ? name : NULL;
}

static heed_status check_shape(const heed_model_tensor *tensor, int64_t rows, int64_t cols)
{
    const heed_tensor *t = &tensor->tensor;
    if (t->type == HEED_TYPES || !t->data)
        return heed_fail(HEED_UNSUPPORTED, "the tensor %.150s is %s, a type that heed cannot read",
                         tensor->name, tensor->dtype);
    const int rank = cols ? 2 : 1;
    if (t->rank == rank && t->shape[0] == rows && (!cols || t->shape[1] == cols))
        return HEED_OK;
    char found[100] = "";
    for (int d = 0; d < t->rank && d < HEED_MAX_RANK; d++) {
        const size_t used = strlen(found);
        snprintf(found + used, sizeof found - used, "%s%lld", d ? ", " : "", (long long)t->shape[d]);
    }
    if (cols)
        return heed_fail(HEED_FORMAT, "the tensor %.150s is [%s], it must be [%lld, %lld]", tensor->name,
                         found, (long long)rows, (long long)cols);
    return heed_fail(HEED_FORMAT, "the tensor %.150s is [%s], it must be [%lld]", tensor->name, found,
                     (long long)rows);
}

static heed_status missing(const char *name)
{
    return heed_fail(HEED_FORMAT, "the tensor %s is missing", name);
}

static void count(loader *l, int64_t values)
{
    l->model->parameters += (double)values;
}

/* [n] floats, each with `shift` added. */
static heed_status read_vector(loader *l, const heed_model_tensor *tensor, int64_t n, float shift, float *to)
{
    TRY(check_shape(tensor, n, 0));
    heed_load(tensor->tensor.type, tensor->tensor.data, to, n);
    for (int64_t i = 0; i < n; i++)
        to[i] += shift;
    count(l, n);
    return HEED_OK;
}

static heed_status new_vector(loader *l, const heed_model_tensor *tensor, int64_t n, float shift, float **to)
{
    *to = heed_allocate((size_t)n, sizeof(float));
    if (!*to)
        return heed_fail(HEED_NO_MEMORY, "no memory for the tensor %.150s", tensor->name);
    return read_vector(l, tensor, n, shift, *to);
}

static heed_status load_norm(loader *l, heed_role role, int64_t layer, int64_t n, heed_norm_weights *norm)
{
    char text[NAME_SIZE];
    const heed_tensor_name *name = name_of(l, role);
    if (!name)
        return HEED_OK;
    const heed_model_tensor *weight = look_up(l, name, layer, ".weight", text);
    if (!weight)
        return missing(text);
    TRY(new_vector(l, weight, n, l->model->config.norm_shift, &norm->weight));
    if (!(name->flags & HEED_BIAS))
        return HEED_OK;
    const heed_model_tensor *bias = look_up(l, name, layer, ".bias", text);
    return bias ? new_vector(l, bias, n, 0.0f, &norm->bias) : missing(text);
}

/* A dense f32 [rows, cols] copy of a tensor [cols, rows]. */
static heed_status transposed(const heed_model_tensor *from, int64_t rows, int64_t cols, heed_tensor *to)
{
    float *line = heed_allocate((size_t)rows, sizeof(float));
    size_t bytes;
    TRY(heed_tensor_bytes(HEED_F32, 2, (int64_t[]){rows, cols}, &bytes));
    float *data = heed_allocate(bytes, 1);
    if (!line || !data) {
        free(line);
        free(data);
        return heed_fail(HEED_NO_MEMORY, "no memory for the tensor %.150s", from->name);
    }
    for (int64_t c = 0; c < cols; c++) {
        heed_load(from->tensor.type, (const char *)from->tensor.data + c * from->tensor.stride[0], line,
                  rows);
        for (int64_t r = 0; r < rows; r++)
            data[r * cols + c] = line[r];
    }
    free(line);
    *to = heed_tensor_dense(data, HEED_F32, 2, (int64_t[]){rows, cols});
    return HEED_OK;
}

/* One part of a linear map: a role and its rows. */
typedef struct part {
    heed_role role;
    int64_t rows;
} part;

typedef struct found {
    const heed_model_tensor *tensor[HEED_LINEAR_PARTS];
    heed_tensor view[HEED_LINEAR_PARTS];
    float *bias;
    bool copied; /* the views are copies of our own */
    int parts;
} found;

static heed_status find_part(loader *l, const part *p, int64_t layer, int64_t cols, int64_t first,
                             int64_t all_rows, found *f)
{
    char text[NAME_SIZE];
    const heed_tensor_name *name = name_of(l, p->role);
    const heed_model_tensor *weight = look_up(l, name, layer, ".weight", text);
    if (!weight)
        return missing(text);
    f->tensor[f->parts] = weight;
    if (l->model->config.transposed) {
        TRY(check_shape(weight, cols, p->rows));
        TRY(transposed(weight, p->rows, cols, &f->view[f->parts]));
        f->copied = true;
    } else {
        TRY(check_shape(weight, p->rows, cols));
        f->view[f->parts] = weight->tensor;
    }
    f->parts++;
    count(l, p->rows * cols);
    if (!(name->flags & (HEED_BIAS | HEED_MAY_BIAS)))
        return HEED_OK;
    const bool asked = l->model->config.needs_biases && p->role != HEED_ATTENTION_OUTPUT;
    const heed_model_tensor *bias = look_up(l, name, layer, ".bias", text);
    if (!bias)
        return name->flags & HEED_BIAS || asked ? missing(text) : HEED_OK;
    if (!f->bias)
        f->bias = heed_allocate((size_t)all_rows, sizeof(float));
    if (!f->bias)
        return heed_fail(HEED_NO_MEMORY, "no memory for the tensor %.150s", bias->name);
    return read_vector(l, bias, p->rows, 0.0f, f->bias + first);
}

/* Packs the parts that the architecture names into one map and gives the pages of the file back. */
static heed_status load_linear(loader *l, const part *parts, int count_parts, int64_t layer, int64_t cols,
                               heed_linear *linear)
{
    found f = {.bias = NULL};
    const heed_tensor *weight[HEED_LINEAR_PARTS];
    int64_t all = 0, first = 0;
    heed_status status = HEED_OK;
    for (int i = 0; i < count_parts; i++)
        all += parts[i].rows;
    for (int i = 0; i < count_parts && !status; i++) {
        status = find_part(l, &parts[i], layer, cols, first, all, &f);
        first += parts[i].rows;
    }
    for (int i = 0; i < f.parts; i++)
        weight[i] = &f.view[i];
    if (!status)
        status = heed_linear_pack(linear, weight, f.parts, f.bias, true, &l->model->packing);
    else
        free(f.bias);
    for (int i = 0; i < f.parts; i++) {
        if (f.copied)
            free(f.view[i].data);
        if (!status)
            heed_model_file_release(l->model->file, f.tensor[i]);
    }
    return status;
}

static void take_carried(void *context, const char *name, int64_t values)
{
    loader *l = context;
    for (int i = 0; i < heed_model_file_tensors(l->model->file); i++)
        l->read[i] |= !strcmp(heed_model_file_tensor(l->model->file, i)->name, name);
    count(l, values);
}

static heed_status load_attention(loader *l, int64_t n, heed_layer *layer)
{
    const heed_config *c = &l->model->config;
    const int64_t q = c->heads * c->head_dim, kv = c->kv_heads * c->head_dim;
    const part fused = {HEED_QUERY_KEY_VALUE, q + 2 * kv}, out = {HEED_ATTENTION_OUTPUT, c->width};
    const part split[] = {{HEED_QUERY, q}, {HEED_KEY, kv}, {HEED_VALUE, kv}};
    const bool one = name_of(l, HEED_QUERY_KEY_VALUE) != NULL;
    TRY(load_norm(l, HEED_ATTENTION_NORM, n, c->width, &layer->attention_norm));
    heed_carries carries;
    TRY(heed_carries_of_layer(c, n, &carries));
    l->model->carries[n] = (uint8_t)carries;
    if (carries != HEED_CARRIES_NOTHING)
        return heed_carried_load(l->model, n, take_carried, l);
    TRY(load_norm(l, HEED_QUERY_NORM, n, c->head_dim, &layer->query_norm));
    TRY(load_norm(l, HEED_KEY_NORM, n, c->head_dim, &layer->key_norm));
    TRY(load_norm(l, HEED_ATTENTION_POST_NORM, n, c->width, &layer->attention_post_norm));
    TRY(load_norm(l, HEED_ATTENTION_SUM_NORM, n, c->width, &layer->attention_sum_norm));
    TRY(load_linear(l, one ? &fused : split, one ? 1 : 3, n, c->width, &layer->query_key_value));
    return load_linear(l, &out, 1, n, q, &layer->attention_output);
}

static heed_status load_feed(loader *l, int64_t n, heed_layer *layer)
{
    const heed_config *c = &l->model->config;
    const part fused = {HEED_GATE_UP, 2 * c->feed_forward}, down = {HEED_DOWN, c->width};
    const part split[] = {{HEED_GATE, c->feed_forward}, {HEED_UP, c->feed_forward}};
    const bool one = name_of(l, HEED_GATE_UP) != NULL;
    TRY(load_norm(l, HEED_FEED_NORM, n, c->width, &layer->feed_norm));
    TRY(load_norm(l, HEED_FEED_POST_NORM, n, c->width, &layer->feed_post_norm));
    TRY(load_norm(l, HEED_FEED_SUM_NORM, n, c->width, &layer->feed_sum_norm));
    if (one)
        TRY(load_linear(l, &fused, 1, n, c->width, &layer->up));
    else
        TRY(load_linear(l, c->gated ? split : split + 1, c->gated ? 2 : 1, n, c->width, &layer->up));
    return load_linear(l, &down, 1, n, c->feed_forward, &layer->down);
}

static bool same_numbers(const heed_model_tensor *a, const heed_model_tensor *b)
{
    return a->tensor.type == b->tensor.type && a->bytes == b->bytes &&
           !memcmp(a->tensor.data, b->tensor.data, a->bytes);
}

/* The embedding and the output matrix: two tensors, or one that serves as both. */
static heed_status load_ends(loader *l)
{
    heed_model *model = l->model;
    heed_config *c = &model->config;
    char text[NAME_SIZE];
    const heed_tensor_name *names[] = {name_of(l, HEED_EMBEDDING), name_of(l, HEED_OUTPUT)};
    const heed_model_tensor *in = look_up(l, names[0], 0, ".weight", text), *out = NULL;
    char missing_name[NAME_SIZE];
    memcpy(missing_name, text, sizeof text);
    if (names[1])
        out = look_up(l, names[1], 0, ".weight", text);
    if (!in && !out)
        return missing(missing_name);
    if (!in)
        heed_model_add_note(model, "the embedding %s is missing; the output matrix %s serves as both",
                            missing_name, text);
    else if (!out && c->generates && c->tied_given && !c->tied)
        heed_model_add_note(
            model,
            "config.json says that embedding and output matrix differ, but there is no %s; the "
            "embedding serves as both",
            text);
    const bool differ = in && out && !same_numbers(in, out);
    if (differ && c->tied && c->tied_given)
        heed_model_add_note(
            model,
            "config.json says that the embedding is the output matrix, but %s differs from it; the "
            "embedding serves as both",
            text);
    model->shared = c->generates && (!in || !out || !differ || (c->tied && c->tied_given));
    const heed_model_tensor *embedding = in ? in : out;
    c->vocabulary = embedding->tensor.rank == 2 ? embedding->tensor.shape[0] : 0;
    if (c->vocabulary < 1 || c->vocabulary > INT32_MAX)
        return heed_fail(HEED_FORMAT, "the tensor %.150s must be [vocabulary, %lld]", embedding->name,
                         (long long)c->width);
    TRY(check_shape(embedding, c->vocabulary, c->width));
    if (in && out)
        TRY(check_shape(out, c->vocabulary, c->width));
    model->embedding = embedding;
    count(l, c->vocabulary * c->width * (c->generates && !model->shared ? 2 : 1));
    if (!c->generates)
        return HEED_OK;
    const heed_model_tensor *matrix = model->shared ? embedding : out;
    TRY(heed_linear_pack(&model->output, (const heed_tensor *[]){&matrix->tensor}, 1, NULL, true,
                         &model->packing));
    heed_model_file_release(model->file, matrix);
    return HEED_OK;
}

static heed_status load_positions(loader *l)
{
    heed_model *model = l->model;
    const heed_config *c = &model->config;
    char text[NAME_SIZE];
    const heed_tensor_name *name = name_of(l, HEED_POSITIONS), *types = name_of(l, HEED_TOKEN_TYPES);
    if (name) {
        const heed_model_tensor *tensor = look_up(l, name, 0, ".weight", text);
        if (!tensor)
            return missing(text);
        TRY(check_shape(tensor, c->positions, c->width));
        model->positions = heed_allocate((size_t)c->positions, (size_t)c->width * sizeof(float));
        if (!model->positions)
            return heed_fail(HEED_NO_MEMORY, "no memory for the tensor %s", text);
        for (int64_t p = 0; p < c->positions; p++)
            heed_load(tensor->tensor.type, (const char *)tensor->tensor.data + p * tensor->tensor.stride[0],
                      model->positions + p * c->width, c->width);
        count(l, c->positions * c->width);
    }
    if (!types)
        return HEED_OK;
    const heed_model_tensor *tensor = look_up(l, types, 0, ".weight", text);
    if (!tensor)
        return missing(text);
    TRY(check_shape(tensor, tensor->tensor.rank == 2 ? tensor->tensor.shape[0] : 1, c->width));
    if (tensor->tensor.shape[0] < 1)
        return heed_fail(HEED_FORMAT, "the tensor %s holds no token type", text);
    model->token_types = heed_allocate((size_t)c->width, sizeof(float));
    if (!model->token_types)
        return heed_fail(HEED_NO_MEMORY, "no memory for the tensor %s", text);
    heed_load(tensor->tensor.type, tensor->tensor.data, model->token_types, c->width);
    count(l, tensor->tensor.shape[0] * c->width);
    return HEED_OK;
}

static bool fits(const char *pattern, const char *name)
{
    const size_t length = strlen(pattern), n = strlen(name);
    if (*pattern == '*')
        return n >= length - 1 && !strcmp(name + n - (length - 1), pattern + 1);
    if (length && pattern[length - 1] == '*')
        return !strncmp(pattern, name, length - 1);
    return !strcmp(pattern, name);
}

/* Factors that a GGUF file of Llama 3.1 divides frequencies by must be those of the scaling that heed knows.
 */
static heed_status check_rope_factors(loader *l, int i)
{
    heed_config *c = &l->model->config;
    heed_rope *rope = &c->rope;
    const heed_model_tensor *tensor = heed_model_file_tensor(l->model->file, i);
    float factor[4096];
    const int64_t half = rope->dim / 2;
    if (half < 1 || half > 4096)
        return heed_fail(HEED_FORMAT, "rope_freqs.weight, but nothing is rotated");
    TRY(check_shape(tensor, half, 0));
    heed_load(tensor->tensor.type, tensor->tensor.data, factor, half);
    const double most = factor[half - 1], original = rope->original >= 1.0 ? rope->original : 8192.0;
    for (int64_t t = 0; t < half; t++) {
        const double f = pow(rope->base, -2.0 * (double)t / (double)rope->dim),
                     turns = original * f / 6.283185307179586;
        const double g = turns <= 1.0 ? 0.0 : turns >= 4.0 ? 1.0 : (turns - 1.0) / 3.0;
        const double expected = 1.0 / ((1.0 - g) / most + g);
        if (!(fabs(factor[t] - expected) <= 1e-3 * expected))
            return heed_fail(HEED_UNSUPPORTED,
                             "rope_freqs.weight holds factors of frequencies that are not those of "
                             "Llama 3.1, which heed cannot apply");
    }
    *rope = (heed_rope){.base = rope->base,
                        .dim = rope->dim,
                        .adjacent = rope->adjacent,
                        .scaling = HEED_ROPE_LLAMA3,
                        .factor = most,
                        .original = original,
                        .low = 1.0,
                        .high = 4.0};
    c->window_rope = *rope;
    l->read[i] = true;
    return HEED_OK;
}

static heed_status check_all_read(loader *l)
{
    for (int i = 0; i < heed_model_file_tensors(l->model->file); i++) {
        const char *name = heed_model_file_tensor(l->model->file, i)->name;
        if (!l->read[i] && !strcmp(name, "rope_freqs.weight") && !strcmp(l->architecture->name, "llama"))
            TRY(check_rope_factors(l, i));
        bool known = l->read[i];
        for (const char *const *unused = l->architecture->unused; unused && *unused; unused++)
            known |= fits(*unused, name);
        if (!known)
            return heed_fail(
                HEED_UNSUPPORTED,
                "the tensor %.150s is not understood: %s models, as heed knows them, have none such", name,
                l->architecture->name);
    }
    return HEED_OK;
}

static void find_prefix(loader *l)
{
    char text[NAME_SIZE];
    const heed_tensor_name *names[] = {name_of(l, HEED_EMBEDDING), name_of(l, HEED_LAST_NORM)};
    for (const char *const *prefix = l->architecture->prefixes; *prefix; prefix++) {
        l->prefix = *prefix;
        for (int i = 0; i < 2; i++)
            if (names[i] && look_up(l, names[i], 0, ".weight", text))
                return;
    }
    l->prefix = l->architecture->prefixes[0];
}

static heed_status load(loader *l)
{
    heed_model *model = l->model;
    const heed_config *c = &model->config;
    find_prefix(l);
    TRY(load_ends(l));
    TRY(load_positions(l));
    TRY(load_norm(l, HEED_EMBEDDING_NORM, 0, c->width, &model->embedding_norm));
    TRY(load_norm(l, HEED_LAST_NORM, 0, c->width, &model->last_norm));
    model->layer = heed_allocate((size_t)c->layers, sizeof *model->layer);
    if (!model->layer)
        return heed_fail(HEED_NO_MEMORY, "no memory for %lld layers", (long long)c->layers);
    for (int64_t n = 0; n < c->layers; n++) {
        TRY(load_attention(l, n, &model->layer[n]));
        TRY(load_feed(l, n, &model->layer[n]));
    }
    return check_all_read(l);
}

heed_status heed_weights_load(heed_model *model, const heed_architecture *architecture)
{
    const int tensors = heed_model_file_tensors(model->file);
    loader l = {.model = model, .architecture = architecture};
    l.read = heed_allocate((size_t)tensors, sizeof *l.read);
    if (!l.read)
        return heed_fail(HEED_NO_MEMORY, "no memory for a list of %d tensors", tensors);
    const heed_status status = load(&l);
    free(l.read);
    for (int64_t n = 0; !status && n < model->config.layers; n++) {
        const heed_layer *layer = &model->layer[n];
        model->packed_bytes += heed_linear_bytes(&layer->query_key_value) +
                               heed_linear_bytes(&layer->attention_output) + heed_linear_bytes(&layer->up) +
                               heed_linear_bytes(&layer->down);
    }
    model->packed_bytes += heed_linear_bytes(&model->output);
    return status;
}

static void free_norm(heed_norm_weights *norm)
{
    free(norm->weight);
    free(norm->bias);
}

void heed_weights_free(heed_model *model)
{
    for (int64_t n = 0; model->layer && n < model->config.layers; n++) {
        heed_layer *layer = &model->layer[n];
        heed_norm_weights *norms[] = {&layer->attention_norm,     &layer->query_norm,
                                      &layer->key_norm,           &layer->attention_post_norm,
                                      &layer->attention_sum_norm, &layer->feed_norm,
                                      &layer->feed_post_norm,     &layer->feed_sum_norm};
        for (size_t i = 0; i < sizeof norms / sizeof *norms; i++)
            free_norm(norms[i]);
        heed_linear_free(&layer->query_key_value);
        heed_linear_free(&layer->attention_output);
        heed_linear_free(&layer->up);
        heed_linear_free(&layer->down);
    }
    free(model->layer);
    free(model->positions);
    free(model->token_types);
    free_norm(&model->embedding_norm);
    free_norm(&model->last_norm);
    heed_parameters_free(model->carried);
    heed_linear_free(&model->output);
}

void heed_weights_embed(const heed_model *model, int32_t token, float *to)
{
    const heed_tensor *tensor = &model->embedding->tensor;
    if (model->shared)
        heed_matrix_row(model->output.matrix, token, to);
    else
        heed_load(tensor->type, (const char *)tensor->data + token * tensor->stride[0], to,
                  model->config.width);
}
