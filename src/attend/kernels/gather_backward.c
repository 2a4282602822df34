/* Backward through gathered rows: the form says again what meets, and each meeting makes its weights again
 * from the norms of its queries.
 *
 * A piece of work is a kv head of a batch entry with its query heads one after the other, so that gradients
 * of keys are added in one order.
 */
#include "attend/kernels/backward.h"
#include "attend/kernels/gather.h"
#include "base/vectors.h"

#include <string.h>

#define MOST_LANES 16

typedef struct gather_back {
    const heed_backward_work *work;
    heed_pipeline *own;
    float *base, *rest, *delta;   /* [N] of the meeting at hand */
    float *query, *dquery;        /* [HEED_BACK_BLOCK][row_stride] */
    float *dout;                  /* [HEED_BACK_BLOCK][work->value_stride] */
    float *weight, *dscore;       /* [HEED_BACK_BLOCK][HEED_KEYS] */
    float *kept;                  /* [planes][HEED_STRIP][HEED_KEYS] */
    float *dkey, *dvalue;         /* [HEED_KEYS][row_stride], [HEED_KEYS][work->value_stride] */
    float *made_key, *made_value; /* [made][dim], [made][value_dim] gradients of rows that the form made */
    int64_t made;
    bool keys_finite;
} gather_back;

typedef struct both {
    gather_back back;
    heed_gather_work work;
} both;

static int64_t back_value_stride(const heed_plan *plan)
{
    return heed_round_up(plan->problem.value_dim, 2 * HEED_WIDTH);
}

static both take(heed_arena *arena, const heed_plan *plan, const heed_pipeline *pipeline)
{
    const heed_form_state *form = &pipeline->form[pipeline->gathers];
    const heed_gather_rule *rule = form->form->gathers;
    const size_t row = (size_t)heed_row_stride(plan, pipeline), queries = (size_t)plan->problem.queries;
    const size_t value = (size_t)back_value_stride(plan);
    both b = {.back = {.own = heed_arena_take(arena, 1, sizeof *b.back.own)}};
    b.work = heed_take_gather_work(arena, plan, pipeline);
    b.work.keys.value_transposed = heed_arena_take(
        arena, (size_t)(plan->problem.value_dim + 2 * HEED_WIDTH) * HEED_KEY_STRIDE, sizeof(float));
    gather_back *w = &b.back;
    float **each[] = {&w->base, &w->rest, &w->delta};
    for (int i = 0; i < 3; i++)
        *each[i] = heed_arena_take(arena, queries, sizeof(float));
    w->query = heed_arena_take(arena, HEED_BACK_BLOCK * row, sizeof(float));
    w->dquery = heed_arena_take(arena, HEED_BACK_BLOCK * row, sizeof(float));
    w->dout = heed_arena_take(arena, HEED_BACK_BLOCK * value, sizeof(float));
    w->weight = heed_arena_take(arena, HEED_BACK_BLOCK * HEED_KEYS, sizeof(float));
    w->dscore = heed_arena_take(arena, HEED_BACK_BLOCK * HEED_KEYS, sizeof(float));
    w->kept = heed_arena_take(arena, (size_t)pipeline->kept_planes * HEED_STRIP * HEED_KEYS, sizeof(float));
    w->dkey = heed_arena_take(arena, HEED_KEYS * row, sizeof(float));
    w->dvalue = heed_arena_take(arena, HEED_KEYS * value, sizeof(float));
    w->made = rule->made ? rule->made(form) : 0;
    w->made_key = heed_arena_take(arena, (size_t)(w->made * pipeline->row_dim), sizeof(float));
    w->made_value = heed_arena_take(arena, (size_t)(w->made * plan->problem.value_dim), sizeof(float));
    return b;
}

size_t heed_gather_backward_per_thread(const heed_plan *plan, const heed_pipeline *pipeline)
{
    heed_arena arena = {0};
    take(&arena, plan, pipeline);
    return arena.used;
}

int heed_gather_lanes(const heed_plan *plan)
{
    const int64_t pieces = plan->problem.batch * plan->problem.kv_heads;
    return pieces < 1 ? 1 : pieces < MOST_LANES ? (int)pieces : MOST_LANES;
}

/* Norms and deltas of a meeting's queries: the head's, or the meeting's own. */
static void find_norms(both *b, const heed_meeting *meeting)
{
    gather_back *back = &b->back;
    const heed_backward_work *w = back->work;
    const heed_gathering *at = &b->work.at;
    const int64_t row0 =
        ((int64_t)at->batch * w->run->plan->problem.heads + at->head) * w->run->plan->problem.queries;
    const int64_t stride = heed_value_stride(w->run->plan);
    if (meeting->share) {
        heed_gather_clear(&b->work, meeting);
        heed_gather_sum(&b->work, meeting);
    }
    for (int64_t n = 0; n < meeting->queries; n++) {
        const int64_t i = heed_gather_query(meeting, n);
        back->base[i] = w->base[row0 + i];
        back->rest[i] = w->norm[row0 + i];
        back->delta[i] = w->delta[row0 + i];
        if (!meeting->share)
            continue;
        heed_gather_finish(&b->work, i, 1);
        const float *dout = heed_dout(w, at->batch, at->head, i);
        double delta = 0.0;
        for (int e = 0; e < at->value_dim; e++)
            delta += (double)dout[e] * (double)b->work.sum[i * stride + e];
        back->delta[i] = (float)(delta * (double)meeting->share[n]);
        back->base[i] = b->work.max[i] == -INFINITY ? 0.0f : b->work.max[i];
        back->rest[i] = b->work.end[0].rest;
    }
}

/* Weights and gradients of logits of one strip of a block of queries, 0 where closed. */
static void strip_backward(both *b, const heed_meeting *meeting, int64_t key0, int row0,
                           heed_gather_strip *strip)
{
    gather_back *back = &b->back;
    const heed_backward_work *w = back->work;
    const heed_pipeline *own = back->own;
    float *weight = back->weight + row0 * HEED_KEYS, *dscore = back->dscore + row0 * HEED_KEYS;
    float base[HEED_STRIP], rest[HEED_STRIP], delta[HEED_STRIP];
    strip->query = back->query + row0 * b->work.at.query_stride;
    const heed_kept kept = {back->kept, HEED_STRIP * HEED_KEYS};
    heed_tile tile = heed_gather_tile(&b->work, own, meeting, key0, strip, weight, kept);
    uint8_t *open = b->work.was_open;
    for (int i = 0; i < strip->rows; i++) {
        const int64_t n = heed_gather_query(meeting, strip->first + i);
        base[i] = back->base[n];
        rest[i] = back->rest[n];
        delta[i] = back->delta[n];
        for (int j = 0; j < tile.cols; j++)
            open[i * HEED_KEYS + j] = tile.score[i * HEED_KEYS + j] != -INFINITY;
    }
    tile.dscore = dscore + strip->low;
    tile.base = base;
    const heed_form_state *normalise = &own->form[own->normalise];
    normalise->form->weights(normalise, &tile, rest);
    heed_product(w->run->plan->problem.value_dim, back->dout + row0 * w->value_stride, w->value_stride, 1,
                 b->work.keys.value_transposed + strip->low, HEED_KEY_STRIDE, tile.dscore, HEED_KEYS,
                 tile.cols);
    normalise->form->weights_backward(normalise, &tile, rest, delta);
    for (int i = 0; i < HEED_STRIP; i++)
        for (int j = 0; j < tile.cols; j++) {
            const bool closed = i >= strip->rows || !open[i * HEED_KEYS + j];
            tile.score[i * HEED_KEYS + j] = closed ? 0.0f : tile.score[i * HEED_KEYS + j];
            tile.dscore[i * HEED_KEYS + j] = closed ? 0.0f : tile.dscore[i * HEED_KEYS + j];
        }
    heed_kept from = kept;
    from.plane += strip->low;
    heed_adjust_back(own, own->modify, own->modifies, &tile, NULL, 0, from);
    if (!meeting->made_key)
        heed_adjust_back(own, own->adjust, own->adjusts, &tile, NULL, 0, from);
}

/* The products pair by pair, over pairs that count: 0 times what is not finite would be NaN. */
static void careful_products(both *b, int rows)
{
    gather_back *back = &b->back;
    const int64_t row = b->work.at.query_stride, value = back->work->value_stride;
    for (int i = 0; i < rows; i++)
        for (int j = 0; j < b->work.keys.count; j++) {
            const float w = back->weight[i * HEED_KEYS + j], d = back->dscore[i * HEED_KEYS + j];
            if (w == 0.0f && d == 0.0f)
                continue;
            heed_row_add(back->dvalue + j * value, w, back->dout + i * value, value);
            heed_row_add(back->dquery + i * row, d, b->work.keys.natural + j * row, row);
            heed_row_add(back->dkey + j * row, d, back->query + i * row, row);
        }
}

static void products(both *b, int rows)
{
    gather_back *back = &b->back;
    const int64_t row = b->work.at.query_stride, value = back->work->value_stride;
    const int cols = b->work.keys.cols, depth = (int)heed_round_up(rows, HEED_STRIP);
    if (!back->keys_finite || !b->work.keys.value_finite ||
        !heed_rows_finite(back->query, row, rows, b->work.at.dim) ||
        !heed_rows_finite(back->dout, value, rows, b->work.at.value_dim)) {
        careful_products(b, rows);
        return;
    }
    for (int i = 0; i < depth; i += HEED_STRIP)
        heed_accumulate(HEED_STRIP, cols, back->dscore + i * HEED_KEYS, HEED_KEYS, 1, b->work.keys.natural,
                        row, back->dquery + i * row, row, row);
    for (int j = 0; j < cols; j += HEED_STRIP) {
        const int keys = cols - j < HEED_STRIP ? cols - j : HEED_STRIP;
        heed_accumulate(keys, depth, back->weight + j, 1, HEED_KEYS, back->dout, value,
                        back->dvalue + j * value, value, value);
        heed_accumulate(keys, depth, back->dscore + j, 1, HEED_KEYS, back->query, row, back->dkey + j * row,
                        row, row);
    }
}

/* A block of queries of the meeting from number `first` on. */
static void meet_block(both *b, const heed_meeting *meeting, int64_t key0, int64_t first, bool *packed)
{
    gather_back *back = &b->back;
    const heed_backward_work *w = back->work;
    const heed_gathering *at = &b->work.at;
    const int64_t left = meeting->queries - first, row = at->query_stride;
    const int rows = left < HEED_BACK_BLOCK ? (int)left : HEED_BACK_BLOCK;
    bool any = false;
    memset(back->weight, 0, HEED_BACK_BLOCK * HEED_KEYS * sizeof(float));
    memset(back->dscore, 0, HEED_BACK_BLOCK * HEED_KEYS * sizeof(float));
    memset(back->query, 0, (size_t)(HEED_BACK_BLOCK * row) * sizeof(float));
    memset(back->dout, 0, (size_t)(HEED_BACK_BLOCK * w->value_stride) * sizeof(float));
    for (int i = 0; i < rows; i++) {
        const int64_t n = heed_gather_query(meeting, first + i);
        const float share = meeting->share ? meeting->share[first + i] : 1.0f;
        heed_row_add(back->dout + i * w->value_stride, share, heed_dout(w, at->batch, at->head, n),
                     at->value_dim);
    }
    for (int i = 0; i < rows; i += HEED_STRIP) {
        heed_gather_strip strip;
        if (!heed_gather_strip_of(&b->work, meeting, first + i, key0, &strip))
            continue;
        if (!*packed) {
            heed_gather_pack(&b->work, meeting, key0);
            back->keys_finite = heed_rows_finite(b->work.keys.natural, row, b->work.keys.count, at->dim);
        }
        *packed = any = true;
        strip.query = back->query + i * row;
        heed_gather_queries(&b->work, meeting, &strip);
        strip_backward(b, meeting, key0, i, &strip);
    }
    if (!any)
        return;
    memset(back->dquery, 0, (size_t)(HEED_BACK_BLOCK * row) * sizeof(float));
    products(b, rows);
    for (int i = 0; i < rows; i++)
        heed_row_add(heed_dquery(w, 0, at->batch, at->head, heed_gather_query(meeting, first + i)), 1.0f,
                     back->dquery + i * row, row);
}

/* What came back to the packed keys goes to where they came from. */
static void store_keys(both *b, const heed_meeting *meeting, int64_t key0)
{
    gather_back *back = &b->back;
    const heed_backward_work *w = back->work;
    const heed_gathering *at = &b->work.at;
    const int64_t row = at->query_stride;
    for (int j = 0; j < b->work.keys.count; j++) {
        if (meeting->made_key) {
            const int64_t made = meeting->made + key0 + j;
            heed_row_add(back->made_key + made * at->dim, 1.0f, back->dkey + j * row, at->dim);
            heed_row_add(back->made_value + made * at->value_dim, 1.0f, back->dvalue + j * w->value_stride,
                         at->value_dim);
            continue;
        }
        const int64_t key = meeting->key ? meeting->key[key0 + j] : meeting->first_key + key0 + j;
        heed_row_add(heed_dkey(w, 0, at->batch, at->kv_head, key), 1.0f, back->dkey + j * row, row);
        heed_row_add(heed_dvalue(w, 0, at->batch, at->kv_head, key), 1.0f, back->dvalue + j * w->value_stride,
                     w->value_stride);
    }
}

static void meet(const heed_gathering *at, const heed_meeting *meeting)
{
    both *b = ((heed_gather_work *)at->kernel)->back;
    find_norms(b, meeting);
    for (int64_t key0 = 0; key0 < meeting->keys; key0 += HEED_KEYS) {
        bool packed = false;
        heed_gather_place(&b->work, meeting, key0);
        memset(b->back.dkey, 0, (size_t)(HEED_KEYS * at->query_stride) * sizeof(float));
        memset(b->back.dvalue, 0, (size_t)(HEED_KEYS * b->back.work->value_stride) * sizeof(float));
        for (int64_t first = 0; first < meeting->queries; first += HEED_BACK_BLOCK)
            meet_block(b, meeting, key0, first, &packed);
        if (packed)
            store_keys(b, meeting, key0);
    }
}

static void head_backward(both *b, int batch, int head)
{
    gather_back *back = &b->back;
    const heed_backward_work *w = back->work;
    heed_gather_begin(&b->work, w->run, back->own, batch, head);
    const heed_form_state *form = &back->own->form[back->own->gathers];
    const heed_gathering *at = &b->work.at;
    memset(back->made_key, 0, (size_t)(back->made * at->dim) * sizeof(float));
    memset(back->made_value, 0, (size_t)(back->made * at->value_dim) * sizeof(float));
    heed_gather_ask(&b->work);
    if (back->made > 0 && at->queries > 0)
        form->form->gathers->made_backward(
            form, at,
            &(heed_made_gradients){.key = back->made_key,
                                   .value = back->made_value,
                                   .query = heed_dquery(w, 0, batch, head, 0),
                                   .query_stride = w->row_stride,
                                   .keys = heed_dkey(w, 0, batch, at->kv_head, 0),
                                   .key_stride = w->row_stride,
                                   .values = heed_dvalue(w, 0, batch, at->kv_head, 0),
                                   .value_stride = w->value_stride});
}

void heed_gather_backward(const heed_backward_work *work)
{
    const heed_run *run = work->run;
    const heed_problem *p = &run->plan->problem;
    const int64_t pieces = p->batch * p->kv_heads;
#pragma omp parallel num_threads(p->threads)
    {
        heed_arena arena = {.base = run->threads + (size_t)heed_thread() * run->per_thread};
        both b = take(&arena, run->plan, work->pipeline);
        *b.back.own = *work->pipeline;
        b.back.work = work;
        b.work.back = &b;
        b.work.at.meet = meet;
#pragma omp for schedule(dynamic, 1)
        for (int lane = 0; lane < work->copies.lanes; lane++) {
            heed_set_lane(work, b.back.own, lane);
            for (int64_t n = lane; n < pieces; n += work->copies.lanes) {
                const int64_t batch = n / p->kv_heads, group = n % p->kv_heads;
                for (int h = work->pipeline->group_first[group]; h < work->pipeline->group_first[group + 1];
                     h++)
                    head_backward(&b, (int)batch, work->pipeline->head[h]);
            }
        }
    }
}
