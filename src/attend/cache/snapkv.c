/* SnapKV: keys by the weights that the last queries give them, smoothed so that neighbours stay together.
 *
 *     a_j     = mean over the last `window` queries i and the heads h that share the key of w[h][i][j]
 *     score_j = pool of a over the `kernel` keys around j,     among the keys before the window
 *
 * The keys of the window itself stay. Past the first and the last of those keys the average counts zeros. Li
 * et al.: SnapKV: LLM Knows What You are Looking for Before Generation, 2024.
 */
#include "attend/cache/judge.h"

enum { WINDOW = HEED_OWN_ARG, KERNEL, POOL };
enum { AVERAGE, MAX };

static int window(const heed_form_state *form)
{
    return heed_arg_int(form, WINDOW);
}

static void ends(const heed_form_state *form, int64_t budget, int64_t *first, int64_t *recent)
{
    (void)budget;
    *first = 0;
    *recent = heed_arg_int(form, WINDOW);
}

static float pooled(const float *weight, int64_t count, int64_t j, int64_t kernel, int pool)
{
    const int64_t from = j - kernel / 2 > 0 ? j - kernel / 2 : 0;
    const int64_t end = j - kernel / 2 + kernel < count ? j - kernel / 2 + kernel : count;
    float sum = 0.0f, max = 0.0f;
    for (int64_t i = from; i < end; i++) {
        sum += weight[i];
        max = weight[i] > max ? weight[i] : max;
    }
    return pool == MAX ? max : sum / (float)kernel;
}

static void judge(const heed_form_state *form, const heed_held *held, float *score, float *work)
{
    const int64_t last = heed_arg_int(form, WINDOW), kernel = heed_arg_int(form, KERNEL);
    const int64_t before = held->count > last ? held->count - last : 0;
    heed_mean_weights(held, last, work);
    for (int64_t j = 0; j < held->count; j++)
        score[j] = j < before ? pooled(work, before, j, kernel, heed_arg_int(form, POOL)) : work[j];
}

static const heed_option pools[] = {{.name = "average"}, {.name = "max"}, {0}};

static const heed_arg args[] = {
    HEED_BUDGET_ARGS,
    HEED_COUNT_ARG("window", 1, 32, "last queries that judge, whose keys stay"),
    {.name = "kernel", .kind = HEED_ARG_INT, .value = 7, .least = 1, .most = 1023, .summary = "keys pooled"},
    {.name = "pool", .kind = HEED_ARG_CHOICE, .value = AVERAGE, .options = pools, .summary = "how"},
    {0},
};

static const heed_policy policy = {
    .observes = HEED_OBSERVES_WEIGHTS, .window = window, .ends = ends, .judge = judge};

const heed_form HEED_FORM(cache_snapkv) = {
    .name = "snapkv",
    .stage = HEED_CACHE,
    .summary = "keys by the smoothed weights that the last queries give them",
    .formula = "score = pool of the mean of w_ij over the last `window` queries i",
    .source = "Li et al.: SnapKV, 2024",
    .args = args,
    .policy = &policy,
};
