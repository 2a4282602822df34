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
enum { UNITS = 32, RUN = 64 /* columns at a time */ };

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

/* far[j] = |c| |distance|, z[j] for a run of columns. */
static inline void look_back(const norm *row, int32_t position, const int32_t *key_pos, int cols, float *far,
                             float *z)
{
    for (int j = 0; j < cols; j++) {
        far[j] = row->c * fabsf((float)(position - key_pos[j]));
        z[j] = heed_log1p(far[j]) * row->inverse;
    }
}

static void add_function(const heed_form_state *form, heed_tile *tile)
{
    const float *w1 = form->param[W1], *b1 = form->param[B1];
    const float *w2 = form->param[W2] + (int64_t)tile->head * UNITS;
    const float b2 = form->param[B2][tile->head];
    float far[RUN], z[RUN], sum[RUN];
    for (int i = 0; i < tile->rows; i++) {
        const norm row = norm_of(form, tile->query_pos[i]);
        for (int j0 = 0; j0 < tile->cols; j0 += RUN) {
            const int cols = tile->cols - j0 < RUN ? tile->cols - j0 : RUN;
            look_back(&row, tile->query_pos[i], tile->key_pos + j0, cols, far, z);
            for (int j = 0; j < cols; j++)
                sum[j] = b2;
            for (int a = 0; a < UNITS; a += 4)
                for (int j = 0; j < cols; j++)
                    sum[j] += w2[a] * relu(w1[a] * z[j] + b1[a]) +
                              w2[a + 1] * relu(w1[a + 1] * z[j] + b1[a + 1]) +
                              w2[a + 2] * relu(w1[a + 2] * z[j] + b1[a + 2]) +
                              w2[a + 3] * relu(w1[a + 3] * z[j] + b1[a + 3]);
            float *score = tile->score + i * tile->stride + j0;
            for (int j = 0; j < cols; j++)
                score[j] += sum[j];
        }
    }
}

/* Gradients of the two layers from one run of columns; dz[j] of the input. */
static inline void layers_backward(const heed_form_state *form, int head, int cols, const float *dscore,
                                   const float *z, float *dz)
{
    const float *w2 = form->param[W2] + (int64_t)head * UNITS;
    for (int j = 0; j < cols; j++)
        dz[j] = 0.0f;
    for (int a = 0; a < UNITS; a++) {
        const float w = form->param[W1][a], b = form->param[B1][a], v = w2[a];
        float dw1 = 0.0f, db1 = 0.0f, dw2 = 0.0f;
#pragma omp simd reduction(+ : dw1, db1, dw2)
        for (int j = 0; j < cols; j++) {
            const float hidden = w * z[j] + b, on = hidden > 0.0f ? dscore[j] : 0.0f;
            dw2 += on * hidden;
            db1 += on;
            dw1 += on * z[j];
            dz[j] += on * v * w;
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

/* z = A/B:  dz/d|c| = distance/((1 + far) B) - z farthest/((1 + |c| farthest) B),  dz/d|L| = -z |c|/((1 + |c|
 * farthest) B) */
static void add_function_backward(const heed_form_state *form, heed_tile *tile)
{
    float far[RUN], z[RUN], dz[RUN];
    for (int i = 0; i < tile->rows; i++) {
        const int32_t position = tile->query_pos[i];
        const norm row = norm_of(form, position);
        float by_distance = 0.0f, by_z = 0.0f, db2 = 0.0f;
        for (int j0 = 0; j0 < tile->cols; j0 += RUN) {
            const int cols = tile->cols - j0 < RUN ? tile->cols - j0 : RUN;
            const int32_t *key_pos = tile->key_pos + j0;
            const float *dscore = tile->dscore + i * tile->stride + j0;
            look_back(&row, position, key_pos, cols, far, z);
            layers_backward(form, tile->head, cols, dscore, z, dz);
#pragma omp simd reduction(+ : by_distance, by_z, db2)
            for (int j = 0; j < cols; j++) {
                by_distance += dz[j] * fabsf((float)(position - key_pos[j])) / (1.0f + far[j]);
                by_z += dz[j] * z[j];
                db2 += dscore[j];
            }
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
    .adjust = add_function,
    .adjust_backward = add_function_backward,
};
