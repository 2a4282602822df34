/* Where queries and keys stand: how many exist, their positions, and the extent of runs of keys. */
#include "attend/place.h"
#include "attend/execute.h"
#include "base/try.h"
#include <string.h>

/* Lists of keys that may differ in number, and in positions. */
static int64_t count_lists(const heed_plan *plan)
{
    return plan->problem.batch * (heed_keys_by_kv_head(plan) ? plan->problem.kv_heads : 1);
}

static int64_t position_lists(const heed_plan *plan)
{
    const heed_problem *p = &plan->problem;
    return p->with & HEED_WITH_POSITIONS ? count_lists(plan) : p->with & HEED_WITH_START ? p->batch : 1;
}

heed_setup heed_take_setup(const heed_plan *plan, void *base)
{
    heed_setup s = {.arena = {.base = base}};
    const heed_problem *p = &plan->problem;
    const size_t B = (size_t)p->batch, N = (size_t)p->queries, M = (size_t)p->keys;
    const size_t counts = (size_t)count_lists(plan), lists = (size_t)position_lists(plan);
    const size_t kinds = heed_keys_by_kv_head(plan) ? (size_t)p->kv_heads : 1;
    const size_t subs = (M + HEED_SUB - 1) / HEED_SUB, blocks = (M + HEED_KEYS - 1) / HEED_KEYS;
    s.run = heed_arena_take(&s.arena, 1, sizeof *s.run);
    heed_pipeline *pipeline = heed_arena_take(&s.arena, (size_t)plan->pipelines, sizeof *pipeline);
    heed_inputs *inputs = heed_arena_take(&s.arena, kinds, sizeof *inputs);
    s.query_pos = heed_arena_take(&s.arena, B * N, sizeof(int32_t));
    s.key_pos = heed_arena_take(&s.arena, lists * M, sizeof(int32_t));
    s.query_count = heed_arena_take(&s.arena, B, sizeof(int32_t));
    s.key_count = heed_arena_take(&s.arena, counts, sizeof(int32_t));
    s.key_end = heed_arena_take(&s.arena, counts, sizeof(int32_t));
    s.sub_min = heed_arena_take(&s.arena, lists * subs, sizeof(int32_t));
    s.sub_max = heed_arena_take(&s.arena, lists * subs, sizeof(int32_t));
    s.block_min = heed_arena_take(&s.arena, lists * blocks, sizeof(int32_t));
    s.block_max = heed_arena_take(&s.arena, lists * blocks, sizeof(int32_t));
    if (base)
        memcpy(pipeline, plan->pipeline, (size_t)plan->pipelines * sizeof *pipeline);
    for (int i = 0; i < plan->pipelines; i++)
        for (int f = 0; f < plan->pipeline[i].forms; f++) {
            const heed_form_state *form = &plan->pipeline[i].form[f];
            if (!form->form->derived_floats)
                continue;
            float *derived =
                heed_arena_take(&s.arena, (size_t)form->form->derived_floats(form), sizeof(float));
            if (base)
                pipeline[i].form[f].derived = derived;
        }
    if (!base)
        return s;
    for (size_t g = 0; g < kinds; g++)
        inputs[g] =
            (heed_inputs){.key_end = s.key_end + g * B, .key_count = s.key_count + g * B, .keys = p->keys};
    *s.run = (heed_run){.plan = plan,
                        .pipeline = pipeline,
                        .inputs = inputs,
                        .query_pos = s.query_pos,
                        .key_pos = s.key_pos,
                        .query_count = s.query_count,
                        .key_count = s.key_count,
                        .sub_min = s.sub_min,
                        .sub_max = s.sub_max,
                        .block_min = s.block_min,
                        .block_max = s.block_max,
                        .subs = (int64_t)subs,
                        .blocks = (int64_t)blocks};
    return s;
}

static const char *list_start(const heed_tensor *tensor, int64_t b, int64_t g)
{
    const char *at = tensor->data;
    if (tensor->rank > 1 && tensor->shape[0] > 1)
        at += b * tensor->stride[0];
    if (tensor->rank > 2)
        at += g * tensor->stride[1];
    return at;
}

int32_t heed_list_entry(const heed_tensor *tensor, int64_t b, int64_t g, int64_t i)
{
    int32_t x;
    memcpy(&x, list_start(tensor, b, g) + i * tensor->stride[tensor->rank - 1], sizeof x);
    return x;
}

heed_status heed_check_list(const char *name, const heed_tensor *tensor, int64_t batch, int64_t n,
                            bool by_batch)
{
    if (tensor->type != HEED_I32)
        return heed_fail(HEED_INVALID, "%s is %s, it must be i32", name, heed_type_name(tensor->type));
    const bool flat = tensor->rank == 1 && tensor->shape[0] == n;
    const bool rows = by_batch && tensor->rank == 2 && tensor->shape[1] == n &&
                      (tensor->shape[0] == batch || tensor->shape[0] == 1);
    if (!flat && !rows)
        return heed_fail(HEED_INVALID, "%s must be [%lld]%s", name, (long long)n,
                         by_batch ? " or have the batch in front" : "");
    return HEED_OK;
}

/* An i32 tensor [batch, kv heads], or with n > 0 [batch, kv heads, n]. */
static heed_status check_by_head(const char *name, const heed_tensor *tensor, const heed_problem *p,
                                 int64_t n)
{
    const bool fits = tensor->type == HEED_I32 && tensor->rank == (n < 0 ? 2 : 3) &&
                      tensor->shape[0] == p->batch && tensor->shape[1] == p->kv_heads &&
                      (n < 0 || tensor->shape[2] == n);
    if (fits)
        return HEED_OK;
    if (n < 0)
        return heed_fail(HEED_INVALID, "%s must be i32 [%lld, %lld], since kv heads hold keys of their own",
                         name, (long long)p->batch, (long long)p->kv_heads);
    return heed_fail(HEED_INVALID, "%s must be i32 [%lld, %lld, %lld], since kv heads hold keys of their own",
                     name, (long long)p->batch, (long long)p->kv_heads, (long long)n);
}

/* Keys of each list. */
static heed_status count_keys(heed_setup *s, const heed_plan *plan, const heed_tensor *seq)
{
    const heed_problem *p = &plan->problem;
    const bool by_head = heed_keys_by_kv_head(plan);
    if (seq->data)
        TRY(by_head ? check_by_head("seq", seq, p, -1)
                    : heed_check_list("seq", seq, p->batch, p->batch, false));
    for (int64_t n = 0; n < count_lists(plan); n++) {
        const int64_t b = n % p->batch, g = n / p->batch;
        const int64_t keys = !seq->data ? p->keys : heed_list_entry(seq, b, 0, by_head ? g : b);
        if (keys < 0 || keys > p->keys)
            return heed_fail(HEED_INVALID, "seq[%lld] is %lld, it must be 0 to %lld", (long long)b,
                             (long long)keys, (long long)p->keys);
        s->key_count[n] = (int32_t)keys;
    }
    return HEED_OK;
}

/* Where the number of keys tells how many queries exist, or where they stand, all kv heads must agree. */
static heed_status check_agreement(const heed_setup *s, const heed_plan *plan, const heed_extra *extra)
{
    const heed_problem *p = &plan->problem;
    if (extra->q_seq.data && extra->q_pos.data)
        return HEED_OK;
    for (int64_t n = p->batch; n < count_lists(plan); n++)
        if (s->key_count[n] != s->key_count[n % p->batch])
            return heed_fail(HEED_INVALID,
                             "kv head %lld of batch entry %lld holds %d keys and kv head 0 %d, so q_seq and "
                             "q_pos must say how many queries there are and where",
                             (long long)(n / p->batch), (long long)(n % p->batch), s->key_count[n],
                             s->key_count[n % p->batch]);
    return HEED_OK;
}

static heed_status count_what_exists(heed_setup *s, const heed_plan *plan, const heed_extra *extra)
{
    const heed_problem *p = &plan->problem;
    const bool seq = extra->seq.data, own = extra->q_seq.data;
    if ((seq || own) && !(p->with & HEED_WITH_SEQ))
        return heed_fail(HEED_INVALID, "seq is given, but the plan was made without HEED_WITH_SEQ");
    if (own && !seq)
        return heed_fail(HEED_INVALID, "q_seq needs seq");
    TRY(count_keys(s, plan, &extra->seq));
    TRY(check_agreement(s, plan, extra));
    if (own)
        TRY(heed_check_list("q_seq", &extra->q_seq, p->batch, p->batch, false));
    for (int64_t b = 0; b < p->batch; b++) {
        int64_t queries = s->key_count[b] - (p->keys - p->queries);
        if (own) {
            queries = heed_list_entry(&extra->q_seq, 0, 0, b);
            if (queries < 0 || queries > p->queries)
                return heed_fail(HEED_INVALID, "q_seq[%lld] is %lld, it must be 0 to %lld", (long long)b,
                                 (long long)queries, (long long)p->queries);
        }
        s->query_count[b] = (int32_t)(queries < 0 ? 0 : queries > p->queries ? p->queries : queries);
    }
    return HEED_OK;
}

static heed_status beyond(const char *name, int64_t i, int64_t pos)
{
    return heed_fail(HEED_INVALID, "%s[%lld] is %lld, positions must be smaller in size than 2^30", name,
                     (long long)i, (long long)pos);
}

static int64_t start_of(const heed_extra *extra, int64_t b)
{
    return extra->start.data ? heed_list_entry(&extra->start, 0, 0, b) : 0;
}

static heed_status place_queries(heed_setup *s, const heed_plan *plan, const heed_extra *extra)
{
    const heed_problem *p = &plan->problem;
    const heed_tensor *given = &extra->q_pos;
    if (given->data)
        TRY(heed_check_list("q_pos", given, p->batch, p->queries, true));
    for (int64_t b = 0; b < p->batch; b++) {
        int64_t shift = extra->q_seq.data ? s->key_count[b] - s->query_count[b] : p->keys - p->queries;
        shift += start_of(extra, b);
        for (int64_t i = 0; i < p->queries; i++) {
            const int64_t pos = given->data ? heed_list_entry(given, b, 0, i) : i + shift;
            if (pos > HEED_POSITION_LIMIT || pos < -HEED_POSITION_LIMIT)
                return beyond("q_pos", i, pos);
            s->query_pos[b * p->queries + i] = (int32_t)pos;
        }
    }
    return HEED_OK;
}

static void bounds(const int32_t *pos, int64_t n, int32_t *least, int32_t *most)
{
    int32_t low = pos[0], high = pos[0];
    for (int64_t i = 1; i < n; i++) {
        low = pos[i] < low ? pos[i] : low;
        high = pos[i] > high ? pos[i] : high;
    }
    *least = low;
    *most = high;
}

/* Keys that some entry of the batch has; nothing is asked about others. */
static int64_t most_keys(const heed_setup *s, const heed_plan *plan)
{
    int32_t most = 0;
    for (int64_t n = 0; n < count_lists(plan); n++)
        most = s->key_count[n] > most ? s->key_count[n] : most;
    return most;
}

static const struct {
    int32_t size;
    bool block;
} runs_of_keys[] = {{HEED_SUB, false}, {HEED_KEYS, true}};

/* Key j of a list stands at position start + j. */
static void place_in_order(const heed_setup *s, int64_t list, int32_t start, int32_t keys)
{
    int32_t *pos = s->key_pos + list * s->run->plan->problem.keys;
    for (int32_t j = 0; j < keys; j++)
        pos[j] = start + j;
    for (int i = 0; i < 2; i++) {
        const bool block = runs_of_keys[i].block;
        const int32_t size = runs_of_keys[i].size;
        int32_t *least = block ? s->block_min + list * s->run->blocks : s->sub_min + list * s->run->subs;
        int32_t *most = block ? s->block_max + list * s->run->blocks : s->sub_max + list * s->run->subs;
        for (int32_t n = 0, j = 0; j < keys; n++, j += size) {
            least[n] = start + j;
            most[n] = start + (keys - j < size ? keys : j + size) - 1;
        }
    }
}

static heed_status place_by_default(heed_setup *s, const heed_plan *plan, const heed_extra *extra)
{
    const heed_problem *p = &plan->problem;
    const int64_t keys = most_keys(s, plan);
    s->run->list_by_batch = extra->start.data && p->batch > 1;
    for (int64_t b = 0; b < p->batch; b++) {
        const int64_t start = start_of(extra, b), end = start + p->keys - 1;
        if (start < -HEED_POSITION_LIMIT || end > HEED_POSITION_LIMIT)
            return beyond("k_pos", start < 0 ? 0 : p->keys - 1, start < 0 ? start : end);
        if (b == 0 || s->run->list_by_batch)
            place_in_order(s, b, (int32_t)start, (int32_t)keys);
    }
    for (int64_t n = 0; n < count_lists(plan); n++)
        s->key_end[n] = s->key_count[n] + (int32_t)start_of(extra, n % p->batch);
    return HEED_OK;
}

/* The positions given for the keys of one list that exist. */
static heed_status take_positions(heed_setup *s, const heed_tensor *given, int64_t list, int64_t b, int64_t g,
                                  int64_t keys)
{
    const heed_run *run = s->run;
    int32_t *pos = s->key_pos + list * run->plan->problem.keys;
    const bool dense = given->stride[given->rank - 1] == sizeof *pos;
    if (dense && keys > 0)
        memcpy(pos, list_start(given, b, g), (size_t)keys * sizeof *pos);
    for (int64_t j = 0; !dense && j < keys; j++)
        pos[j] = heed_list_entry(given, b, g, j);
    int32_t least = 0, most = -1;
    for (int64_t j = 0; j < keys; j += HEED_KEYS) {
        const int64_t n = list * run->blocks + j / HEED_KEYS;
        bounds(pos + j, keys - j < HEED_KEYS ? keys - j : HEED_KEYS, &s->block_min[n], &s->block_max[n]);
        least = j == 0 || s->block_min[n] < least ? s->block_min[n] : least;
        most = j == 0 || s->block_max[n] > most ? s->block_max[n] : most;
    }
    for (int64_t j = 0; j < keys; j += HEED_SUB) {
        const int64_t n = list * run->subs + j / HEED_SUB;
        bounds(pos + j, keys - j < HEED_SUB ? keys - j : HEED_SUB, &s->sub_min[n], &s->sub_max[n]);
    }
    for (int64_t j = 0; (most > HEED_POSITION_LIMIT || least < -HEED_POSITION_LIMIT) && j < keys; j++)
        if (pos[j] > HEED_POSITION_LIMIT || pos[j] < -HEED_POSITION_LIMIT)
            return beyond("k_pos", j, pos[j]);
    return HEED_OK;
}

static heed_status place_keys(heed_setup *s, const heed_plan *plan, const heed_extra *extra)
{
    const heed_problem *p = &plan->problem;
    const heed_tensor *given = &extra->k_pos;
    const bool by_head = heed_keys_by_kv_head(plan);
    if (!given->data)
        return place_by_default(s, plan, extra);
    TRY(by_head ? check_by_head("k_pos", given, p, p->keys)
                : heed_check_list("k_pos", given, p->batch, p->keys, true));
    s->run->list_by_batch = true;
    s->run->list_by_head = by_head;
    for (int64_t n = 0; n < count_lists(plan); n++) {
        const int64_t keys = s->key_count[n];
        TRY(take_positions(s, given, n, n % p->batch, n / p->batch, keys));
        int32_t most = -1;
        for (int64_t b = 0; b * HEED_KEYS < keys; b++) {
            const int32_t here = s->block_max[n * s->run->blocks + b];
            most = b == 0 || here > most ? here : most;
        }
        s->key_end[n] = most + 1;
    }
    return HEED_OK;
}

static heed_status check_start(const heed_plan *plan, const heed_extra *extra)
{
    if (!extra->start.data)
        return HEED_OK;
    if (!(plan->problem.with & HEED_WITH_START))
        return heed_fail(HEED_INVALID, "start is given, but the plan was made without HEED_WITH_START");
    return heed_check_list("start", &extra->start, plan->problem.batch, plan->problem.batch, false);
}

heed_status heed_place(heed_setup *setup, const heed_extra *extra)
{
    const heed_plan *plan = setup->run->plan;
    if ((extra->q_pos.data || extra->k_pos.data) && !(plan->problem.with & HEED_WITH_POSITIONS))
        return heed_fail(HEED_INVALID,
                         "positions are given, but the plan was made without HEED_WITH_POSITIONS");
    TRY(check_start(plan, extra));
    setup->run->default_positions = !extra->q_pos.data && !extra->k_pos.data;
    TRY(count_what_exists(setup, plan, extra));
    TRY(place_queries(setup, plan, extra));
    return place_keys(setup, plan, extra);
}
