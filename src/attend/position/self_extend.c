/* Self-Extend (row 000.090): true positions near by, positions of groups far away, so that a model reads on
 * beyond what it learned from.
 *
 *     i - j < w:  rope at i and j;     else: rope at floor(i / G) + w - floor(w / G) and floor(j / G)
 *
 * in one softmax; the shift keeps relative distances in step at the border. Rows are rotated to their true
 * positions, as rope does (entries j and j + D/2 a pair), and far pairs are rotated on from there, 16 keys at
 * a time. G = 1 is rope. Jin et al.: LLM Maybe LongLM: Self-Extend LLM Context Window Without Tuning, 2024.
 */
#include "attend/form.h"

#include <string.h>

enum { BASE, GROUP, WINDOW };
enum { LANE = 16, MOST_HALF = 256 };

static heed_status resolve(heed_form_state *form)
{
    if (form->sizes.dim % 2 == 0 && form->sizes.dim <= 2 * MOST_HALF)
        return HEED_OK;
    return heed_fail(HEED_INVALID, "position=self_extend: dim is %lld; it must be even and at most %d",
                     (long long)form->sizes.dim, 2 * MOST_HALF);
}

static size_t table_bytes(const heed_form_state *form)
{
    return (size_t)(form->sizes.dim / 2) * sizeof(double);
}

static void setup(heed_form_state *form)
{
    double *theta = form->table;
    for (int64_t t = 0; t < form->sizes.dim / 2; t++)
        theta[t] = pow(form->arg[BASE].number, -2.0 * (double)t / (double)form->sizes.dim);
}

/* y = x turned by `places`, entries `apart` floats apart in both */
static void turn(const heed_form_state *form, const float *x, int64_t x_apart, double places, float *y,
                 int64_t y_apart)
{
    const double *theta = form->table;
    const int half = (int)(form->sizes.dim / 2);
    for (int t = 0; t < half; t++) {
        const float c = (float)cos(places * theta[t]), s = (float)sin(places * theta[t]);
        const float a = x[t * x_apart], b = x[(t + half) * x_apart];
        y[t * y_apart] = a * c - b * s;
        y[(t + half) * y_apart] = a * s + b * c;
    }
}

static void rotate(const heed_form_state *form, const heed_rows *rows)
{
    for (int i = 0; i < rows->count; i++)
        turn(form, rows->in + i * rows->in_stride, 1, rows->pos[i], rows->out + i * rows->out_stride, 1);
}

static void rotate_backward(const heed_form_state *form, const heed_rows *rows)
{
    float back[2 * MOST_HALF];
    for (int i = 0; i < rows->count; i++) {
        float *d = rows->din + i * rows->din_stride;
        turn(form, rows->out + i * rows->out_stride, 1, -(double)rows->pos[i], back, 1);
        for (int c = 0; c < rows->dim; c++)
            d[c] += back[c];
    }
}

static void move_key(const heed_form_state *form, const heed_rows *rows)
{
    rotate(form, rows);
}

static int64_t floor_divide(int64_t a, int64_t b)
{
    return a / b - (a % b != 0 && a < 0);
}

/* Places that a key and a query move on from their own position for far pairs. */
static double key_moves(const heed_form_state *form, int64_t pos)
{
    return (double)(floor_divide(pos, heed_arg_int(form, GROUP)) - pos);
}

static double query_moves(const heed_form_state *form, int64_t pos)
{
    const int64_t w = heed_arg_int(form, WINDOW);
    return key_moves(form, pos) + (double)(w - w / heed_arg_int(form, GROUP));
}

static bool is_far(const heed_form_state *form, const heed_tile *tile, int i, int j)
{
    return (int64_t)tile->query_pos[i] - tile->key_pos[j] >= heed_arg_int(form, WINDOW);
}

static bool any_far(const heed_form_state *form, const heed_tile *tile, int j0)
{
    bool any = false;
    for (int i = 0; i < tile->rows; i++)
        for (int j = j0; j < j0 + LANE; j++)
            any |= is_far(form, tile, i, j);
    return any;
}

/* LANE keys [dim][LANE] as far queries meet them. */
static void far_keys(const heed_form_state *form, const heed_tile *tile, int j0, float *to)
{
    for (int j = 0; j < LANE; j++)
        turn(form, tile->key + j0 + j, tile->key_stride, key_moves(form, tile->key_pos[j0 + j]), to + j,
             LANE);
}

static void adjust(const heed_form_state *form, heed_tile *tile)
{
    float keys[2 * MOST_HALF * LANE], query[2 * MOST_HALF];
    for (int j0 = 0; j0 + LANE <= tile->cols; j0 += LANE) {
        if (!any_far(form, tile, j0))
            continue;
        far_keys(form, tile, j0, keys);
        for (int i = 0; i < tile->rows; i++) {
            float sum[LANE] = {0}, *score = tile->score + i * tile->stride + j0;
            turn(form, tile->query + i * tile->query_stride, 1, query_moves(form, tile->query_pos[i]), query,
                 1);
            for (int c = 0; c < tile->dim; c++)
                for (int j = 0; j < LANE; j++)
                    sum[j] += query[c] * keys[c * LANE + j];
            for (int j = 0; j < LANE; j++)
                score[j] = is_far(form, tile, i, j0 + j) ? sum[j] : score[j];
        }
    }
}

/* The gradient of far pairs goes to the rows here, and no further as that of a near one. */
static void adjust_backward(const heed_form_state *form, heed_tile *tile)
{
    float keys[2 * MOST_HALF * LANE], dkeys[2 * MOST_HALF * LANE], query[2 * MOST_HALF],
        dquery[2 * MOST_HALF], back[2 * MOST_HALF];
    for (int j0 = 0; j0 + LANE <= tile->cols; j0 += LANE) {
        if (!any_far(form, tile, j0))
            continue;
        far_keys(form, tile, j0, keys);
        memset(dkeys, 0, sizeof dkeys);
        for (int i = 0; i < tile->rows; i++) {
            float *d = tile->dscore + i * tile->stride + j0, g[LANE];
            bool any = false;
            for (int j = 0; j < LANE; j++) {
                g[j] = is_far(form, tile, i, j0 + j) ? d[j] : 0.0f;
                d[j] = is_far(form, tile, i, j0 + j) ? 0.0f : d[j];
                any |= g[j] != 0.0f;
            }
            if (!any)
                continue;
            turn(form, tile->query + i * tile->query_stride, 1, query_moves(form, tile->query_pos[i]), query,
                 1);
            for (int c = 0; c < tile->dim; c++) {
                dquery[c] = 0.0f;
                for (int j = 0; j < LANE; j++) {
                    dquery[c] += g[j] == 0.0f ? 0.0f : g[j] * keys[c * LANE + j];
                    dkeys[c * LANE + j] += g[j] == 0.0f ? 0.0f : g[j] * query[c];
                }
            }
            turn(form, dquery, 1, -query_moves(form, tile->query_pos[i]), back, 1);
            for (int c = 0; c < tile->dim; c++)
                tile->dquery[i * tile->query_stride + c] += back[c];
        }
        for (int j = 0; j < LANE; j++) {
            turn(form, dkeys + j, LANE, -key_moves(form, tile->key_pos[j0 + j]), back, 1);
            for (int c = 0; c < tile->dim; c++)
                tile->dkey[c * tile->key_stride + j0 + j] += back[c];
        }
    }
}

static const heed_arg args[] = {
    [BASE] =
        {.name = "base", .value = 10000, .least = 0, .most = 1e15, .above = true, .summary = "of the angles"},
    [GROUP] = {.name = "group",
               .kind = HEED_ARG_INT,
               .value = 8,
               .least = 1,
               .most = 1 << 20,
               .summary = "positions that are one far away"},
    [WINDOW] = {.name = "window",
                .kind = HEED_ARG_INT,
                .value = 1024,
                .least = 1,
                .most = 1 << 30,
                .summary = "distance from which on positions are those of groups"},
    {0},
};

const heed_form HEED_FORM(position_self_extend) = {
    .name = "self_extend",
    .stage = HEED_POSITION,
    .summary = "rotates by true positions near by, and by positions of groups far away",
    .formula = "rope at i, j where i - j < w, else at floor(i/G) + w - floor(w/G), floor(j/G)",
    .source = "Jin et al.: Self-Extend LLM Context Window Without Tuning, 2024",
    .row = "000.090",
    .flags = HEED_ROTATES | HEED_NEEDS_DOT | HEED_RAW_SCORES,
    .args = args,
    .resolve = resolve,
    .table_bytes = table_bytes,
    .setup = setup,
    .prepare_query = rotate,
    .prepare_query_backward = rotate_backward,
    .prepare_key = rotate,
    .prepare_key_backward = rotate_backward,
    .move_key = move_key,
    .adjust = adjust,
    .adjust_backward = adjust_backward,
};
