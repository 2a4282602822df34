#include "eval/selection.h"

#include <float.h>
#include <math.h>
#include <stdlib.h>

typedef struct ranked {
    float weight;
    int64_t place;
} ranked;

/* The largest first; of equal ones the earliest. */
static int by_weight(const void *a, const void *b)
{
    const ranked *x = a, *y = b;
    if (x->weight != y->weight)
        return x->weight > y->weight ? -1 : 1;
    return x->place < y->place ? -1 : x->place > y->place;
}

/* |s - a x| */
static double apart(const double *s, double a, const float *x, int64_t width)
{
    double sum = 0.0;
    for (int64_t i = 0; i < width; i++) {
        const double difference = (s ? s[i] : 0.0) - a * (double)x[i];
        sum += difference * difference;
    }
    return sqrt(sum);
}

static double length(const double *s, int64_t width)
{
    double sum = 0.0;
    for (int64_t i = 0; i < width; i++)
        sum += s[i] * s[i];
    return sqrt(sum);
}

/* order [n]: the chosen first; s [width], zeroed */
static void measure(const float *weight, const float *token, int64_t n, int64_t width, int64_t top,
                    const ranked *order, double *s, heed_selection *result)
{
    double radius = INFINITY;
    *result = (heed_selection){.distance = 0.0};
    for (int64_t r = 0; r < top; r++) {
        const int64_t place = order[r].place;
        for (int64_t i = 0; i < width; i++)
            s[i] += (double)weight[place] * (double)token[place * width + i];
        result->held += (double)weight[place];
    }
    const double whole = length(s, width);
    for (int64_t r = top; r < n; r++) {
        const double a = (double)weight[order[r].place];
        const float *x = token + order[r].place * width;
        const double far = apart(s, a, x, width), own = apart(NULL, a, x, width);
        result->distance += far;
        result->lower += fabs(whole - own);
        result->upper += whole + own;
        radius = fmin(radius, far);
    }
    for (int64_t r = 0; r < top; r++)
        result->separable +=
            apart(s, (double)weight[order[r].place], token + order[r].place * width, width) < radius;
    result->separable /= (double)top;
}

heed_status heed_selection_measure(const float *weight, const float *token, int64_t n, int64_t width,
                                   int64_t top, heed_selection *result)
{
    if (n < 1 || width < 1 || top < 1 || top > n)
        return heed_fail(HEED_INVALID, "%lld of %lld tokens cannot be chosen: from 1 to all of them can",
                         (long long)top, (long long)n);
    ranked *order = calloc((size_t)n, sizeof *order);
    double *s = calloc((size_t)width, sizeof *s);
    const bool room = order && s;
    for (int64_t i = 0; room && i < n; i++)
        order[i] = (ranked){weight[i], i};
    if (room) {
        qsort(order, (size_t)n, sizeof *order, by_weight);
        measure(weight, token, n, width, top, order, s, result);
    }
    free(order);
    free(s);
    return room ? HEED_OK : heed_fail(HEED_NO_MEMORY, "no memory to rank %lld tokens", (long long)n);
}

/* The largest eigenvalue of diag(a) - a a^T: between the two largest weights a and b, where sum a_i^2 / (a_i
 * - x) is 1 (it rises from minus to plus infinity there). */
static double largest_eigenvalue(const float *weight, int64_t n, double first, double second)
{
    double low = second, high = first;
    for (int round = 0; round < 100 && high - low > 0.0; round++) {
        const double x = 0.5 * (low + high);
        double sum = 0.0;
        if (x <= low || x >= high)
            break;
        for (int64_t i = 0; i < n; i++)
            sum += (double)weight[i] * (double)weight[i] / ((double)weight[i] - x);
        if (sum > 1.0)
            high = x;
        else
            low = x;
    }
    return 0.5 * (low + high);
}

heed_weights_spread heed_weights_spread_of(const float *weight, int64_t n, double temperature)
{
    double first = 0.0, second = 0.0, entropy = 0.0;
    for (int64_t i = 0; i < n; i++) {
        const double a = (double)weight[i];
        if (a > first) {
            second = first;
            first = a;
        } else if (a > second) {
            second = a;
        }
        entropy -= a > 0.0 ? a * log(a) : 0.0;
    }
    return (heed_weights_spread){first, entropy, largest_eigenvalue(weight, n, first, second) / temperature};
}

void heed_weights_temper(float *weight, int64_t n, double temperature)
{
    double most = 0.0, sum = 0.0;
    for (int64_t i = 0; i < n; i++)
        if ((double)weight[i] > most)
            most = (double)weight[i];
    if (most == 0.0)
        return;
    for (int64_t i = 0; i < n; i++)
        sum += pow((double)weight[i] / most, 1.0 / temperature);
    for (int64_t i = 0; i < n; i++)
        weight[i] = (float)(pow((double)weight[i] / most, 1.0 / temperature) / sum);
}
