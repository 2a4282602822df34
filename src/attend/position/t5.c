/* T5's relative bias: one learned number for each head and bucket of distances.
 *
 *     s(i, j) += b[h, bucket(p(i) - k_pos(j))]
 *
 * Of n buckets (half of them a direction where both are seen) the first e = floor(n/2) hold one distance
 * each; a farther distance d falls into e + floor(log(d/e) / log(max/e) (n - e)), at most n - 1. Where
 * `where` is causal all buckets serve the past, else the upper half serves keys after the query. Raffel et
 * al.: T5, 2020.
 *
 * Distance d has left bucket e + t - 1 when (d/e)^(n-e) >= (max/e)^t, which is decided in integers, so that a
 * distance on a border never falls to the wrong side by rounding.
 */
#include "attend/form.h"

enum { BUCKETS, MAX };
enum { MOST_BUCKETS = 1024, DIGITS = MOST_BUCKETS + 2 };

/* Buckets as runs of distances: run r begins at start[r] and ends where the next begins. */
typedef struct runs {
    int count;
    int32_t start[2 * MOST_BUCKETS], bucket[2 * MOST_BUCKETS];
} runs;

/* A whole number of 32-bit digits, the lowest first. */
typedef struct whole {
    int digits;
    uint32_t digit[DIGITS];
} whole;

static void multiply(whole *x, uint32_t by, int times)
{
    for (; times > 0; times--) {
        uint64_t carry = 0;
        for (int i = 0; i < x->digits; i++) {
            carry += (uint64_t)x->digit[i] * by;
            x->digit[i] = (uint32_t)carry;
            carry >>= 32;
        }
        if (carry)
            x->digit[x->digits++] = (uint32_t)carry;
    }
}

static bool at_least(const whole *x, const whole *y)
{
    if (x->digits != y->digits)
        return x->digits > y->digits;
    for (int i = x->digits - 1; i >= 0; i--)
        if (x->digit[i] != y->digit[i])
            return x->digit[i] > y->digit[i];
    return true;
}

/* d^n >= max^t e^(n-t) */
static bool reaches(int64_t d, int n, int t, int max, int e)
{
    whole left = {1, {1}}, right = {1, {1}};
    multiply(&left, (uint32_t)d, n);
    multiply(&right, (uint32_t)max, t);
    multiply(&right, (uint32_t)e, n - t);
    return at_least(&left, &right);
}

/* The least distance in bucket b of n; n - 1 has no end. Doubles decide, but for the neighbours of a whole
 * number. */
static int64_t first_distance(int b, int n, int max)
{
    const int e = n / 2;
    if (b <= e)
        return b;
    const double border = e * pow((double)max / e, (double)(b - e) / (n - e)), near = rint(border);
    if (fabs(border - near) > 1e-12 * border)
        return (int64_t)ceil(border);
    return (int64_t)near + !reaches((int64_t)near, n - e, b - e, max, e);
}

static void add_run(runs *r, int64_t start, int64_t end, int bucket)
{
    if (start >= end)
        return; /* no whole number lies in this bucket */
    r->start[r->count] = (int32_t)start;
    r->bucket[r->count++] = bucket;
}

static int direction_buckets(const heed_form_state *form)
{
    return form->sizes.causal ? heed_arg_int(form, BUCKETS) : heed_arg_int(form, BUCKETS) / 2;
}

static heed_status resolve(heed_form_state *form)
{
    const int buckets = heed_arg_int(form, BUCKETS), max = heed_arg_int(form, MAX);
    const int exact = direction_buckets(form) / 2;
    if (buckets % 2 != 0 || buckets < 2)
        return heed_fail(HEED_INVALID,
                         "position=t5(buckets=%d): the number of buckets must be even and at least 2",
                         buckets);
    if (max <= exact)
        return heed_fail(HEED_INVALID, "position=t5(max=%d): with %d buckets max must be above %d", max,
                         buckets, exact);
    return HEED_OK;
}

static size_t table_bytes(const heed_form_state *form)
{
    (void)form;
    return sizeof(runs);
}

static void setup(heed_form_state *form)
{
    const int n = direction_buckets(form), max = heed_arg_int(form, MAX);
    const int64_t far = (int64_t)INT32_MAX + 1;
    runs *r = form->table;
    r->count = 0;
    for (int b = n - 1; b >= 0 && !form->sizes.causal; b--) { /* distances -end < d <= -start */
        const int64_t start = b ? first_distance(b, n, max) : 1;
        const int64_t end = b == n - 1 ? far + 1 : first_distance(b + 1, n, max);
        add_run(r, 1 - end, 1 - start, n + b);
    }
    for (int b = 0; b < n; b++) {
        const int64_t start = b ? first_distance(b, n, max) : form->sizes.causal ? INT32_MIN : 0;
        add_run(r, start, b == n - 1 ? far : first_distance(b + 1, n, max), b);
    }
}

/* The run that holds a distance, by halving. */
static int run_of(const runs *r, int32_t distance)
{
    int low = 0, high = r->count;
    while (high - low > 1) {
        const int middle = (low + high) / 2;
        if (r->start[middle] <= distance)
            low = middle;
        else
            high = middle;
    }
    return low;
}

/* Where distances from i on leave the run. Far from the query all lie in one, which is asked first. */
static int end_of(const runs *r, int run, const int32_t *distance, int i, int n)
{
    const int32_t first = r->start[run], last = run + 1 < r->count ? r->start[run + 1] - 1 : INT32_MAX;
    int outside = 0;
    for (int k = 0; i == 0 && k < n; k++)
        outside |= (distance[k] < first) | (distance[k] > last);
    if (i == 0 && !outside)
        return n;
    while (i < n && distance[i] >= first && distance[i] <= last)
        i++;
    return i;
}

static void look_up(const heed_form_state *form, int head, const int32_t *distance, int n, float *out)
{
    const runs *r = form->table;
    const float *b = form->param[0] + (int64_t)head * heed_arg_int(form, BUCKETS);
    for (int i = 0; i < n;) {
        const int run = run_of(r, distance[i]), end = end_of(r, run, distance, i, n);
        const float bias = b[r->bucket[run]];
        for (; i < end; i++)
            out[i] = bias;
    }
}

static void look_up_backward(const heed_form_state *form, int head, const int32_t *distance, int n,
                             const float *dbias)
{
    if (!form->grad[0])
        return;
    const runs *r = form->table;
    float *db = form->grad[0] + (int64_t)head * heed_arg_int(form, BUCKETS);
    for (int i = 0; i < n;) {
        const int run = run_of(r, distance[i]), end = end_of(r, run, distance, i, n);
        float sum = 0.0f;
#pragma omp simd reduction(+ : sum)
        for (int k = i; k < end; k++)
            sum += dbias[k];
        db[r->bucket[run]] += sum;
        i = end;
    }
}

static const heed_arg args[] = {
    [BUCKETS] = {.name = "buckets",
                 .kind = HEED_ARG_INT,
                 .value = 32,
                 .least = 2,
                 .most = MOST_BUCKETS,
                 .summary =
                     "numbers a head, even; half of them for keys after the query unless where is causal"},
    [MAX] = {.name = "max",
             .kind = HEED_ARG_INT,
             .value = 128,
             .least = 1,
             .most = 1 << 30,
             .summary = "distance from which on all share the last bucket"},
    {0},
};

static const heed_param params[] = {
    {.name = "b", .shape = "H,buckets", .summary = "bias of each head and bucket"},
    {0},
};

const heed_form HEED_FORM(position_t5) = {
    .name = "t5",
    .stage = HEED_POSITION,
    .summary = "a learned bias for each head and bucket of distances",
    .formula = "s + b[h, bucket(distance)]",
    .source = "Raffel et al. 2020",
    .args = args,
    .params = params,
    .resolve = resolve,
    .table_bytes = table_bytes,
    .setup = setup,
    .bias = look_up,
    .bias_backward = look_up_backward,
};
