/* Dropped keys go into the kept key most like them.
 *
 *     each dropped key i into c = argmax cos(k_i, k_c) over the `reach` kept keys on either side, of equal
 * ones the first, if that is at least `least`; else it is lost k_c := sum w k / sum w, v_c := sum w v / sum w
 * over c and those that go into it by=mass:       w = m by=similarity: w_i = m_i exp(cos(k_i, k_c)), w_c =
 * m_c e                                          (D2O) by=distance:   w_i = m_i exp(-||k_i - k_c||^2 / (2
 * s^2)), w_c = m_c, s^2 the mean square distance  (KVMerger) m_c := sum m, with counted=no m_c stays
 *
 * m: how many keys each stands for; published methods do not count. Wan et al.: D2O: Dynamic Discriminative
 * Operations, 2024, whose threshold follows the text; Wang et al.: Model Tells You Where to Merge, 2024.
 */
#include "attend/cache/fold.h"

enum { LEAST, BY, REACH, COUNTED };
enum { MASS, SIMILARITY, DISTANCE };
enum { YES, NO };

static float length(const float *x, int64_t n)
{
    const float norm = sqrtf(heed_row_square(x, n));
    return norm > 1e-12f ? norm : 1e-12f;
}

static float square_distance(const float *x, const float *y, int64_t n)
{
    float sum = 0.0f;
#pragma omp simd reduction(+ : sum)
    for (int64_t d = 0; d < n; d++)
        sum += (x[d] - y[d]) * (x[d] - y[d]);
    return sum;
}

/* Of the kept keys listed in kept[from..end), the most similar to key j. */
static int64_t most_similar(const heed_folding *f, const float *norm, const int32_t *kept, int64_t from,
                            int64_t end, int64_t j, float *similarity)
{
    const int64_t dim = f->held->dim;
    int64_t best = -1;
    *similarity = -INFINITY;
    for (int64_t i = from; i < end; i++) {
        const int64_t c = kept[i];
        const float cosine = heed_row_dot(f->key + j * dim, f->key + c * dim, dim) / (norm[j] * norm[c]);
        if (cosine > *similarity) {
            *similarity = cosine;
            best = c;
        }
    }
    return best;
}

/* goal[j]: where dropped key j goes, -1 for nowhere; similarity[j]. */
static void find_goals(const heed_form_state *form, const heed_folding *f, int32_t *goal, float *similarity,
                       float *norm, int32_t *kept)
{
    const heed_held *held = f->held;
    const int64_t reach = heed_arg_int(form, REACH);
    int64_t n = 0, before = 0;
    for (int64_t j = 0; j < held->count; j++) {
        norm[j] = length(f->key + j * held->dim, held->dim);
        if (f->keep[j])
            kept[n++] = (int32_t)j;
    }
    for (int64_t j = 0; j < held->count; j++) {
        goal[j] = -1;
        before += f->keep[j];
        if (f->keep[j])
            continue;
        const int64_t from = before > reach ? before - reach : 0,
                      end = n - before > reach ? before + reach : n;
        const int64_t best = most_similar(f, norm, kept, from, end, j, &similarity[j]);
        if (similarity[j] >= heed_arg_float(form, LEAST))
            goal[j] = (int32_t)best;
    }
}

static float mean_square_distance(const heed_folding *f, const int32_t *goal)
{
    const int64_t dim = f->held->dim;
    float sum = 0.0f;
    int64_t n = 0;
    for (int64_t j = 0; j < f->held->count; j++)
        if (goal[j] >= 0) {
            sum += square_distance(f->key + j * dim, f->key + goal[j] * dim, dim);
            n++;
        }
    return sum > 0.0f ? sum / (float)n : 1.0f;
}

static void merge(const heed_form_state *form, const heed_folding *f)
{
    const heed_held *held = f->held;
    const int by = heed_arg_int(form, BY);
    int32_t *goal = (int32_t *)(void *)f->work, *kept = goal + held->count;
    float *weight = f->work + 2 * held->count, *norm = f->work + 3 * held->count;
    find_goals(form, f, goal, weight, norm, kept);
    const float spread = by == DISTANCE ? mean_square_distance(f, goal) : 1.0f;
    for (int64_t j = 0; j < held->count; j++) {
        if (f->keep[j])
            weight[j] = f->mass[j] * (by == SIMILARITY ? heed_exp(1.0f) : 1.0f);
        else if (goal[j] >= 0 && by == SIMILARITY)
            weight[j] = f->mass[j] * heed_exp(weight[j]);
        else if (goal[j] >= 0)
            weight[j] = f->mass[j];
        if (goal[j] >= 0 && by == DISTANCE)
            weight[j] *=
                heed_exp(-square_distance(f->key + j * held->dim, f->key + goal[j] * held->dim, held->dim) /
                         (2.0f * spread));
    }
    for (int64_t j = 0; j < held->count; j++) { /* weight of a kept key: the sum so far */
        if (goal[j] < 0)
            continue;
        const int64_t c = goal[j];
        const float sum = weight[c] + weight[j];
        heed_scale_row(f, c, weight[c] / sum);
        heed_add_row(f, c, j, weight[j] / sum);
        weight[c] = sum;
        if (heed_arg_int(form, COUNTED) == YES)
            f->mass[c] += f->mass[j];
    }
}

static const heed_option ways[] = {{.name = "mass"}, {.name = "similarity"}, {.name = "distance"}, {0}};
static const heed_option yes_no[] = {{.name = "yes"}, {.name = "no"}, {0}};

static const heed_arg args[] = {
    {.name = "least", .value = -1, .least = -1, .most = 1, .summary = "cosine below which a key is lost"},
    {.name = "by", .kind = HEED_ARG_CHOICE, .value = MASS, .options = ways, .summary = "weights of the mean"},
    {.name = "reach",
     .kind = HEED_ARG_INT,
     .value = 256,
     .least = 1,
     .most = INFINITY,
     .summary = "kept keys"},
    {.name = "counted", .kind = HEED_ARG_CHOICE, .value = YES, .options = yes_no, .summary = "masses add up"},
    {0},
};

static const heed_policy policy = {.merge = merge};

const heed_form HEED_FORM(cache_nearest) = {
    .name = "nearest",
    .stage = HEED_CACHE,
    .summary = "dropped keys go into the kept key most like them",
    .formula = "into argmax cos(k_i, k_c): weighted means of k and v, masses summed",
    .source = "Wan et al.: D2O, 2024; Wang et al.: Model Tells You Where to Merge, 2024",
    .args = args,
    .policy = &policy,
};
