#include "support/layer.h"
#include "base/cpu.h"
#include "support/random.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static void *array(int64_t count, size_t size)
{
    void *made = calloc((size_t)(count > 0 ? count : 1), size);
    assert_non_null(made);
    return made;
}

static float number(test_random *random, bool ties)
{
    const double x = random_normal(random);
    return (float)(ties ? round(2 * x) / 2 : x);
}

static float *numbers(test_random *random, int64_t count, bool ties)
{
    float *made = array(count, sizeof *made);
    for (int64_t i = 0; i < count; i++)
        made[i] = number(random, ties);
    return made;
}

void layer_place(void *context, int head, const float *in, const int32_t *pos, int64_t count, float *out)
{
    const layer *l = context;
    const int64_t dim = l->shape.dim, half = dim / 2;
    const double scale = 1 / sqrt((double)dim);
    (void)head;
    for (int64_t i = 0; i < count; i++)
        for (int64_t d = 0; d < half; d++) {
            const double angle = pos[i] * pow(8, -2.0 * (double)d / (double)dim);
            const double x = in[i * dim + d], y = in[i * dim + d + half];
            out[i * dim + d] = (float)(scale * (x * cos(angle) - y * sin(angle)));
            out[i * dim + d + half] = (float)(scale * (x * sin(angle) + y * cos(angle)));
        }
}

static void weigh(layer *l, int g)
{
    const heed_held *held = &l->held[g];
    for (int64_t row = 0; row < held->group * held->queries; row++) {
        float *weight = l->weight[g] + row * held->count;
        const int32_t at = held->query_pos[row % held->queries];
        double sum = 0;
        for (int pass = 0; pass < 2; pass++)
            for (int64_t j = 0; j < held->count; j++) {
                double s = 0;
                for (int64_t d = 0; d < held->dim; d++)
                    s += (double)held->compared[row * held->dim + d] * held->key[j * held->dim + d];
                const bool seen = held->pos[j] <= at && at - held->pos[j] < held->visible;
                const double e = seen ? held->mass[j] * exp(s) : 0;
                if (pass)
                    weight[j] = (float)(e / (sum > 0 ? sum : 1));
                else
                    sum += e;
            }
    }
}

static void fill_head(layer *l, int g, test_random *random)
{
    const layer_shape *s = &l->shape;
    const int64_t count = s->count[g];
    l->pos[g] = array(count, sizeof(int32_t));
    l->token[g] = array(count, sizeof(int32_t));
    l->kind[g] = array(count, 1);
    l->keep[g] = array(count, 1);
    l->key[g] = numbers(random, count * s->dim, s->ties);
    test_random apart = {(uint64_t)(count * 64 + g)}; /* what else is drawn does not depend on these */
    l->bare[g] = numbers(&apart, count * s->dim, s->ties);
    l->value[g] = numbers(random, count * s->value_dim, s->ties);
    l->mass[g] = array(count, sizeof(float));
    l->query[g] = numbers(random, s->group * s->queries * s->dim, s->ties);
    l->compared[g] = array(s->group * s->queries * s->dim, sizeof(float));
    l->weight[g] = array(s->group * s->queries * count, sizeof(float));
    for (int64_t j = 0; j < count; j++) {
        l->pos[g][j] = (int32_t)((j ? l->pos[g][j - 1] + 1 : 0) + random_whole(random, 0, s->gap - 1));
        l->token[g][j] = (int32_t)random_whole(random, 0, 99);
        l->kind[g][j] = (uint8_t)(l->token[g][j] < 8    ? HEED_TOKEN_SPECIAL
                                  : l->token[g][j] < 25 ? HEED_TOKEN_PUNCTUATION
                                                        : 0);
        l->mass[g][j] = s->merged && random_whole(random, 0, 3) == 0 ? (float)random_whole(random, 2, 5) : 1;
        if (s->ties && j >= 3 && random_whole(random, 0, 4) == 0) {
            memcpy(l->key[g] + j * s->dim, l->key[g] + (j - 3) * s->dim, (size_t)s->dim * sizeof(float));
            memcpy(l->bare[g] + j * s->dim, l->bare[g] + (j - 3) * s->dim, (size_t)s->dim * sizeof(float));
            memcpy(l->value[g] + j * s->value_dim, l->value[g] + (j - 3) * s->value_dim,
                   (size_t)s->value_dim * sizeof(float));
        }
    }
}

layer *layer_new(const layer_shape *shape, uint64_t seed)
{
    layer *l = array(1, sizeof *l);
    test_random random = {seed};
    l->shape = *shape;
    int64_t read = 1;
    for (int g = 0; g < shape->kv_heads; g++) {
        fill_head(l, g, &random);
        const int64_t count = shape->count[g];
        read = count && l->pos[g][count - 1] + 1 > read ? l->pos[g][count - 1] + 1 : read;
    }
    read = read > shape->queries ? read : shape->queries;
    l->query_pos = array(shape->queries, sizeof(int32_t));
    for (int64_t i = 0; i < shape->queries; i++)
        l->query_pos[i] = (int32_t)(read - shape->queries + i);
    for (int g = 0; g < shape->kv_heads; g++) {
        l->held[g] = (heed_held){.layer = shape->layer,
                                 .layers = shape->layers ? shape->layers : 1,
                                 .kv_head = g,
                                 .kv_heads = shape->kv_heads,
                                 .group = shape->group,
                                 .dim = shape->dim,
                                 .value_dim = shape->value_dim,
                                 .read = read,
                                 .visible = shape->visible && shape->visible < read ? shape->visible : read,
                                 .count = shape->count[g],
                                 .pos = l->pos[g],
                                 .token = l->token[g],
                                 .token_kind = l->kind[g],
                                 .key = l->key[g],
                                 .bare = l->bare[g],
                                 .value = l->value[g],
                                 .mass = l->mass[g],
                                 .queries = shape->queries,
                                 .query_pos = l->query_pos,
                                 .query = l->query[g],
                                 .compared = l->compared[g],
                                 .weight = l->weight[g],
                                 .place = layer_place,
                                 .place_context = l};
        for (int h = 0; h < shape->group; h++)
            layer_place(l, h, l->query[g] + h * shape->queries * shape->dim, l->query_pos, shape->queries,
                        l->compared[g] + h * shape->queries * shape->dim);
        weigh(l, g);
    }
    return l;
}

void layer_free(layer *l)
{
    for (int g = 0; g < LAYER_HEADS; g++) {
        void *list[] = {l->pos[g],   l->token[g], l->kind[g],  l->keep[g],  l->key[g],      l->bare[g],
                        l->value[g], l->mass[g],  l->state[g], l->query[g], l->compared[g], l->weight[g]};
        for (size_t i = 0; i < sizeof list / sizeof *list; i++)
            free(list[i]);
    }
    free(l->query_pos);
    free(l);
}

heed_status layer_chain(layer *l, const char *text, const heed_form *const *own)
{
    const layer_shape *s = &l->shape;
    const heed_sizes sizes = {.batch = 1,
                              .heads = s->kv_heads * s->group,
                              .kv_heads = s->kv_heads,
                              .dim = s->dim,
                              .value_dim = s->value_dim};
    char clause[512];
    heed_spec *spec = NULL;
    heed_isa isa = HEED_ISA_PORTABLE;
    assert_int_equal(heed_isa_resolve(HEED_ISA_AUTO, &isa), HEED_OK);
    assert_true(snprintf(clause, sizeof clause, "cache=%s", text) < (int)sizeof clause);
    heed_status status = heed_spec_parse(&spec, clause, own);
    for (int g = 0; !status && g < s->kv_heads; g++) {
        int root[HEED_STAGES];
        heed_spec_clauses(spec, s->layer, g * s->group, root);
        status = heed_chain_of_spec(&l->chain[g], spec, root[HEED_CACHE], isa, &sizes, s->layer,
                                    s->layers ? s->layers : 1);
        if (status)
            break;
        const int64_t stride = l->chain[g].state_floats;
        free(l->state[g]);
        l->state[g] = array(s->count[g] * stride, sizeof(float));
        l->held[g].state = l->state[g];
        l->held[g].state_stride = stride;
    }
    heed_spec_free(spec);
    return status;
}

heed_seen layer_see(const layer *l, int g, int64_t queries, uint64_t seed)
{
    const heed_held *held = &l->held[g];
    const int top = l->chain[g].top;
    const int64_t rows = held->group * queries;
    test_random random = {seed + (uint64_t)g};
    float *sum = array(held->count, sizeof *sum);
    int32_t *key = array(rows * top, sizeof *key);
    float *weight = array(rows * top, sizeof *weight);
    for (int64_t i = 0; i < held->group * held->count; i++)
        sum[i % held->count] += (float)random_whole(&random, 0, 40) / 8;
    for (int64_t i = 0; i < rows * top; i++) {
        key[i] = (int32_t)random_whole(&random, -1, held->count - 1);
        weight[i] = (float)random_uniform(&random);
    }
    return (heed_seen){.group = held->group,
                       .queries = queries,
                       .count = held->count,
                       .first = held->read - queries,
                       .pos = held->pos,
                       .sum = sum,
                       .top = top,
                       .top_key = key,
                       .top_weight = weight};
}

void layer_unsee(heed_seen *seen)
{
    free((void *)(uintptr_t)seen->sum);
    free((void *)(uintptr_t)seen->top_key);
    free((void *)(uintptr_t)seen->top_weight);
}

void layer_observe(layer *l, int64_t queries, uint64_t seed)
{
    for (int g = 0; g < l->shape.kv_heads; g++) {
        heed_seen seen = layer_see(l, g, queries, seed);
        heed_chain_observe(&l->chain[g], &seen, l->state[g]);
        layer_unsee(&seen);
    }
}

void layer_apply(layer *l)
{
    const heed_chain *chain[LAYER_HEADS];
    heed_held largest = l->held[0];
    size_t bytes = 0;
    for (int g = 0; g < l->shape.kv_heads; g++) {
        chain[g] = &l->chain[g];
        memset(l->keep[g], 7, (size_t)l->shape.count[g]);
        largest.count = l->shape.count[g] > largest.count ? l->shape.count[g] : largest.count;
    }
    for (int g = 0; g < l->shape.kv_heads; g++) {
        const size_t own = heed_keep_work_bytes(chain[g], l->shape.kv_heads, &largest);
        bytes = own > bytes ? own : bytes;
    }
    char *work = malloc(bytes);
    assert_non_null(work);
    memset(work, 0x5a, bytes);
    const heed_keep keep = {.chain = chain,
                            .held = l->held,
                            .kv_heads = l->shape.kv_heads,
                            .key = l->key,
                            .value = l->value,
                            .mass = l->mass,
                            .keep = l->keep,
                            .changed = l->changed,
                            .work = work};
    heed_keep_apply(&keep);
    free(work);
}

void layer_run(layer *l, const char *text)
{
    if (layer_chain(l, text, NULL))
        fail_msg("%s: %s", text, heed_message());
    layer_apply(l);
}

float *layer_scores(layer *l, int g)
{
    const heed_form_state *form = &l->chain[g].form[0];
    const heed_policy *policy = form->form->policy;
    heed_held largest = l->held[g], seen[LAYER_HEADS];
    for (int other = 0; other < l->shape.kv_heads; other++) {
        seen[other] = l->held[other];
        seen[other].beside = seen;
        seen[other].besides = l->shape.kv_heads;
        largest.count = seen[other].count > largest.count ? seen[other].count : largest.count;
    }
    float *score = array(l->held[g].count, sizeof *score);
    const int64_t own = policy->work_floats ? policy->work_floats(form, &largest) : 0;
    float *work = array(4 * largest.count + own, sizeof *work);
    policy->judge(form, &seen[g], score, work);
    free(work);
    return score;
}

int64_t layer_kept(const layer *l, int g)
{
    int64_t kept = 0;
    for (int64_t j = 0; j < l->shape.count[g]; j++) {
        assert_true(l->keep[g][j] <= 1);
        kept += l->keep[g][j];
    }
    return kept;
}

void layer_check_best(const layer *l, int g, const double *score, int64_t budget, int64_t first,
                      int64_t recent, double slack)
{
    const int64_t count = l->shape.count[g];
    const uint8_t *keep = l->keep[g];
    budget = budget < count ? budget : count;
    first = first < budget ? first : budget;
    recent = recent < budget - first ? recent : budget - first;
    assert_int_equal(layer_kept(l, g), budget);
    for (int64_t i = 0; i < count; i++) {
        if (i < first || i >= count - recent)
            assert_true(keep[i]);
        for (int64_t j = first; keep[i] && i >= first && i < count - recent && j < count - recent; j++) {
            if (keep[j])
                continue;
            if (score[j] > score[i] + slack || (score[j] == score[i] && j > i))
                fail_msg("head %d: key %lld (%.9g) stays and key %lld (%.9g) goes", g, (long long)i, score[i],
                         (long long)j, score[j]);
        }
    }
}
