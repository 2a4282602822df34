/* For builds without cairo (HEED_PICTURES=OFF). */
#include "plot/plot.h"

#ifndef HEED_HAVE_PICTURES

static heed_status refuse(const char *path)
{
    return heed_fail(HEED_UNSUPPORTED, "%s: this heed was built without pictures (HEED_PICTURES=OFF)", path);
}

heed_status heed_plot_read(const char *path, int channels, heed_plot_pixels *pixels)
{
    *pixels = (heed_plot_pixels){.channels = channels};
    return refuse(path);
}

heed_status heed_plot_draw_matrix(const char *path, const heed_plot_matrix *plot)
{
    (void)plot;
    return refuse(path);
}

heed_status heed_plot_draw_grid(const char *path, const heed_plot_grid *plot)
{
    (void)plot;
    return refuse(path);
}

heed_status heed_plot_draw_text(const char *path, const heed_plot_text *plot)
{
    (void)plot;
    return refuse(path);
}

heed_status heed_plot_draw_points(const char *path, const heed_plot_points *plot)
{
    (void)plot;
    return refuse(path);
}

heed_status heed_plot_draw_tables(const char *path, const heed_plot_tables *plot)
{
    (void)plot;
    return refuse(path);
}

heed_status heed_plot_draw_curves(const char *path, const heed_plot_curves *plot)
{
    (void)plot;
    return refuse(path);
}

heed_status heed_plot_draw_bars(const char *path, const heed_plot_bars *plot)
{
    (void)plot;
    return refuse(path);
}

#else
typedef int heed_no_pictures; /* ISO C wants something in a file */
#endif
