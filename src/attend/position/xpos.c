/* xPos: RoPE whose pairs fade with distance, the fast ones sooner.
 *
 *     s(i, j) = scale sum_t zeta_t^(distance/scale_base) (x_t X_t + y_t Y_t),     zeta_t = (2t/D + 0.4)/1.4
 *
 * (x, y)_t and (X, Y)_t are the pairs (t, t + D/2) of q and k, rotated as rope does with the same base.
 * `pair` stands for the product, so it forms the sum without `scale`, which the kernel puts on it; gradients
 * come to pair_backward as those of the sum. Only for dot and a causal `where`.
 *
 * The published form multiplies q by zeta^p and k by zeta^-p, which overflows far from 0. Here a tile splits
 * the power at its own corner, zeta^(p(i) - k_pos(0)) zeta^-(k_pos(j) - k_pos(0)), so that both parts stay
 * small; where positions jump each pair has its power. Exponents of e are held below 40, which only pairs far
 * in a future that causal closes could pass. Sun et al.: A Length-Extrapolatable Transformer, 2023; the
 * paper's code pairs neighbours.
 */
#include "attend/position/rotate.h"

enum { BASE, SCALE_BASE };
enum {
    ROWS = 8,   /* of a strip of the tile */
    COLS = 128, /* of a run of the tile */
    PAIRS = 4,  /* pairs in one pass over a strip */
};
static const double most = 40.0; /* exponents of e are held below */

/* Header behind the rotation; behind it lie, with the rotation's stride: the logarithms of
 * zeta_t^(1/scale_base) (double), zeta_t^(r/scale_base), float [ROWS][stride], and zeta_t^(-j/scale_base),
 * float [stride][COLS]. */
typedef struct fading {
    int half, stride;
    bool splits; /* powers over COLS columns fit into floats */
} fading;

static size_t rotation_room(const heed_form_state *form)
{
    return (rotation_bytes((int)(form->sizes.dim / 2), &form->sizes) + 63) / 64 * 64;
}

static fading *fading_of(const heed_form_state *form)
{
    return (fading *)((char *)form->table + rotation_room(form));
}

static double *rates(const fading *f)
{
    return (double *)((char *)f + 64);
}

static float *row_powers(const fading *f)
{
    return (float *)(rates(f) + f->stride);
}

static float *col_powers(const fading *f)
{
    return row_powers(f) + ROWS * f->stride;
}

static heed_status resolve(heed_form_state *form)
{
    const long long dim = (long long)form->sizes.dim;
    if (dim % 2 != 0)
        return heed_fail(HEED_INVALID,
                         "position=xpos: rows of %lld entries cannot be rotated in pairs; D must be even",
                         dim);
    if (!(form->arg[BASE].number > 0.0))
        return heed_fail(HEED_INVALID, "position=xpos(base=%g): the base must be above 0",
                         form->arg[BASE].number);
    if (!(form->arg[SCALE_BASE].number > 0.0))
        return heed_fail(HEED_INVALID, "position=xpos(scale_base=%g): scale_base must be above 0",
                         form->arg[SCALE_BASE].number);
    return HEED_OK;
}

static size_t table_bytes(const heed_form_state *form)
{
    const size_t stride = ((size_t)form->sizes.dim / 2 + 15) / 16 * 16;
    return rotation_room(form) + 64 + stride * (sizeof(double) + (ROWS + COLS) * sizeof(float));
}

static void setup(heed_form_state *form)
{
    const int half = (int)(form->sizes.dim / 2);
    rotation *r = form->table;
    *r = rotation_sized(half, &form->sizes);
    for (int t = 0; t < half; t++)
        rotation_frequency(r)[t] = pow(form->arg[BASE].number, -(double)t / half);
    rotation_fill(r);

    fading *f = fading_of(form);
    *f = (fading){.half = half, .stride = r->stride};
    for (int t = 0; t < half; t++) {
        const double zeta = ((double)t / half + 0.4) / 1.4;
        const double rate = log(zeta) / form->arg[SCALE_BASE].number;
        rates(f)[t] = rate;
        for (int i = 0; i < ROWS; i++)
            row_powers(f)[i * f->stride + t] = (float)exp(i * rate);
        for (int j = 0; j < COLS; j++)
            col_powers(f)[t * COLS + j] = (float)exp(fmin(-j * rate, most));
    }
    f->splits = half == 0 || -rates(f)[0] * COLS <= most;
}

static void rotate(const heed_form_state *form, const heed_rows *rows)
{
    rotate_rows(form->table, 1.0f, rows, false, false);
}

static void rotate_backward(const heed_form_state *form, const heed_rows *rows)
{
    rotate_rows(form->table, 1.0f, rows, false, true);
}

/* A part of a tile with consecutive positions, and the distance at its corner. */
typedef struct part {
    const heed_tile *tile;
    int row0, rows, col0, cols;
    int64_t corner;
} part;

/* zeta_t^((corner + i)/scale_base) for pairs t0... of the part's rows: [ROWS][PAIRS], 0 beyond the pairs that
 * exist. */
static void powers_of_rows(const fading *f, const part *p, int t0, float power[ROWS][PAIRS])
{
    for (int a = 0; a < PAIRS; a++) {
        const int t = t0 + a;
        if (t >= f->half) {
            for (int i = 0; i < ROWS; i++)
                power[i][a] = 0.0f;
            continue;
        }
        const float corner = heed_exp((float)fmin((double)p->corner * rates(f)[t], most));
        for (int i = 0; i < ROWS; i++)
            power[i][a] = corner * row_powers(f)[i * f->stride + t];
    }
}

/* Entries of the pairs t0... of a part, with their powers: key [2 PAIRS][COLS], query [ROWS][2 PAIRS]. */
typedef struct faded {
    float key[2 * PAIRS][COLS], query[ROWS][2 * PAIRS];
} faded;

static void fade(const fading *f, const part *p, int t0, faded *x)
{
    const heed_tile *tile = p->tile;
    float power[ROWS][PAIRS];
    powers_of_rows(f, p, t0, power);
    for (int e = 0; e < 2 * PAIRS; e++) {
        const int a = e / 2, t = t0 + a, d = t + (e % 2) * f->half; /* entry of a row */
        const bool exists = t < f->half;
        const float *key = tile->key + (exists ? d : 0) * tile->key_stride + p->col0;
        const float *rise = col_powers(f) + (exists ? t : 0) * COLS;
        for (int j = 0; j < p->cols; j++)
            x->key[e][j] = exists ? key[j] * rise[j] : 0.0f;
        for (int i = 0; i < ROWS; i++)
            x->query[i][e] = exists && i < p->rows
                                 ? tile->query[(p->row0 + i) * tile->query_stride + d] * power[i][a]
                                 : 0.0f;
    }
}

/* Adds a pass of 2 PAIRS entries to two rows of scores. */
static void add_products(const faded *x, int i, int cols, float *restrict score0, float *restrict score1)
{
    const float *q0 = x->query[i], *q1 = x->query[i + 1];
    for (int j = 0; j < cols; j++) {
        float sum0 = score0[j], sum1 = score1[j];
#pragma GCC unroll 8
        for (int e = 0; e < 2 * PAIRS; e++) {
            sum0 += q0[e] * x->key[e][j];
            sum1 += q1[e] * x->key[e][j];
        }
        score0[j] = sum0;
        score1[j] = sum1;
    }
}

static void compare_part(const fading *f, const part *p)
{
    const heed_tile *tile = p->tile;
    float spare[COLS] = {0}; /* second row of the last pair of rows when their number is odd */
    faded x;
    for (int i = 0; i < p->rows; i++)
        for (int j = 0; j < p->cols; j++)
            tile->score[(p->row0 + i) * tile->stride + p->col0 + j] = 0.0f;
    for (int t0 = 0; t0 < f->half; t0 += PAIRS) {
        fade(f, p, t0, &x);
        for (int i = 0; i < p->rows; i += 2) {
            float *score = tile->score + (p->row0 + i) * tile->stride + p->col0;
            add_products(&x, i, p->cols, score, i + 1 < p->rows ? score + tile->stride : spare);
        }
    }
}

/* x, or 0 where the gradient is 0: a closed pair may hold NaN. A mask, for a choice would be made into
 * branches. */
static inline float kept(float x, float gradient)
{
    return heed_float_from_bits(heed_bits_of_float(x) & (uint32_t) - (gradient != 0.0f));
}

/* With the power of a pair split as u_i v_j:  dq = u sum_j ds v k,  dk = v sum_i ds u q.  A closed pair (ds
 * 0) may hold NaN and gives nothing. */
static void compare_part_backward(const fading *f, const part *p)
{
    const heed_tile *tile = p->tile;
    faded x;
    float power[ROWS][PAIRS];
    for (int e = 0; e < 2 * f->half; e++) {
        const int a = e % (2 * PAIRS), t = e / 2, d = t + e % 2 * f->half;
        if (a == 0) {
            fade(f, p, t, &x);
            powers_of_rows(f, p, t, power);
        }
        const float *rise = col_powers(f) + t * COLS, *key = x.key[a];
        float *restrict dkey = tile->dkey + d * tile->key_stride + p->col0;
        float sum[COLS] = {0};
        for (int i = 0; i < p->rows; i++) {
            const float *dscore = tile->dscore + (p->row0 + i) * tile->stride + p->col0,
                        query = x.query[i][a];
            float dquery = 0.0f;
#pragma omp simd reduction(+ : dquery)
            for (int j = 0; j < p->cols; j++) {
                const float g = dscore[j];
                dquery += g * kept(key[j], g);
                sum[j] += g * kept(query, g);
            }
            tile->dquery[(p->row0 + i) * tile->query_stride + d] += power[i][a / 2] * dquery;
        }
        for (int j = 0; j < p->cols; j++)
            dkey[j] += rise[j] * sum[j];
    }
}

static void by_parts(const fading *f, const heed_tile *tile, void (*each)(const fading *, const part *))
{
    for (int i = 0; i < tile->rows; i += ROWS)
        for (int j = 0; j < tile->cols; j += COLS) {
            const part p = {.tile = tile,
                            .row0 = i,
                            .rows = tile->rows - i < ROWS ? tile->rows - i : ROWS,
                            .col0 = j,
                            .cols = tile->cols - j < COLS ? tile->cols - j : COLS,
                            .corner = (int64_t)tile->query_pos[i] - tile->key_pos[j]};
            each(f, &p);
        }
}

/* zeta_t^(distance/scale_base) of one pair of positions. */
static inline float power_at(float rate, int32_t query_pos, int32_t key_pos)
{
    const float exponent = rate * (float)(query_pos - key_pos);
    return heed_exp(exponent < (float)most ? exponent : (float)most);
}

static void compare_each(const fading *f, const heed_tile *tile)
{
    for (int i = 0; i < tile->rows; i++) {
        float *restrict score = tile->score + i * tile->stride;
        const float *query = tile->query + i * tile->query_stride;
        const int32_t position = tile->query_pos[i];
        for (int j = 0; j < tile->cols; j++)
            score[j] = 0.0f;
        for (int t = 0; t < f->half; t++) {
            const float rate = (float)rates(f)[t], qx = query[t], qy = query[t + f->half];
            const float *x = tile->key + t * tile->key_stride, *y = x + f->half * tile->key_stride;
            for (int j = 0; j < tile->cols; j++)
                score[j] += power_at(rate, position, tile->key_pos[j]) * (qx * x[j] + qy * y[j]);
        }
    }
}

static void compare_each_backward(const fading *f, const heed_tile *tile)
{
    for (int i = 0; i < tile->rows; i++) {
        const float *dscore = tile->dscore + i * tile->stride, *query = tile->query + i * tile->query_stride;
        const int32_t position = tile->query_pos[i];
        for (int t = 0; t < f->half; t++) {
            const float rate = (float)rates(f)[t], qx = query[t], qy = query[t + f->half];
            const float *x = tile->key + t * tile->key_stride, *y = x + f->half * tile->key_stride;
            float *restrict dx = tile->dkey + t * tile->key_stride, *restrict dy =
                                                                        dx + f->half * tile->key_stride;
            float dqx = 0.0f, dqy = 0.0f;
#pragma omp simd reduction(+ : dqx, dqy)
            for (int j = 0; j < tile->cols; j++) {
                const float g = dscore[j] * power_at(rate, position, tile->key_pos[j]);
                dqx += g * kept(x[j], dscore[j]);
                dqy += g * kept(y[j], dscore[j]);
                dx[j] += g * kept(qx, dscore[j]);
                dy[j] += g * kept(qy, dscore[j]);
            }
            float *dquery = tile->dquery + i * tile->query_stride + t;
            dquery[0] += dqx;
            dquery[f->half] += dqy;
        }
    }
}

static void compare(const heed_form_state *form, heed_tile *tile)
{
    const fading *f = fading_of(form);
    if (tile->contiguous && f->splits)
        by_parts(f, tile, compare_part);
    else
        compare_each(f, tile);
}

static void compare_backward(const heed_form_state *form, heed_tile *tile)
{
    const fading *f = fading_of(form);
    if (tile->contiguous && f->splits)
        by_parts(f, tile, compare_part_backward);
    else
        compare_each_backward(f, tile);
}

static const heed_arg args[] = {
    [BASE] = {.name = "base",
              .value = 10000.0,
              .least = 0.0,
              .most = 1e30,
              .above = true,
              .summary = "base of the frequencies"},
    [SCALE_BASE] = {.name = "scale_base",
                    .value = 512.0,
                    .least = 0.0,
                    .most = 1e30,
                    .above = true,
                    .summary = "distance over which pair t fades by zeta_t"},
    {0},
};

const heed_form HEED_FORM(position_xpos) = {
    .name = "xpos",
    .stage = HEED_POSITION,
    .summary = "rotates as rope does, and lets each pair fade with distance at its own rate",
    .formula = "rope, pair t of the product times zeta_t^(distance/scale_base), zeta_t = (2t/D + 0.4)/1.4",
    .source = "Sun et al. 2023",
    .flags = HEED_ROTATES | HEED_NEEDS_DOT | HEED_NEEDS_CAUSAL,
    .args = args,
    .resolve = resolve,
    .table_bytes = table_bytes,
    .setup = setup,
    .prepare_query = rotate,
    .prepare_query_backward = rotate_backward,
    .prepare_key = rotate,
    .prepare_key_backward = rotate_backward,
    .move_key = rotate,
    .pair = compare,
    .pair_backward = compare_backward,
};
