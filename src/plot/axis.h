/* Where values lie on an axis, and its round numbers. */
#ifndef HEED_PLOT_AXIS_H
#define HEED_PLOT_AXIS_H

#include <stdbool.h>

enum { HEED_TICKS = 8 };

/* An axis: from value to 0..1. */
typedef struct heed_axis {
    double low, high; /* logarithms where `powers` */
    bool powers;
} heed_axis;

double heed_on_axis(const heed_axis *a, double x);
/* Room for all values, and a little more. */
heed_axis heed_axis_for(const double *value, int points, bool powers);
/* Round values inside the axis, at least two; as many as fit. Returns how many. */
int heed_axis_ticks(const heed_axis *a, double *tick);

#endif
