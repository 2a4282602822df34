/* The tensors of a folder of safetensors under the names that GGUF files have, in the order and layout of
 * that format. */
#include "model/convert_folder.h"
#include "base/try.h"
#include "model/file_own.h"

#include <cjson/cJSON.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { NAME = 200, MOST_ROPE = 4096 };

typedef struct conversion {
    const heed_model_file *file;
    const heed_convert_options *options;
    heed_convert_report *report;
    const heed_architecture *architecture;
    heed_config config;
    const char *prefix;
    bool adjacent; /* rows of q and k change places */
    bool *used;    /* [tensors of the file] */
    heed_convert_work work;
    heed_gguf_tensor *tensor; /* as work.each */
    char (*name)[NAME];
    heed_type first_matrix;
    heed_model_tensor rope_factors;
    float factor[MOST_ROPE];
} conversion;

void heed_convert_name(const char *prefix, const char *pattern, int64_t layer, const char *suffix,
                       size_t size, char *name)
{
    const char *place = strstr(pattern, "%d");
    if (place)
        snprintf(name, size, "%s%.*s%lld%s%s", prefix, (int)(place - pattern), pattern, (long long)layer,
                 place + 2, suffix);
    else
        snprintf(name, size, "%s%s%s", prefix, pattern, suffix);
}

/* The prefix of names in this file: the first with which a tensor of the first layer is there. */
static heed_status find_prefix(conversion *all)
{
    char name[NAME];
    for (const char *const *prefix = all->architecture->prefixes; *prefix; prefix++)
        for (const heed_tensor_name *entry = all->architecture->tensors; entry->gguf; entry++) {
            heed_convert_name(*prefix, entry->json, 0, ".weight", NAME, name);
            if (entry->role >= HEED_FIRST_OF_LAYER && heed_model_file_find(all->file, name)) {
                all->prefix = *prefix;
                return HEED_OK;
            }
        }
    return heed_fail(HEED_FORMAT, "%s: none of its tensors has a name that models of %s have",
                     all->file->shown, all->architecture->name);
}

static bool is_norm(heed_role role)
{
    static const heed_role norms[] = {HEED_EMBEDDING_NORM,     HEED_LAST_NORM, HEED_ATTENTION_NORM,
                                      HEED_QUERY_NORM,         HEED_KEY_NORM,  HEED_ATTENTION_POST_NORM,
                                      HEED_ATTENTION_SUM_NORM, HEED_FEED_NORM, HEED_FEED_POST_NORM,
                                      HEED_FEED_SUM_NORM};
    for (size_t i = 0; i < sizeof norms / sizeof *norms; i++)
        if (norms[i] == role)
            return true;
    return false;
}

static bool is_matrix(heed_role role)
{
    return !is_norm(role) && role != HEED_POSITIONS && role != HEED_TOKEN_TYPES;
}

static heed_conversion *append(conversion *all, const char *name)
{
    heed_conversion *each = &all->work.each[all->work.count];
    snprintf(all->name[all->work.count], NAME, "%s", name);
    all->work.count++;
    return each;
}

/* Norms, biases and what is looked up by position are f32 in GGUF files. */
static heed_type plain_type(const heed_model_tensor *from)
{
    return from->tensor.type == HEED_F32 ? HEED_TYPES : HEED_F32;
}

static heed_status add(conversion *all, const heed_tensor_name *entry, const heed_model_tensor *from,
                       const char *name, bool weight)
{
    const heed_config *config = &all->config;
    const heed_role role = entry->role;
    const bool matrix = weight && is_matrix(role), embedding = role == HEED_EMBEDDING || role == HEED_OUTPUT;
    if (from->tensor.type == HEED_TYPES)
        return heed_fail(HEED_UNSUPPORTED, "tensor %s has type %s, which heed cannot read", from->name,
                         from->dtype);
    heed_conversion *each = append(all, name);
    each->from = from;
    all->work.total += from->bytes;
    all->used[from - all->file->tensor] = true;
    each->turned = matrix && config->transposed && role >= HEED_FIRST_OF_LAYER;
    heed_model_tensor shaped = *from; /* as it will be */
    if (each->turned) {
        shaped.shape[0] = from->shape[1];
        shaped.shape[1] = from->shape[0];
    }
    TRY(heed_convert_choose(&shaped, embedding, matrix, all->options, all->report, &each->type));
    if (!matrix)
        each->type = plain_type(from);
    if (matrix && all->first_matrix == HEED_TYPES && !embedding)
        all->first_matrix = each->type == HEED_TYPES ? from->tensor.type : each->type;
    if (all->adjacent && (role == HEED_QUERY || role == HEED_KEY))
        each->heads = (int)(role == HEED_QUERY ? config->heads : config->kv_heads);
    if (weight && is_norm(role))
        each->shift = config->norm_shift;
    if (each->heads > 0 && (from->shape[0] % (2 * each->heads) != 0 || config->rope.dim != config->head_dim))
        return heed_fail(HEED_UNSUPPORTED,
                         "tensor %s: its %lld rows are not pairs that turn in each of %d heads", from->name,
                         (long long)from->shape[0], each->heads);
    TRY(heed_convert_describe(&shaped, each->type, &all->tensor[all->work.count - 1]));
    all->tensor[all->work.count - 1].name = all->name[all->work.count - 1];
    return HEED_OK;
}

/* The output matrix alone serves as the embedding too: GGUF files hold it under that name. */
static const char *gguf_name(const conversion *all, const heed_tensor_name *entry)
{
    char name[NAME];
    if (entry->role != HEED_OUTPUT)
        return entry->gguf;
    for (const heed_tensor_name *other = all->architecture->tensors; other->gguf; other++)
        if (other->role == HEED_EMBEDDING) {
            heed_convert_name(all->prefix, other->json, 0, ".weight", NAME, name);
            return heed_model_file_find(all->file, name) ? entry->gguf : other->gguf;
        }
    return entry->gguf;
}

static heed_status add_named(conversion *all, const heed_tensor_name *entry, int64_t layer)
{
    static const char *const suffixes[] = {".weight", ".bias"};
    char from_name[NAME], to_name[NAME];
    for (int i = 0; i < 2; i++) {
        heed_convert_name(entry->flags & HEED_OUTSIDE ? "" : all->prefix, entry->json, layer, suffixes[i],
                          NAME, from_name);
        const heed_model_tensor *from = heed_model_file_find(all->file, from_name);
        const bool needed = i == 0 ? !(entry->flags & HEED_OPTIONAL) : (entry->flags & HEED_BIAS) != 0;
        if (!from && needed)
            return heed_fail(HEED_FORMAT, "%s: it has no tensor %s", all->file->shown, from_name);
        if (!from)
            continue;
        heed_convert_name("", gguf_name(all, entry), layer, suffixes[i], NAME, to_name);
        TRY(add(all, entry, from, to_name, i == 0));
    }
    return HEED_OK;
}

/* What Llama 3.1 divides frequencies by, as a tensor. */
static heed_status add_rope_factors(conversion *all)
{
    const heed_rope *rope = &all->config.rope;
    const int64_t half = rope->dim / 2;
    if (rope->scaling != HEED_ROPE_LLAMA3)
        return HEED_OK;
    if (half > MOST_ROPE)
        return heed_fail(HEED_UNSUPPORTED, "rope turns %lld pairs: at most %d", (long long)half, MOST_ROPE);
    for (int64_t t = 0; t < half; t++) {
        const double turns =
            rope->original * pow(rope->base, -2.0 * (double)t / (double)rope->dim) / (2.0 * M_PI);
        const double g = fmin(fmax((turns - rope->low) / (rope->high - rope->low), 0.0), 1.0);
        all->factor[t] = (float)(1.0 / ((1.0 - g) / rope->factor + g));
    }
    const float last = all->factor[half - 1]; /* which says what the others are made of */
    if (last != (float)rope->factor && last != 1.0f)
        return heed_fail(HEED_UNSUPPORTED,
                         "the rotation (rope) of this model cannot be said in a GGUF file of %s: its slowest "
                         "pair turns slower by %g, not by %g or not at all",
                         all->architecture->name, last, rope->factor);
    all->rope_factors =
        (heed_model_tensor){.name = "rope_freqs.weight", .dtype = "F32", .rank = 1, .shape = {half}};
    all->rope_factors.bytes = (size_t)half * sizeof *all->factor;
    all->rope_factors.tensor = heed_tensor_dense(all->factor, HEED_F32, 1, &half);
    heed_conversion *each = append(all, all->rope_factors.name);
    *each = (heed_conversion){.from = &all->rope_factors, .type = HEED_TYPES};
    TRY(heed_convert_describe(&all->rope_factors, HEED_TYPES, &all->tensor[all->work.count - 1]));
    all->tensor[all->work.count - 1].name = all->name[all->work.count - 1];
    all->report->tensors++;
    return HEED_OK;
}

/* A pattern with * at either end. */
static bool matches(const char *pattern, const char *name)
{
    const size_t length = strlen(pattern), size = strlen(name);
    if (*pattern == '*')
        return size + 1 >= length && !strcmp(name + size - (length - 1), pattern + 1);
    if (length && pattern[length - 1] == '*')
        return !strncmp(name, pattern, length - 1);
    return !strcmp(name, pattern);
}

/* A tensor that has no place must be one that the result does not depend on. */
static heed_status check_all_used(const conversion *all)
{
    for (int i = 0; i < all->file->tensors; i++) {
        const char *name = all->file->tensor[i].name;
        bool known = all->used[i];
        for (const char *const *unused = all->architecture->unused; unused && *unused; unused++)
            known = known || matches(*unused, name);
        if (!known)
            return heed_fail(HEED_UNSUPPORTED, "tensor %s has no place in a GGUF file of %s", name,
                             all->architecture->name);
    }
    return HEED_OK;
}

static heed_status add_all(conversion *all)
{
    TRY(find_prefix(all));
    for (const heed_tensor_name *entry = all->architecture->tensors; entry->gguf; entry++)
        if (entry->role < HEED_FIRST_OF_LAYER)
            TRY(add_named(all, entry, 0));
    TRY(add_rope_factors(all));
    for (int64_t l = 0; l < all->config.layers; l++)
        for (const heed_tensor_name *entry = all->architecture->tensors; entry->gguf; entry++)
            if (entry->role >= HEED_FIRST_OF_LAYER)
                TRY(add_named(all, entry, l));
    return check_all_used(all);
}

/* The last part of the path. */
static void put_name(const heed_model_file *file, heed_gguf_keys *keys)
{
    char name[200];
    size_t end = strlen(file->shown);
    while (end > 1 && file->shown[end - 1] == '/')
        end--;
    size_t begin = end;
    while (begin > 0 && file->shown[begin - 1] != '/')
        begin--;
    snprintf(name, sizeof name, "%.*s", (int)(end - begin), file->shown + begin);
    heed_gguf_put_text(keys, "general.name", name);
}

static void put_types(const conversion *all, heed_gguf_keys *keys)
{
    uint32_t number;
    if (heed_convert_file_type(all->options->type == HEED_TYPES ? all->first_matrix : all->options->type,
                               &number))
        heed_gguf_put_u32(keys, "general.file_type", number);
    heed_gguf_put_u32(keys, "general.quantization_version", 2);
}

static int64_t vocabulary(const conversion *all)
{
    for (int i = 0; i < all->work.count; i++)
        if (!strcmp(all->name[i], "token_embd.weight"))
            return all->work.each[i].from->shape[0];
    return 0;
}

/* Tokens that sentence-transformers reads of a text, where that is fewer than the model could. */
static int64_t cut_of(const conversion *all)
{
    size_t size;
    const char *text = heed_model_file_text(all->file, "sentence_bert_config.json", &size);
    cJSON *root = text ? cJSON_ParseWithLength(text, size) : NULL;
    const cJSON *most = cJSON_GetObjectItemCaseSensitive(root, "max_seq_length");
    const double number = cJSON_IsNumber(most) ? most->valuedouble : 0.0;
    cJSON_Delete(root);
    return number >= 1.0 && number < (double)all->config.context ? (int64_t)number : 0;
}

static heed_status convert(conversion *all, const char *path, heed_gguf_keys *keys)
{
    TRY(heed_convert_read_config(all->file, &all->architecture, &all->config));
    heed_convert_config_keys(&all->config, all->file, keys);
    TRY(heed_convert_check_config(&all->config, keys, &all->adjacent));
    all->adjacent = all->adjacent && !all->config.rope.adjacent;
    TRY(add_all(all));
    put_name(all->file, keys);
    put_types(all, keys);
    const int64_t rows = vocabulary(all);
    char key[160];
    snprintf(key, sizeof key, "%s.vocab_size", all->architecture->name);
    heed_gguf_put_u32(keys, key, (uint32_t)rows);
    all->report->cut = cut_of(all);
    TRY(heed_convert_tokenizer_keys(all->file, &all->config, rows, keys, all->report));
    TRY(heed_gguf_write(path, keys, all->tensor, all->work.count, heed_convert_source, &all->work));
    for (int i = 0; i < all->work.count; i++)
        all->report->bytes += (size_t)all->tensor[i].bytes;
    return HEED_OK;
}

heed_status heed_convert_folder(const heed_model_file *file, const char *path,
                                const heed_convert_options *options, heed_convert_report *report)
{
    const size_t most = (size_t)file->tensors + 1; /* and the factors of rope */
    heed_gguf_keys keys = {0};
    conversion *all = calloc(1, sizeof *all);
    heed_status status = HEED_NO_MEMORY;
    if (all) {
        *all = (conversion){.file = file, .options = options, .report = report, .first_matrix = HEED_TYPES};
        all->work.options = options;
        all->work.each = calloc(most, sizeof *all->work.each);
        all->tensor = calloc(most, sizeof *all->tensor);
        all->name = calloc(most, sizeof *all->name);
        all->used = calloc(most, sizeof *all->used);
    }
    if (all && all->work.each && all->tensor && all->name && all->used)
        status = convert(all, path, &keys);
    else
        heed_fail(HEED_NO_MEMORY, "no memory for %d tensors", file->tensors);
    heed_gguf_keys_free(&keys);
    if (all) {
        free(all->work.each);
        free(all->tensor);
        free(all->name);
        free(all->used);
    }
    free(all);
    return status;
}
