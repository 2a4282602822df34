/* FIRE: a small learned function of distance, seen relative to how far the query can look.
 *
 *     s(i, j) += b2[h] + sum_a w2[h,a] relu(w1[a] z + b1[a])        a = 0..31
 *     z = log(1 + |c| |p(i) - k_pos(j)|) / log(1 + |c| max(|L|, p(i)))
 *
 * Where the lower logarithm is 0 (c = 0, or L = 0 at a position not above 0) z is 0 and passes no gradient.
 * Where |L| and p(i) are equal the gradient goes to L. Li et al.: Functional Interpolation for Relative
 * Positions, 2024.
 */
#include "attend/form.h"

enum { C, L, W1, B1, W2, B2 };
enum { UNITS = 32, ROWS = 8, COLS = 64, PAIRS = ROWS * COLS /* of a part of the tile */ };

/* What a row's z is divided by. */
typedef struct norm {
    float c;        /* |c| */
    float farthest; /* max(|L|, p) */
    float inverse;  /* of the lower logarithm; 0 where that is 0 */
    bool from_l;    /* farthest is |L| */
} norm;

static norm norm_of(const heed_form_state *form, int32_t position)
{
    const float c = fabsf(form->param[C][0]), l = fabsf(form->param[L][0]);
    const float farthest = l >= (float)position ? l : (float)position;
    const double lower = log1p((double)c * (double)farthest);
    return (norm){.c = c,
                  .farthest = farthest,
                  .inverse = lower == 0.0 ? 0.0f : (float)(1.0 / lower),
                  .from_l = l >= (float)position};
}

static inline float relu(float x)
{
    return x < 0.0f ? 0.0f : x;
}

/* A part of a tile, its pairs in one list, row after row: loops over pairs are then long. */
typedef struct part {
    int row0, rows, col0, cols, pairs;
    norm row[ROWS];
    float distance[PAIRS], z[PAIRS];
} part;

static void look_back(const heed_form_state *form, const heed_tile *tile, int row0, int col0, part *p)
{
    p->row0 = row0;
    p->col0 = col0;
    p->rows = tile->rows - row0 < ROWS ? tile->rows - row0 : ROWS;
    p->cols = tile->cols - col0 < COLS ? tile->cols - col0 : COLS;
    p->pairs = p->rows * p->cols;
    const int32_t *key_pos = tile->key_pos + col0;
    for (int i = 0; i < p->rows; i++) {
        const int32_t position = tile->query_pos[row0 + i];
        const norm row = p->row[i] = norm_of(form, position);
        float *distance = p->distance + i * p->cols, *z = p->z + i * p->cols;
        for (int j = 0; j < p->cols; j++) {
            distance[j] = fabsf((float)(position - key_pos[j]));
            z[j] = heed_log1p(row.c * distance[j]) * row.inverse;
        }
    }
}

static void add_function(const heed_form_state *form, const heed_tile *tile, const part *p)
{
    const float *w1 = form->param[W1], *b1 = form->param[B1];
    const float *w2 = form->param[W2] + (int64_t)tile->head * UNITS;
    float sum[PAIRS];
    for (int n = 0; n < p->pairs; n++)
        sum[n] = form->param[B2][tile->head];
    for (int a = 0; a < UNITS; a += 4)
        for (int n = 0; n < p->pairs; n++)
            sum[n] += w2[a] * relu(w1[a] * p->z[n] + b1[a]) +
                      w2[a + 1] * relu(w1[a + 1] * p->z[n] + b1[a + 1]) +
                      w2[a + 2] * relu(w1[a + 2] * p->z[n] + b1[a + 2]) +
                      w2[a + 3] * relu(w1[a + 3] * p->z[n] + b1[a + 3]);
    for (int i = 0; i < p->rows; i++)
        for (int j = 0; j < p->cols; j++)
            tile->score[(p->row0 + i) * tile->stride + p->col0 + j] += sum[i * p->cols + j];
}

/* Gradients of the two layers; dz of their input. */
static void layers_backward(const heed_form_state *form, int head, const part *p, const float *dsum,
                            float *dz)
{
    const float *w2 = form->param[W2] + (int64_t)head * UNITS;
    for (int n = 0; n < p->pairs; n++)
        dz[n] = 0.0f;
    for (int a = 0; a < UNITS; a++) {
        const float w = form->param[W1][a], b = form->param[B1][a], v = w2[a];
        float dw1 = 0.0f, db1 = 0.0f, dw2 = 0.0f;
#pragma omp simd reduction(+ : dw1, db1, dw2)
        for (int n = 0; n < p->pairs; n++) {
            const float g = dsum[n], z = p->z[n], hidden = w * z + b, on = hidden > 0.0f ? g : 0.0f;
            dw2 += on * hidden;
            db1 += on;
            dw1 += on * z;
            dz[n] += on * v * w;
        }
        if (form->grad[W1])
            form->grad[W1][a] += dw1 * v;
        if (form->grad[B1])
            form->grad[B1][a] += db1 * v;
        if (form->grad[W2])
            form->grad[W2][(int64_t)head * UNITS + a] += dw2;
    }
}

static float with_sign(float x, float of)
{
    return of > 0.0f ? x : of < 0.0f ? -x : 0.0f;
}

/* z = A/B, A = log(1 + |c| d), B = log(1 + |c| f):
 *     dz/d|c| = d/((1 + |c| d) B) - z f/((1 + |c| f) B),     dz/d|L| = -z |c|/((1 + |c| f) B) where f = |L|
 */
static void add_function_backward(const heed_form_state *form, const heed_tile *tile, const part *p)
{
    float dsum[PAIRS], dz[PAIRS];
    for (int i = 0; i < p->rows; i++)
        for (int j = 0; j < p->cols; j++)
            dsum[i * p->cols + j] = tile->dscore[(p->row0 + i) * tile->stride + p->col0 + j];
    layers_backward(form, tile->head, p, dsum, dz);
    for (int i = 0; i < p->rows; i++) {
        const norm row = p->row[i];
        float by_distance = 0.0f, by_z = 0.0f, db2 = 0.0f;
#pragma omp simd reduction(+ : by_distance, by_z, db2)
        for (int n = i * p->cols; n < (i + 1) * p->cols; n++) {
            by_distance += dz[n] * p->distance[n] / (1.0f + row.c * p->distance[n]);
            by_z += dz[n] * p->z[n];
            db2 += dsum[n];
        }
        const float lower = row.inverse / (1.0f + row.c * row.farthest);
        if (form->grad[C])
            form->grad[C][0] +=
                with_sign(by_distance * row.inverse - by_z * row.farthest * lower, form->param[C][0]);
        if (form->grad[L] && row.from_l)
            form->grad[L][0] += with_sign(-by_z * row.c * lower, form->param[L][0]);
        if (form->grad[B2])
            form->grad[B2][tile->head] += db2;
    }
}

static void by_parts(const heed_form_state *form, heed_tile *tile,
                     void (*each)(const heed_form_state *, const heed_tile *, const part *))
{
    part p;
    for (int i = 0; i < tile->rows; i += ROWS)
        for (int j = 0; j < tile->cols; j += COLS) {
            look_back(form, tile, i, j, &p);
            each(form, tile, &p);
        }
}

static void adjust(const heed_form_state *form, heed_tile *tile)
{
    by_parts(form, tile, add_function);
}

static void adjust_backward(const heed_form_state *form, heed_tile *tile)
{
    by_parts(form, tile, add_function_backward);
}

static void fill_b1(const heed_form_state *form, float *b1)
{
    (void)form;
    for (int a = 0; a < UNITS; a++)
        b1[a] = -(float)a / UNITS;
}

static const heed_param params[] = {
    [C] = {.name = "c",
           .shape = "1",
           .initial = 0.1f,
           .summary = "steepness of the logarithm; its size counts"},
    [L] = {.name = "L",
           .shape = "1",
           .initial = 512.0f,
           .summary = "position below which all queries look equally far"},
    [W1] = {.name = "w1", .shape = "32", .initial = 1.0f, .summary = "slopes of the hidden units"},
    [B1] = {.name = "b1",
            .shape = "32",
            .fill = fill_b1,
            .summary = "their offsets, -a/32, so that the units differ"},
    [W2] = {.name = "w2", .shape = "H,32", .summary = "weights of the hidden units for each head"},
    [B2] = {.name = "b2", .shape = "H", .summary = "bias of each head"},
    {0},
};

const heed_form HEED_FORM(position_fire) = {
    .name = "fire",
    .stage = HEED_POSITION,
    .summary = "a small learned function of log distance relative to the query's position",
    .formula = "s + b2 + w2.relu(w1 z + b1), z = log(1 + |c| |distance|) / log(1 + |c| max(|L|, p(i)))",
    .source = "Li et al. 2024",
    .params = params,
    .adjust = adjust,
    .adjust_backward = adjust_backward,
};
