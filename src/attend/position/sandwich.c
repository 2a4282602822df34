/* Sandwich: the product of the sinusoidal embeddings of two positions, as a bias that fades with distance.
 *
 *     s(i, j) += sum_t cos(d 10000^(-2t/dims)) / (8 (h+1)/H)        d = |p(i) - k_pos(j)|,  t = 0..dims/2-1
 *
 * No parameters. The sum is the same for all heads; it is tabulated, in double precision, for the distances
 * of the problem. Chi et al.: Dissecting Transformer Length Extrapolation via the Lens of Receptive Field
 * Analysis, 2023.
 */
#include "attend/form.h"

enum {
    MOST_DIMS = 4096,
    LOWS = 128,    /* d = 128 high + low */
    MARGIN = 256,  /* distances that padding may reach beyond those of the problem */
    FAR = 1 << 17, /* from here on sums are formed anew */
};

/* Header of the table; behind it lie cos and sin of low 10000^(-2t/dims), double [LOWS][2][half], and the
 * sums, float. */
typedef struct sums {
    int half;
    uint32_t count;
} sums;

static double *low_angles(const sums *s, int64_t low)
{
    return (double *)((char *)s + 64) + low * 2 * s->half;
}

static float *tabulated(const sums *s)
{
    return (float *)low_angles(s, LOWS);
}

static sums sized(const heed_form_state *form)
{
    const int64_t positions =
        MARGIN + (form->sizes.keys > form->sizes.queries ? form->sizes.keys : form->sizes.queries);
    return (sums){heed_arg_int(form, 0) / 2, positions < FAR ? (uint32_t)positions : FAR};
}

static void angles(const sums *s, int64_t position, double *cosine, double *sine)
{
    for (int t = 0; t < s->half; t++) {
        const double angle = (double)position * pow(10000.0, -(double)t / s->half);
        cosine[t] = cos(angle);
        sine[t] = sin(angle);
    }
}

/* cos and sin of the angles of one value of high, kept from distance to distance. */
typedef struct turned {
    int64_t high;
    double cosine[MOST_DIMS / 2], sine[MOST_DIMS / 2];
} turned;

/* sum_t cos(low f_t + 128 high f_t) by the addition formula. */
static double sum_at(const sums *s, int64_t d, turned *high)
{
    if (high->high != d / LOWS) {
        high->high = d / LOWS;
        angles(s, high->high * LOWS, high->cosine, high->sine);
    }
    const double *cosine = low_angles(s, d % LOWS), *sine = cosine + s->half;
    double sum = 0.0;
#pragma omp simd reduction(+ : sum)
    for (int t = 0; t < s->half; t++)
        sum += cosine[t] * high->cosine[t] - sine[t] * high->sine[t];
    return sum;
}

static heed_status resolve(heed_form_state *form)
{
    if (!form->arg[0].given)
        form->arg[0].number = (double)form->sizes.dim;
    const int dims = heed_arg_int(form, 0);
    if (dims % 2 != 0 || dims < 2 || dims > MOST_DIMS)
        return heed_fail(HEED_INVALID, "position=sandwich: dims is %d%s, it must be even and 2 to %d", dims,
                         form->arg[0].given ? "" : ", the entries of a row", MOST_DIMS);
    return HEED_OK;
}

static size_t table_bytes(const heed_form_state *form)
{
    const sums s = sized(form);
    return 64 + 2 * LOWS * (size_t)s.half * sizeof(double) + s.count * sizeof(float);
}

static void setup(heed_form_state *form)
{
    sums *s = form->table;
    *s = sized(form);
    for (int low = 0; low < LOWS; low++)
        angles(s, low, low_angles(s, low), low_angles(s, low) + s->half);
    turned high = {.high = -1};
    for (uint32_t d = 0; d < s->count; d++)
        tabulated(s)[d] = (float)sum_at(s, d, &high);
}

static inline uint32_t size_of(int32_t distance)
{
    return distance < 0 ? 0u - (uint32_t)distance : (uint32_t)distance;
}

/* Kept apart, for it needs room on the stack. */
static __attribute__((noinline)) void far_bias(const sums *s, float factor, const int32_t *distance, int n,
                                               float *out)
{
    turned high;
    high.high = -1;
    for (int i = 0; i < n; i++)
        if (size_of(distance[i]) >= s->count)
            out[i] = factor * (float)sum_at(s, size_of(distance[i]), &high);
}

static void fade(const heed_form_state *form, int head, const int32_t *distance, int n, float *out)
{
    const sums *s = form->table;
    const float *sum = tabulated(s);
    const float factor = (float)((double)form->sizes.heads / (8.0 * (head + 1)));
    const uint32_t last = s->count - 1;
    uint32_t farthest = 0;
#pragma omp simd reduction(max : farthest)
    for (int i = 0; i < n; i++) {
        const uint32_t d = size_of(distance[i]);
        farthest = d > farthest ? d : farthest;
        out[i] = factor * sum[d < last ? d : last];
    }
    if (farthest > last)
        far_bias(s, factor, distance, n, out);
}

static const heed_arg args[] = {
    {.name = "dims",
     .kind = HEED_ARG_INT,
     .value = NAN,
     .computed = "D",
     .least = 2,
     .most = MOST_DIMS,
     .summary = "entries of the sinusoidal embedding, even; 128 as published"},
    {0},
};

const heed_form HEED_FORM(position_sandwich) = {
    .name = "sandwich",
    .stage = HEED_POSITION,
    .summary = "the product of sinusoidal embeddings as a bias that fades with distance",
    .formula = "s + sum_t cos(distance 10000^(-2t/dims)) / (8(h+1)/H)",
    .source = "Chi et al. 2023",
    .args = args,
    .resolve = resolve,
    .table_bytes = table_bytes,
    .setup = setup,
    .bias = fade,
};
