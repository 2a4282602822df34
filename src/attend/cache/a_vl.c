/* A-VL: one rule for the image at the front of a prompt, another for the text behind it.
 *
 *     a_j = mean over the last `queries` queries and the heads that share the key of w_ij
 *     image, positions below `prefix`: the kept * prefix keys of largest a
 *     text: the newest `window` keys, and of the others the `heavy` ones of largest
 *           sum over the last `queries` queries i of ageing^(age of i) w_ij,     the newest query of age 0
 *
 * of equal ones the later. What was dropped does not come back; that decoding computes on a core of the image
 * only, chosen anew every few steps, is a matter of select (top_k), not of the cache. Zhang et al.: A-VL:
 * Adaptive Attention for Large Vision-Language Models, 2024; the fractions are a reading of it.
 */
#include "attend/cache/best.h"
#include "attend/cache/judge.h"

enum { PREFIX, KEPT, WINDOW, HEAVY, AGEING, QUERIES };

static int window(const heed_form_state *form)
{
    return heed_arg_int(form, QUERIES);
}

static void aged_weights(const heed_form_state *form, const heed_held *held, float *score)
{
    for (int64_t j = 0; j < held->count; j++)
        score[j] = 0.0f;
    float factor = 1.0f;
    for (int64_t i = held->queries - 1; i >= heed_first_query(held, heed_arg_int(form, QUERIES)); i--) {
        for (int h = 0; h < held->group; h++) {
            const float *weight = heed_weights_of(held, h, i);
            for (int64_t j = 0; j < held->count; j++)
                score[j] += factor * weight[j];
        }
        factor *= heed_arg_float(form, AGEING);
    }
}

static void keep_best(const float *score, int64_t count, int64_t best, uint8_t *keep, float *work)
{
    heed_score_cut cut = heed_cut_of(score, count, best, work);
    for (int64_t j = count - 1; j >= 0; j--) {
        const bool tie = score[j] == cut.score && cut.ties > 0;
        cut.ties -= tie;
        keep[j] = score[j] > cut.score || tie;
    }
}

static void choose(const heed_form_state *form, const heed_held *held, uint8_t *keep, float *work)
{
    const int64_t count = held->count, recent = heed_arg_int(form, WINDOW);
    const int64_t stored = (int64_t)(form->arg[KEPT].number * form->arg[PREFIX].number + 1e-9);
    int64_t image = 0;
    while (image < count && held->pos[image] < heed_arg_int(form, PREFIX))
        image++;
    heed_mean_weights(held, heed_arg_int(form, QUERIES), work);
    keep_best(work, image, stored, keep, work + count);
    const int64_t remote = count - image > recent ? count - image - recent : 0;
    aged_weights(form, held, work);
    keep_best(work + image, remote, heed_arg_int(form, HEAVY), keep + image, work + count);
}

static const heed_arg args[] = {
    {.name = "prefix",
     .kind = HEED_ARG_INT,
     .least = 1,
     .most = INFINITY,
     .required = true,
     .summary = "tokens of the image"},
    HEED_PART_ARG("kept", 0.5, "of the image's keys"),
    HEED_COUNT_ARG("window", 1, 128, "newest keys of the text that stay"),
    HEED_COUNT_ARG("heavy", 0, 32, "remote keys of the text"),
    HEED_PART_ARG("ageing", 0.9, "factor a query back"),
    HEED_COUNT_ARG("queries", 1, 32, "last queries that judge"),
    {0},
};

static const heed_policy policy = {.observes = HEED_OBSERVES_WEIGHTS, .window = window, .choose = choose};

const heed_form HEED_FORM(cache_a_vl) = {
    .name = "a_vl",
    .stage = HEED_CACHE,
    .summary = "one rule for the image at the front of a prompt, another for the text behind it",
    .formula = "image: kept * prefix largest mean weights; text: the newest and the heavy, aged",
    .source = "Zhang et al.: A-VL, 2024; the stored set",
    .row = "000.116",
    .args = args,
    .policy = &policy,
};
