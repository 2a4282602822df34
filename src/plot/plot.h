/* Pictures of attention: one head as a matrix, all heads as thumbnails, a text coloured by what it received.
 * The ending of the path, .png or .svg, says which kind of file. It appears whole or not at all.
 *
 * Maps of any size come in tiles, from several threads, into a pool that keeps as many cells as a picture has
 * room for.
 */
#ifndef HEED_PLOT_PLOT_H
#define HEED_PLOT_PLOT_H

#include <heed/attend.h>

/* Maps [queries, keys] of weights, pooled to at most `side` cells a side: of each cell the largest weight (0
 * at least) and the mean. */
typedef struct heed_plot_pool heed_plot_pool;

enum { HEED_PLOT_SIDE = 800, HEED_PLOT_THUMBNAIL = 96 }; /* for one matrix; for each of many */

heed_status heed_plot_pool_create(heed_plot_pool **pool, int64_t maps, int64_t queries, int64_t keys,
                                  int64_t side);
void heed_plot_pool_free(heed_plot_pool *pool);
/* Adds a tile to a map; batch and head of the tile are not looked at. Threads may call it at once; each pair
 * of query and key comes once at most. Gives the same numbers in any order. */
void heed_plot_pool_add(heed_plot_pool *pool, int64_t map, const heed_weights_tile *tile);
/* All of a map at once, [queries, keys]. */
void heed_plot_pool_add_matrix(heed_plot_pool *pool, int64_t map, const float *weights);
void heed_plot_pool_sizes(const heed_plot_pool *pool, int64_t *queries, int64_t *keys);
int64_t heed_plot_pool_rows(const heed_plot_pool *pool);
int64_t heed_plot_pool_cols(const heed_plot_pool *pool);
int64_t heed_plot_pool_step(const heed_plot_pool *pool); /* weights a side of a cell; 1: nothing was pooled */
float heed_plot_pool_most(const heed_plot_pool *pool, int64_t map, int64_t row, int64_t col);
float heed_plot_pool_mean(const heed_plot_pool *pool, int64_t map, int64_t row, int64_t col);

/* The bytes of a token. What cannot be shown (control characters, broken UTF-8, characters that no font has)
 * is drawn as a sign or a box with its number. */
typedef struct heed_plot_token {
    const char *text;
    size_t size;
} heed_plot_token;

/* One head. Two matrices, largest and mean, when it is pooled. */
typedef struct heed_plot_matrix {
    const char *title, *subtitle; /* UTF-8; may be NULL */
    const heed_plot_pool *pool;
    int64_t map;
    const heed_plot_token *query, *key;  /* [queries], [keys]; NULL: positions as numbers */
    int64_t query0, key0;                /* positions of the first ones */
    const char *down, *across, *measure; /* what rows, columns and values are; NULL: queries, keys, weights */
} heed_plot_matrix;
heed_status heed_plot_draw_matrix(const char *path, const heed_plot_matrix *plot);

/* Map l heads + h is that of layer[l] and head[h]. */
typedef struct heed_plot_grid {
    const char *title, *subtitle;
    const heed_plot_pool *pool;
    int64_t layers, heads;
    const int64_t *layer, *head; /* their numbers */
} heed_plot_grid;
heed_status heed_plot_draw_grid(const char *path, const heed_plot_grid *plot);

/* A text, each token on a ground coloured by its value, which is 0 at least. */
typedef struct heed_plot_text {
    const char *title, *subtitle;
    const char *measure; /* what the values are, for the colour bar: "attention received" */
    const heed_plot_token *token;
    const float *value;
    int64_t tokens;
} heed_plot_text;
heed_status heed_plot_draw_text(const char *path, const heed_plot_text *plot);

/* Points in one or several panels that share them: a measure against memory, say. The points that no other
 * one beats in both are joined: the Pareto front. */
typedef struct heed_plot_panel {
    const char *measure; /* the axis that goes up */
    bool high_is_good;
    bool powers;         /* a logarithmic axis; values that are not above 0 stand at its lower end */
    const double *value; /* [points]; NaN: not shown */
} heed_plot_panel;
typedef struct heed_plot_points {
    const char *title, *subtitle;
    const char *across;      /* the axis that goes right, on which less is better; logarithmic */
    const double *at;        /* [points] above 0 */
    const char *const *name; /* [points] for the legend, in which they are numbered from 0 */
    int points;
    const heed_plot_panel *panel;
    int panels;
} heed_plot_points;
heed_status heed_plot_draw_points(const char *path, const heed_plot_points *plot);

/* Which points no other one beats: none is as good in both and better in one. Writes `front` [points]. */
void heed_plot_front(const double *at, const double *value, bool high_is_good, int points, bool *front);

/* Shares 0..1 in small tables beside each other, one a row of `table`: [tables, rows, cols], NaN: empty. */
typedef struct heed_plot_tables {
    const char *title, *subtitle;
    const char *down, *across;           /* what rows and columns are */
    const char *const *row, *const *col; /* their names */
    const char *const *name;             /* [tables] */
    int tables, rows, cols;
    const double *share;
} heed_plot_tables;
heed_status heed_plot_draw_tables(const char *path, const heed_plot_tables *plot);

/* Curves over a common axis, in panels below each other: a loss by step, say. */
typedef struct heed_plot_curve {
    const char *name;
    const double *at, *value; /* [points]; a value that is not finite leaves a gap */
    int points;
} heed_plot_curve;
enum { HEED_PLOT_PANELS = 4 };
typedef struct heed_plot_curves {
    const char *title, *subtitle;
    const char *across;
    struct {
        const char *measure;
        const heed_plot_curve *curve;
        int curves;
    } panel[HEED_PLOT_PANELS];
    int panels;
} heed_plot_curves;
heed_status heed_plot_draw_curves(const char *path, const heed_plot_curves *plot);

/* Bars beside names, in panels below each other: a measure of several arms, with the spread of their runs. */
typedef struct heed_plot_bar {
    const char *name;
    double value, spread; /* NaN: not shown; the whisker goes from value - spread to value + spread */
} heed_plot_bar;
typedef struct heed_plot_bars {
    const char *title, *subtitle;
    struct {
        const char *measure;
        const heed_plot_bar *bar;
        int bars;
    } panel[HEED_PLOT_PANELS];
    int panels;
} heed_plot_bars;
heed_status heed_plot_draw_bars(const char *path, const heed_plot_bars *plot);

/* A PNG file: grey values with 1 channel, red, green and blue with 3. */
typedef struct heed_plot_pixels {
    int64_t height, width;
    int channels;
    int32_t *value; /* [height, width, channels] from 0 to 255; to be freed */
} heed_plot_pixels;
heed_status heed_plot_read(const char *path, int channels, heed_plot_pixels *pixels);

#endif
