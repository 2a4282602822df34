#include "plot/axis.h"

#include <math.h>

double heed_on_axis(const heed_axis *a, double x)
{
    const double y = !a->powers ? x : x > 0.0 ? log10(x) : a->low;
    return (fmin(fmax(y, a->low), a->high) - a->low) / (a->high - a->low);
}

/* Shorter ones might hold none or one of the round values, or many with the same number. */
static double least_length(const heed_axis *a)
{
    return a->powers ? 0.4 : fmax(2e-3, 0.02 * fmax(fabs(a->low), fabs(a->high)));
}

heed_axis heed_axis_for(const double *value, int points, bool powers)
{
    heed_axis a = {INFINITY, -INFINITY, powers};
    for (int i = 0; i < points; i++) {
        if (isnan(value[i]) || (powers && !(value[i] > 0.0)))
            continue;
        const double y = powers ? log10(value[i]) : value[i];
        a.low = fmin(a.low, y);
        a.high = fmax(a.high, y);
    }
    if (!(a.low <= a.high))
        a.low = a.high = 0.0;
    const double edge = fmax(0.08 * (a.high - a.low), 0.5 * (least_length(&a) - (a.high - a.low)));
    a.low -= edge;
    a.high += edge;
    return a;
}

int heed_axis_ticks(const heed_axis *a, double *tick)
{
    static const double coarse[] = {1.0, 2.0, 5.0}, fine[] = {1.0, 1.5, 2.0, 3.0, 5.0, 7.0};
    int count = 0;
    if (!a->powers) {
        double step = pow(10.0, floor(log10(a->high - a->low)) - 1.0);
        for (int i = 0; (a->high - a->low) / step > 6.0; i++)
            step *= i % 3 == 1 ? 2.5 : 2.0;
        for (double x = ceil(a->low / step) * step; x <= a->high && count < HEED_TICKS; x += step)
            tick[count++] = fabs(x) < 1e-9 * step ? 0.0 : x;
        return count;
    }
    const double range = a->high - a->low, *const steps = range < 1.0 ? fine : coarse;
    const int between = range < 1.0 ? 6 : range < 2.0 ? 3 : 1, every = (int)ceil(range / HEED_TICKS);
    for (int power = (int)floor(a->low); power <= (int)ceil(a->high); power += every)
        for (int i = 0; i < between && count < HEED_TICKS; i++) {
            const double x = steps[i] * pow(10.0, power);
            if (log10(x) >= a->low && log10(x) <= a->high)
                tick[count++] = x;
        }
    return count;
}
