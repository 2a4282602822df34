/* Locality-sensitive hashing: keys that share a bucket with the query.
 *
 *     b_t(x) = signs of the products of x with `bits` random directions, t = 1..tables
 *     key j is read if b_t(q) = b_t(k_j - mean of the keys) for some t
 *
 * The probability that one bit agrees is 1 - angle/pi. Keys lie to one side of their space, so that they are
 * seen from their mean, as MagicPIG does; that adds the same to all products of a query. A kv head reads what
 * any of its query heads finds. While generating only; prompts are read in full. Directions come from a hash
 * of the seed.
 */
#include "attend/select/draw.h"
#include "attend/select/index.h"

enum { BITS, TABLES, FRESH, SEED };

static int bits_of(const heed_form_state *form)
{
    return heed_arg_int(form, BITS);
}

static int tables_of(const heed_form_state *form)
{
    return heed_arg_int(form, TABLES);
}

static size_t table_bytes(const heed_form_state *form)
{
    return (size_t)(bits_of(form) * tables_of(form)) * (size_t)form->sizes.dim * sizeof(float);
}

/* Directions [tables][bits][dim]: sums of four uniform numbers, nearly normal. */
static void setup(heed_form_state *form)
{
    uint64_t state = (uint64_t)heed_arg_int(form, SEED);
    heed_draw_normal(&state, (int64_t)(table_bytes(form) / sizeof(float)), form->table);
}

static int32_t bucket(const heed_form_state *form, int table, const float *x, int dim)
{
    const float *direction = (const float *)form->table + (int64_t)table * bits_of(form) * dim;
    int32_t bits = 0;
    for (int b = 0; b < bits_of(form); b++)
        bits |= (heed_row_product(x, direction + (int64_t)b * dim, dim) > 0) << b;
    return bits;
}

/* Behind number[0] [kv_heads][tables][keys] buckets */
static int64_t numbers(const heed_form_state *form, int64_t keys)
{
    return 1 + form->sizes.kv_heads * tables_of(form) * keys;
}

static int64_t work(const heed_form_state *form, int64_t keys)
{
    (void)keys;
    return (HEED_INDEX_ROWS + 1) * form->sizes.dim;
}

static bool renews(const heed_form_state *form, const heed_recalled *now)
{
    return heed_index_renews(form, now, FRESH);
}

static int32_t *buckets_of(const heed_form_state *form, const heed_recalled *now, int g, int table)
{
    return now->memory->number + 1 + ((int64_t)g * tables_of(form) + table) * form->sizes.keys;
}

static void find_mean(const heed_recalled *now, int g, float *rows, float *mean)
{
    memset(mean, 0, (size_t)now->dim * sizeof *mean);
    for (int64_t j = 0; j < now->keys; j++) {
        now->load(now->context, g, j, 1, rows, now->dim);
        for (int c = 0; c < now->dim; c++)
            mean[c] += rows[c] / (float)now->keys;
    }
}

static void remember(const heed_form_state *form, const heed_recalled *now)
{
    float *rows = now->work + 2 * now->keys, *mean = rows + (int64_t)HEED_INDEX_ROWS * now->dim;
    now->memory->number[0] = 0;
    for (int g = 0; g < now->kv_heads; g++) {
        now->memory->number[0] |= !heed_index_finite(now, g, rows);
        find_mean(now, g, rows, mean);
        for (int64_t j = 0; j < now->keys; j++) {
            now->load(now->context, g, j, 1, rows, now->dim);
            for (int c = 0; c < now->dim; c++)
                rows[c] -= mean[c];
            for (int t = 0; t < tables_of(form); t++)
                buckets_of(form, now, g, t)[j] = bucket(form, t, rows, now->dim);
        }
    }
}

static void recall_keys(const heed_form_state *form, const heed_recalled *now)
{
    const int group = now->heads / now->kv_heads;
    for (int h = 0; h < now->heads; h++)
        for (int t = 0; t < tables_of(form); t++) {
            const int32_t here = bucket(form, t, now->query[h], now->dim),
                          *of = buckets_of(form, now, h / group, t);
            uint8_t *keep = now->keep[h / group];
            for (int64_t j = 0; j < now->memory->keys; j++)
                keep[j] |= of[j] == here;
        }
    now->memory->scanned += now->heads * now->memory->keys;
}

static const heed_arg args[] = {
    {.name = "bits",
     .kind = HEED_ARG_INT,
     .value = 8,
     .least = 1,
     .most = 24,
     .summary = "of a bucket's number"},
    {.name = "tables", .kind = HEED_ARG_INT, .value = 24, .least = 1, .most = 256, .summary = "of buckets"},
    HEED_FRESH_ARG,
    {.name = "seed",
     .kind = HEED_ARG_INT,
     .value = 0,
     .least = 0,
     .most = INFINITY,
     .summary = "of the directions"},
    {0},
};

static const heed_recall recall = {.flags = HEED_RECALL_AT_ONCE,
                                   .unit = heed_index_unit,
                                   .numbers = numbers,
                                   .work = work,
                                   .renews = renews,
                                   .remember = remember,
                                   .recall = recall_keys};

const heed_form HEED_FORM(select_lsh) = {
    .name = "lsh",
    .stage = HEED_SELECT,
    .summary = "while generating: keys that share a bucket of a locality-sensitive hash with the query",
    .formula = "keys j with sign(A_t q) = sign(A_t (k_j - mean k)) for some table t",
    .source = "Chen et al.: MagicPIG, 2024",
    .args = args,
    .table_bytes = table_bytes,
    .setup = setup,
    .recall = &recall,
};
