/* The end of decoding: pieces are put together in their order, and rows get
 * their last factor.
 *
 * A piece left sums under its own maximum m_p. Under the largest, m, they are
 * worth f_p = exp(m_p - m): sum = sum_p f_p sum_p,     out = sum_p f_p out_p
 * Weights that are no exponentials do not depend on a maximum, and their sums
 * simply add up.
 */
#include "attend/kernels/capture.h"
#include "attend/kernels/decode.h"
#include "attend/normalise/exp_down.h"
#include "tensor/rotate.h"
#include <string.h>

typedef struct ending {
    const heed_run *run;
    const heed_pipeline *pipeline;
    const heed_decode_sizes *sizes;
    const heed_decode_group *group;
    heed_decode_work *work;
    heed_row_sums sums; /* of whole rows */
    bool exponential;   /* weights are constants times exp(logit - max) */
} ending;

static float factor_of(const ending *e, int64_t piece, int r)
{
    const float max = heed_decode_sums(e->sizes, e->group, piece, HEED_SUM_MAX)[r];
    return max == e->sums.max[r] ? 1.0f : heed_exp_down(max - e->sums.max[r]);
}

static void merge_row(const ending *e, int r)
{
    const heed_row_sums *all = &e->sums;
    all->max[r] = -INFINITY;
    all->sum[r] = all->count[r] = all->moment[r] = 0.0f;
    for (int64_t p = 0; p < e->sizes->pieces; p++) {
        const float max = heed_decode_sums(e->sizes, e->group, p, HEED_SUM_MAX)[r];
        if (e->group->begun[p])
            all->max[r] = max > all->max[r] ? max : all->max[r];
    }
    const int64_t stride = e->sizes->value_stride;
    float *out = e->work->before + r * stride;
    memset(out, 0, (size_t)stride * sizeof(float));
    for (int64_t p = 0; p < e->sizes->pieces; p++) {
        if (!e->group->begun[p])
            continue;
        const float factor = factor_of(e, p, r),
                    sum = heed_decode_sums(e->sizes, e->group, p, HEED_SUM_SUM)[r];
        const float shift = heed_decode_sums(e->sizes, e->group, p, HEED_SUM_MAX)[r] - all->max[r];
        all->sum[r] += factor * sum;
        all->count[r] += heed_decode_sums(e->sizes, e->group, p, HEED_SUM_COUNT)[r];
        if (factor != 0.0f) /* otherwise the shift may be infinite */
            all->moment[r] += factor * (heed_decode_sums(e->sizes, e->group, p, HEED_SUM_MOMENT)[r] +
                                        (factor == 1.0f ? 0.0f : shift * sum));
        const float *from = heed_decode_out(e->sizes, e->group, p) + r * stride;
        const float f = e->exponential ? factor : 1.0f;
        for (int64_t i = 0; i < stride; i++)
            out[i] += f * from[i];
    }
}

/* The rows of head h: last factor, lse, what is left for backward, read stage.
 */
static void finish_head(const ending *e, int h)
{
    const heed_run *run = e->run;
    const heed_problem *problem = &run->plan->problem;
    const heed_decode_group *group = e->group;
    const int row0 = h * group->queries, head = group->query[h].head;
    const int64_t stride = e->sizes->value_stride;
    const heed_form_state *normalise = &e->pipeline->form[e->pipeline->normalise];
    const heed_row_sums sums = {
        .max = e->sums.max + row0, .sum = e->sums.sum + row0, .count = e->sums.count + row0};
    heed_row_end *end = e->work->end + row0;
    normalise->form->finish(normalise, head, group->queries, &sums, end);
    float *out = e->work->before + row0 * stride;
    for (int i = 0; i < group->queries; i++) {
        const float total = sums.sum[i];
        const float lse = total == 0.0f ? -INFINITY : (float)((double)sums.max[i] + log((double)total));
        if (isnan(lse))
            end[i].scale = end[i].norm = end[i].rest = NAN;
        for (int64_t c = 0; c < stride; c++)
            out[i * stride + c] *= end[i].scale;
        const int64_t at = (group->batch * problem->heads + head) * problem->queries + group->query0 + i;
        heed_put_row_state(run, e->pipeline, at, sums.max[i], &end[i]);
        heed_write_lse(run, group->batch, head, group->query0 + i, lse);
        if (run->extra->capture.entropy && e->exponential)
            run->extra->capture.entropy[at] = heed_entropy_of(total, e->sums.moment[row0 + i], end[i].scale);
    }
    for (int i = 0; heed_type_rotated(problem->v_type) && i < group->queries; i++)
        heed_rotate_row(out + i * stride, problem->value_dim);
    heed_write_output(run, e->pipeline, group->batch, head, group->query0, group->queries, out, stride);
}

/* One piece of a list: the weights of keys that follow one another go out together. */
static void sweep_listed(const ending *e, int h, int64_t piece, const heed_capture_target *to)
{
    const heed_decode_group *group = e->group;
    const heed_decode_list *list = group->reads;
    const int row0 = h * group->queries, head = group->query[h].head;
    const int64_t stride = e->sizes->blocks * HEED_KEYS, unit = list->choice.unit;
    const int64_t begin = heed_list_piece(list, piece) * unit, end = heed_list_piece(list, piece + 1) * unit;
    for (int64_t place = begin; place < end;) {
        const int64_t tile = (place - begin) / HEED_KEYS, border = begin + (tile + 1) * HEED_KEYS;
        const heed_key_run keys = heed_list_run(list, place, border < end ? border : end, group->keys);
        if (keys.count == 0)
            return;
        for (int r = row0; r < row0 + group->queries; r++) {
            float factor = group->later[r * e->sizes->tiles + piece * e->sizes->piece_tiles + tile];
            factor *= e->work->end[r].scale * (e->exponential ? factor_of(e, piece, r) : 1.0f);
            float *weight = group->kept + r * stride + place;
            for (int j = 0; j < keys.count; j++)
                weight[j] = heed_final_weight(weight[j], factor);
        }
        heed_capture_rows(to, group->batch, head, group->query0, keys.first, group->queries, keys.count,
                          group->kept + row0 * stride + place, stride);
        place += keys.count;
    }
}

/* What the weights of a piece, of row r, are still to be multiplied with. */
static float lacking(const ending *e, int64_t piece, int r)
{
    return e->work->end[r].scale * (e->exponential ? factor_of(e, piece, r) : 1.0f);
}

/* sums [keys] of one piece: final weights of row r, in place of what is there or added to it. */
static void sum_piece(const ending *e, int64_t piece, int r, bool first, float *sums)
{
    const heed_decode_group *group = e->group;
    const int64_t end = (piece + 1) * HEED_PIECE < group->keys ? (piece + 1) * HEED_PIECE : group->keys;
    const float lacks = group->begun[piece] ? lacking(e, piece, r) : 0.0f;
    for (int64_t key0 = piece * HEED_PIECE; key0 < end; key0 += HEED_KEYS) {
        const int64_t b = key0 / HEED_KEYS;
        const int cols = end - key0 < HEED_KEYS ? (int)(end - key0) : HEED_KEYS;
        float *restrict to = sums + key0;
        if (first)
            memset(to, 0, (size_t)cols * sizeof *to);
        if (!group->begun[piece] || !heed_decode_seen(e->sizes, group, b))
            continue;
        const float factor = group->later[r * e->sizes->tiles + b] * lacks;
        const float *weight = group->kept + (r * e->sizes->blocks + b) * HEED_KEYS;
        for (int j = 0; j < cols; j++)
            to[j] += heed_final_weight(weight[j], factor);
    }
}

/* Where nobody asks for more of head h than what keys received: kept weights are read once and left alone. */
static void sum_keys(const ending *e, int h, float *sums)
{
    const heed_decode_group *group = e->group;
    for (int64_t piece = 0; piece * HEED_PIECE < group->keys; piece++)
        for (int i = 0; i < group->queries; i++)
            sum_piece(e, piece, h * group->queries + i, group->query0 + i == 0, sums);
}

/* Final weights of head h: what was kept, times all that came later. */
static void sweep_head(const ending *e, int h)
{
    const heed_run *run = e->run;
    const heed_problem *problem = &run->plan->problem;
    const heed_capture *capture = &run->extra->capture;
    const heed_decode_group *group = e->group;
    const int row0 = h * group->queries, head = group->query[h].head, top = problem->top;
    const int64_t at = (group->batch * problem->heads + head) * problem->queries + group->query0;
    const int64_t blocks = e->sizes->blocks;
    heed_capture_target to = {.top = top, .sink_context = capture->sink_context};
    if (capture->key_sums)
        to.key_sums = capture->key_sums + (group->batch * problem->heads + head) * problem->keys;
    if (capture->top_weight && group->reads) {
        to.top_weight = capture->top_weight + at * top;
        to.top_key = capture->top_key + at * top;
    }
    if (capture->entropy && !e->exponential)
        to.entropy = capture->entropy + at;
    if (capture->sink && (!capture->sink_heads || capture->sink_heads[head]))
        to.sink = capture->sink;
    const bool sums_only = !to.entropy && !to.sink && !capture->top_weight;
    if (!group->reads && to.key_sums && sums_only) {
        sum_keys(e, h, to.key_sums);
        return;
    }
    if (to.key_sums && group->query0 == 0)
        memset(to.key_sums, 0, (size_t)group->keys * sizeof *to.key_sums);
    for (int64_t piece = 0; group->reads && piece < e->sizes->pieces; piece++)
        if (group->begun[piece])
            sweep_listed(e, h, piece, &to);
    for (int64_t key0 = 0; !group->reads && key0 < group->keys; key0 += HEED_KEYS) {
        const int64_t b = key0 / HEED_KEYS, piece = key0 / HEED_PIECE;
        if (!group->begun[piece] || !heed_decode_seen(e->sizes, group, b)) {
            for (int r = row0; capture->top_weight && r < row0 + group->queries; r++)
                memset(group->kept + (r * blocks + b) * HEED_KEYS, 0, HEED_KEYS * sizeof(float));
            continue;
        }
        const int cols = group->keys - key0 < HEED_KEYS ? (int)(group->keys - key0) : HEED_KEYS;
        for (int r = row0; r < row0 + group->queries; r++) {
            const float factor = group->later[r * e->sizes->tiles + b] * lacking(e, piece, r);
            float *weight = group->kept + (r * blocks + b) * HEED_KEYS;
            for (int j = 0; j < HEED_KEYS; j++)
                weight[j] = heed_final_weight(weight[j], factor);
        }
        heed_capture_rows(&to, group->batch, head, group->query0, key0, group->queries, cols,
                          group->kept + (row0 * blocks + b) * HEED_KEYS, blocks * HEED_KEYS);
    }
    for (int i = 0; capture->top_weight && !group->reads && i < group->queries; i++)
        heed_capture_strongest(group->kept + (row0 + i) * blocks * HEED_KEYS, group->keys, top,
                               capture->top_weight + (at + i) * top, capture->top_key + (at + i) * top);
}

void heed_decode_finish(const heed_run *run, const heed_pipeline *pipeline, const heed_decode_sizes *sizes,
                        const heed_decode_group *group, heed_decode_work *work)
{
    const heed_form *normalise = pipeline->form[pipeline->normalise].form;
    ending e = {.run = run, .pipeline = pipeline, .sizes = sizes, .group = group, .work = work};
    e.exponential = normalise->flags & HEED_KEEPS_MOMENT;
    e.sums = (heed_row_sums){.max = work->all[HEED_SUM_MAX],
                             .sum = work->all[HEED_SUM_SUM],
                             .count = work->all[HEED_SUM_COUNT],
                             .moment = work->all[HEED_SUM_MOMENT]};
    for (int r = 0; r < group->rows; r++)
        merge_row(&e, r);
    for (int h = 0; h < group->heads; h++) {
        finish_head(&e, h);
        if (group->kept)
            sweep_head(&e, h);
    }
}
