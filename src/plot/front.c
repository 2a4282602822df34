#include "plot/plot.h"

#include <math.h>

void heed_plot_front(const double *at, const double *value, bool high_is_good, int points, bool *front)
{
    for (int i = 0; i < points; i++) {
        front[i] = !isnan(value[i]) && !isnan(at[i]);
        for (int j = 0; j < points && front[i]; j++) {
            const double gain = high_is_good ? value[j] - value[i] : value[i] - value[j];
            if (at[j] <= at[i] && gain >= 0.0 && (at[j] < at[i] || gain > 0.0))
                front[i] = false;
        }
    }
}
