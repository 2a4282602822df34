/* AdaSpa: blocks of keys for denoisers that attend to nearly the same again and again.
 *
 *     steps before `search` attend to everything and keep each row's log-sum-exp L_i
 *     at the steps `search` and `again`, counted from 0, for blocks I of queries and J of keys
 *         m_IJ = sum over i in I, j in J of exp(s_ij - L_i)          L from the last step that read all
 *     from then on, queries of I read the (1 - sparsity) of the blocks of largest m_IJ, of equal ones the
 * lower heads adapt: with recall_h = kept mass / all mass, the n heads of largest recall, n those above the
 * mean but at most half, are read at sparsity + delta, and the n of smallest at sparsity - delta
 *
 * A step is an execution of a plan with the sequence's memory; all steps have the same sizes, and every query
 * its key. Nothing is causal here, so no model of text takes it. Lists do not pass gradients on. Xia et al.:
 * Training-free and Adaptive Sparse Attention for Efficient Long Video Generation, 2025.
 */
#include "attend/form.h"
#include "attend/select/cut.h"
#include "base/arena.h"

#include <heed/gather.h>
#include <heed/recall.h>
#include <string.h>

enum { BLOCK, SPARSITY, DELTA, SEARCH, AGAIN };
enum { STEP, FOUND, NUMBERS }; /* steps done, whether masses are there */

static int64_t block_of(const heed_form_state *form)
{
    return heed_arg_int(form, BLOCK);
}

static int64_t blocks_of(const heed_form_state *form, int64_t keys)
{
    return (keys + block_of(form) - 1) / block_of(form);
}

static heed_status resolve(heed_form_state *form)
{
    if (form->sizes.queries != form->sizes.keys || form->sizes.causal)
        return heed_fail(
            HEED_UNSUPPORTED,
            "select=adaspa is for steps that look at the same again, all of it at once: %lld queries, "
            "%lld keys%s",
            (long long)form->sizes.queries, (long long)form->sizes.keys,
            form->sizes.causal ? ", one after the other" : "");
    if (form->backward)
        return heed_fail(HEED_UNSUPPORTED, "select=adaspa goes from step to step, which has no gradient");
    if (form->arg[SPARSITY].number + form->arg[DELTA].number > 1)
        return heed_fail(HEED_INVALID, "select=adaspa: sparsity + delta is %g, it must be at most 1",
                         form->arg[SPARSITY].number + form->arg[DELTA].number);
    return HEED_OK;
}

static int64_t numbers(const heed_form_state *form, int64_t keys)
{
    (void)form, (void)keys;
    return NUMBERS;
}

/* [H][N] log-sum-exps, [H] recalls, [H][blocks][blocks] masses */
static int64_t reals(const heed_form_state *form, int64_t keys)
{
    const int64_t blocks = blocks_of(form, keys);
    return form->sizes.heads * (keys + 1 + blocks * blocks);
}

static float *lse_of(const heed_form_state *form, const heed_memory *memory, int64_t head)
{
    return memory->real + head * form->sizes.keys;
}

static float *recalls_of(const heed_form_state *form, const heed_memory *memory)
{
    return memory->real + form->sizes.heads * form->sizes.keys;
}

static float *masses_of(const heed_form_state *form, const heed_memory *memory, int64_t head)
{
    const int64_t blocks = blocks_of(form, form->sizes.keys);
    return recalls_of(form, memory) + form->sizes.heads + head * blocks * blocks;
}

typedef struct room {
    float *key;         /* [block][dim] */
    float *line, *work; /* [blocks] */
    int32_t *list;      /* [M] */
} room;

static room carve(const heed_form_state *form, void *base, size_t *bytes)
{
    const size_t blocks = (size_t)blocks_of(form, form->sizes.keys);
    heed_arena arena = {.base = base};
    room r = {.key = heed_arena_take(&arena, (size_t)(block_of(form) * form->sizes.dim), sizeof(float))};
    r.line = heed_arena_take(&arena, blocks, sizeof(float));
    r.work = heed_arena_take(&arena, blocks, sizeof(float));
    r.list = heed_arena_take(&arena, (size_t)form->sizes.keys, sizeof(int32_t));
    *bytes = arena.used;
    return r;
}

static size_t bytes_of(const heed_form_state *form)
{
    size_t bytes;
    carve(form, NULL, &bytes);
    return bytes;
}

static bool searches(const heed_form_state *form, const heed_memory *memory)
{
    const int32_t step = memory->keys < 0 ? 0 : memory->number[STEP];
    return step > 0 && (step == heed_arg_int(form, SEARCH) || step == heed_arg_int(form, AGAIN));
}

/* Blocks that a row of blocks keeps at a sparsity: all but that share, to the nearest, one at least. */
static int64_t kept_at(double sparsity, int64_t blocks)
{
    const int64_t kept = (int64_t)floor((1 - sparsity) * (double)blocks + 0.5);
    return kept < 1 ? 1 : kept;
}

static void add_masses(const heed_gathering *at, const float *key, int64_t keys, const float *lse,
                       int64_t block, int64_t blocks, float *column)
{
    for (int64_t i = 0; i < at->queries; i++) {
        const float *restrict query = at->query + i * at->query_stride;
        float sum = 0;
        for (int64_t j = 0; j < keys; j++) {
            float score = 0;
#pragma omp simd reduction(+ : score)
            for (int c = 0; c < at->dim; c++)
                score += query[c] * key[j * at->dim + c];
            sum += heed_exp(score - lse[i]);
        }
        column[i / block * blocks] += sum;
    }
}

static void survey(const heed_form_state *form, const heed_gathering *at)
{
    const int64_t block = block_of(form), all = blocks_of(form, form->sizes.keys),
                  blocks = blocks_of(form, at->keys);
    size_t bytes;
    room r = carve(form, at->work, &bytes);
    if (!searches(form, at->memory))
        return;
    float *mass = masses_of(form, at->memory, at->head);
    double kept = 0, total = 0;
    memset(mass, 0, (size_t)(all * all) * sizeof *mass);
    for (int64_t J = 0; J < blocks; J++) {
        const int64_t left = at->keys - J * block, keys = left < block ? left : block;
        at->load_keys(at, J * block, keys, r.key, at->dim);
        add_masses(at, r.key, keys, lse_of(form, at->memory, at->head), block, all, mass + J);
    }
    for (int64_t I = 0; I < blocks; I++) {
        memcpy(r.line, mass + I * all, (size_t)blocks * sizeof *r.line);
        heed_keep_highest(r.line, (int)blocks, kept_at(form->arg[SPARSITY].number, blocks), r.work);
        for (int64_t J = 0; J < blocks; J++) {
            total += (double)mass[I * all + J];
            kept += r.line[J] == -INFINITY ? 0 : (double)r.line[J];
        }
    }
    recalls_of(form, at->memory)[at->head] = (float)(kept / total);
}

/* The place of a head among all by falling recall, of equal ones the lower first; and how many adapt. */
static double sparsity_of(const heed_form_state *form, const heed_gathering *at)
{
    const float *recall = recalls_of(form, at->memory);
    const int64_t heads = form->sizes.heads;
    double mean = 0;
    int64_t above = 0, place = 0;
    for (int64_t h = 0; h < heads; h++)
        mean += (double)recall[h] / (double)heads;
    for (int64_t h = 0; h < heads; h++) {
        above += (double)recall[h] > mean;
        place += recall[h] > recall[at->head] || (recall[h] == recall[at->head] && h < at->head);
    }
    const int64_t n = above < heads / 2 ? above : heads / 2;
    const double delta = form->arg[DELTA].number, sparsity = form->arg[SPARSITY].number;
    const double own = place < n ? sparsity + delta : place >= heads - n ? sparsity - delta : sparsity;
    return own < 0 ? 0 : own;
}

static void gather(const heed_form_state *form, const heed_gathering *at)
{
    const int64_t block = block_of(form), all = blocks_of(form, form->sizes.keys),
                  blocks = blocks_of(form, at->keys);
    const bool found = at->memory->keys >= 0 && at->memory->number[FOUND];
    size_t bytes;
    room r = carve(form, at->work, &bytes);
    if (!found && !searches(form, at->memory)) {
        at->meet(at, &(heed_meeting){.queries = at->queries, .keys = at->keys});
        return;
    }
    const float *mass = masses_of(form, at->memory, at->head);
    const int64_t kept = kept_at(sparsity_of(form, at), blocks);
    for (int64_t I = 0; I < blocks; I++) {
        int64_t count = 0;
        memcpy(r.line, mass + I * all, (size_t)blocks * sizeof *r.line);
        heed_keep_highest(r.line, (int)blocks, kept, r.work);
        for (int64_t j = 0; j < at->keys; j++) {
            r.list[count] = (int32_t)j;
            count += r.line[j / block] != -INFINITY;
        }
        const int64_t left = at->queries - I * block;
        at->meet(at, &(heed_meeting){.first_query = I * block,
                                     .queries = left < block ? left : block,
                                     .key = r.list,
                                     .keys = count});
    }
}

static void settle(const heed_form_state *form, const heed_gathering *at, const float *lse)
{
    const bool found = at->memory->keys >= 0 && at->memory->number[FOUND];
    if (!found && !searches(form, at->memory))
        memcpy(lse_of(form, at->memory, at->head), lse, (size_t)at->queries * sizeof *lse);
}

static void close_step(const heed_form_state *form, heed_memory *memory, int64_t keys)
{
    (void)keys;
    if (memory->keys < 0)
        memory->number[STEP] = memory->number[FOUND] = 0;
    memory->number[FOUND] |= searches(form, memory);
    memory->number[STEP]++;
}

static int64_t unit(const heed_form_state *form)
{
    (void)form;
    return 1;
}

static const heed_arg args[] = {
    [BLOCK] = {.name = "block",
               .kind = HEED_ARG_INT,
               .value = 64,
               .least = 1,
               .most = 1 << 20,
               .summary = "queries, and keys, in a block"},
    [SPARSITY] =
        {.name = "sparsity", .value = 0.8, .least = 0, .most = 1, .summary = "share of blocks left out"},
    [DELTA] =
        {.name = "delta", .value = 0.1, .least = 0, .most = 1, .summary = "what heads take from each other"},
    [SEARCH] = {.name = "search",
                .kind = HEED_ARG_INT,
                .value = 10,
                .least = 1,
                .most = 2147483647,
                .summary = "step, from 0 on, that searches; those before read all"},
    [AGAIN] = {.name = "again",
               .kind = HEED_ARG_INT,
               .value = 30,
               .least = 1,
               .most = 2147483647,
               .summary = "step that searches again"},
    {0},
};

static const heed_gather_rule rule = {
    .bytes = bytes_of, .survey = survey, .gather = gather, .settle = settle, .close = close_step};

static const heed_recall recall = {
    .flags = HEED_RECALL_GATHERS, .unit = unit, .numbers = numbers, .reals = reals};

const heed_form HEED_FORM(select_adaspa) = {
    .name = "adaspa",
    .stage = HEED_SELECT,
    .summary = "blocks of most weight, found at some steps of a denoiser and read at the others",
    .formula = "largest m_IJ = sum exp(s_ij - L_i) of a row of blocks, as many as the head's recall asks for",
    .source =
        "Xia et al.: Training-free and Adaptive Sparse Attention for Efficient Long Video Generation, 2025",
    .row = "001.010",
    .args = args,
    .resolve = resolve,
    .gathers = &rule,
    .recall = &recall,
};
