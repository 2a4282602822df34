/* Core context aware attention: near keys one by one, those farther away by one core key for each block.
 *
 *     p = softmax(q_last · k_j) over a block of `block` keys, q_last the query of its last token
 *     K~ = sum_j p_j k_j,     V~ = sum_j p_j v_j
 *     query i sees the keys from s(i) on, s(i) = floor((i - window + 1) / block) block, and the core keys of
 *     all blocks before s(i), in one softmax
 *
 * So at least the last `window` keys are seen themselves, from the edge of a block on. Keys are those that
 * are multiplied (turned where they stand); each query head has core keys of its own. block=1, or a window as
 * long as the text, is full attention. Core keys are made once, when the last token of a block is read, and
 * remembered; a query reads window + n / block keys. Chen et al.: Core Context Aware Attention, 2024.
 */
#include "attend/form.h"
#include "base/arena.h"
#include "base/vectors.h"

#include <heed/gather.h>
#include <heed/recall.h>
#include <string.h>

enum { BLOCK, WINDOW };
enum { AT_ONCE = 512 }; /* queries that meet near keys together */

static int64_t block_of(const heed_form_state *form)
{
    return heed_arg_int(form, BLOCK);
}

static int64_t blocks_of(const heed_form_state *form, int64_t keys)
{
    return keys / block_of(form);
}

/* The first key that the query at key `i` sees itself. */
static int64_t first_near(const heed_form_state *form, int64_t i)
{
    const int64_t from = i - heed_arg_int(form, WINDOW) + 1;
    return from > 0 ? from / block_of(form) * block_of(form) : 0;
}

typedef struct cores {
    float *key, *value;    /* [blocks][dim], [blocks][value_dim]: the head's in the memory, or here */
    float *keys, *values;  /* [block][dim], [block][value_dim] of a block at hand */
    float *weight, *slope; /* [block] */
    int32_t *from, *until; /* [AT_ONCE] */
    int32_t *far;          /* [N] core keys that a query sees */
} cores;

static cores carve(const heed_form_state *form, void *base, size_t *bytes)
{
    const size_t dim = (size_t)form->sizes.dim, value = (size_t)form->sizes.value_dim;
    const size_t blocks = (size_t)blocks_of(form, form->sizes.keys), block = (size_t)block_of(form);
    const size_t most = block < (size_t)form->sizes.keys ? block : (size_t)form->sizes.keys;
    heed_arena arena = {.base = base};
    cores c = {.key = heed_arena_take(&arena, blocks * dim, sizeof *c.key)};
    c.value = heed_arena_take(&arena, blocks * value, sizeof *c.value);
    c.keys = heed_arena_take(&arena, most * dim, sizeof *c.keys);
    c.values = heed_arena_take(&arena, most * value, sizeof *c.values);
    c.weight = heed_arena_take(&arena, most, sizeof *c.weight);
    c.slope = heed_arena_take(&arena, most, sizeof *c.slope);
    c.from = heed_arena_take(&arena, AT_ONCE, sizeof *c.from);
    c.until = heed_arena_take(&arena, AT_ONCE, sizeof *c.until);
    c.far = heed_arena_take(&arena, (size_t)form->sizes.queries, sizeof *c.far);
    *bytes = arena.used;
    return c;
}

static size_t bytes_of(const heed_form_state *form)
{
    size_t bytes;
    carve(form, NULL, &bytes);
    return bytes;
}

/* [H][blocks][dim] core keys, [H][blocks][value_dim] core values */
static int64_t reals(const heed_form_state *form, int64_t keys)
{
    return form->sizes.heads * blocks_of(form, keys) * (form->sizes.dim + form->sizes.value_dim);
}

static cores cores_of(const heed_form_state *form, const heed_gathering *at)
{
    size_t bytes;
    cores c = carve(form, at->work, &bytes);
    const int64_t blocks = blocks_of(form, form->sizes.keys);
    if (at->memory) {
        c.key = at->memory->real + at->head * blocks * at->dim;
        c.value = at->memory->real + form->sizes.heads * blocks * at->dim + at->head * blocks * at->value_dim;
    }
    return c;
}

/* Loads block b and finds the weights of its keys. */
static const float *weigh(const heed_form_state *form, const heed_gathering *at, cores *c, int64_t b)
{
    const int64_t block = block_of(form);
    const float *query = at->query + ((b + 1) * block - 1 - at->before) * at->query_stride;
    float most = -INFINITY, sum = 0;
    at->load_keys(at, b * block, block, c->keys, at->dim);
    at->load_values(at, b * block, block, c->values, at->value_dim);
    for (int64_t j = 0; j < block; j++) {
        c->weight[j] = heed_row_product(query, c->keys + j * at->dim, at->dim);
        most = c->weight[j] > most ? c->weight[j] : most;
    }
    for (int64_t j = 0; j < block; j++) {
        c->weight[j] = heed_exp(c->weight[j] - most);
        sum += c->weight[j];
    }
    for (int64_t j = 0; j < block; j++)
        c->weight[j] /= sum;
    return query;
}

static void make(const heed_form_state *form, const heed_gathering *at, cores *c, int64_t b)
{
    float *key = c->key + b * at->dim, *value = c->value + b * at->value_dim;
    weigh(form, at, c, b);
    memset(key, 0, (size_t)at->dim * sizeof *key);
    memset(value, 0, (size_t)at->value_dim * sizeof *value);
    for (int64_t j = 0; j < block_of(form); j++) {
        heed_row_add(key, c->weight[j], c->keys + j * at->dim, at->dim);
        heed_row_add(value, c->weight[j], c->values + j * at->value_dim, at->value_dim);
    }
}

static void meet_near(const heed_form_state *form, const heed_gathering *at, const cores *c, int64_t q0,
                      int64_t n)
{
    const int64_t first = first_near(form, at->before + q0);
    for (int64_t i = 0; i < n; i++) {
        const int64_t key = at->before + q0 + i;
        c->from[i] = (int32_t)(first_near(form, key) - first);
        c->until[i] = (int32_t)(key - first + 1);
    }
    at->meet(at, &(heed_meeting){.first_query = q0,
                                 .queries = n,
                                 .first_key = first,
                                 .keys = at->before + q0 + n - first,
                                 .from = c->from,
                                 .until = c->until});
}

static void gather(const heed_form_state *form, const heed_gathering *at)
{
    cores c = cores_of(form, at);
    for (int64_t b = at->before / block_of(form); b < blocks_of(form, at->keys); b++)
        make(form, at, &c, b);
    const int64_t own = at->keys - at->before, queries = own < at->queries ? own : at->queries;
    for (int64_t q0 = 0; q0 < queries; q0 += AT_ONCE)
        meet_near(form, at, &c, q0, queries - q0 < AT_ONCE ? queries - q0 : AT_ONCE);
    for (int64_t i = 0; i < queries; i++)
        c.far[i] = (int32_t)(first_near(form, at->before + i) / block_of(form));
    if (queries > 0 && c.far[queries - 1] > 0)
        at->meet(at, &(heed_meeting){.queries = queries,
                                     .keys = c.far[queries - 1],
                                     .made_key = c.key,
                                     .made_value = c.value,
                                     .until = c.far,
                                     .open = true});
}

/* dp_j = dK~ · k_j + dV~ · v_j, ds_j = p_j (dp_j - sum p dp); then the products that made p, K~ and V~. */
static void made_backward(const heed_form_state *form, const heed_gathering *at, const heed_made_gradients *g)
{
    const int64_t block = block_of(form);
    cores c = cores_of(form, at);
    for (int64_t b = 0; b < blocks_of(form, at->keys); b++) {
        const float *query = weigh(form, at, &c, b), *dkey = g->key + b * at->dim;
        const float *dvalue = g->value + b * at->value_dim;
        float *dquery = g->query + ((b + 1) * block - 1 - at->before) * g->query_stride, mean = 0;
        for (int64_t j = 0; j < block; j++) {
            c.slope[j] = heed_row_product(dkey, c.keys + j * at->dim, at->dim) +
                         heed_row_product(dvalue, c.values + j * at->value_dim, at->value_dim);
            mean += c.weight[j] * c.slope[j];
        }
        for (int64_t j = 0; j < block; j++) {
            const float slope = c.weight[j] * (c.slope[j] - mean);
            float *to = g->keys + (b * block + j) * g->key_stride;
            heed_row_add(to, c.weight[j], dkey, at->dim);
            heed_row_add(to, slope, query, at->dim);
            heed_row_add(dquery, slope, c.keys + j * at->dim, at->dim);
            heed_row_add(g->values + (b * block + j) * g->value_stride, c.weight[j], dvalue, at->value_dim);
        }
    }
}

static int64_t made(const heed_form_state *form)
{
    return blocks_of(form, form->sizes.keys);
}

static int64_t unit(const heed_form_state *form)
{
    (void)form;
    return 1;
}

static const heed_arg args[] = {
    [BLOCK] = {.name = "block",
               .kind = HEED_ARG_INT,
               .value = 16,
               .least = 1,
               .most = INFINITY,
               .summary = "keys of a core key"},
    [WINDOW] = {.name = "window",
                .kind = HEED_ARG_INT,
                .value = 1024,
                .least = 1,
                .most = INFINITY,
                .summary = "last keys that are seen themselves"},
    {0},
};

static const heed_gather_rule rule = {
    .makes = true, .bytes = bytes_of, .gather = gather, .made = made, .made_backward = made_backward};

static const heed_recall recall = {.flags = HEED_RECALL_GATHERS, .unit = unit, .reals = reals};

const heed_form HEED_FORM(select_cca) = {
    .name = "cca",
    .stage = HEED_SELECT,
    .summary = "a window of keys, and one core key for each block before it",
    .formula = "softmax(q [K~; K_near]) [V~; V_near], K~ = softmax(q_last K_block) K_block",
    .source = "Chen et al.: Core Context Aware Attention for Long Context Language Modeling, 2024",
    .row = "004.100",
    .flags = HEED_NEEDS_CAUSAL,
    .args = args,
    .gathers = &rule,
    .recall = &recall,
};
