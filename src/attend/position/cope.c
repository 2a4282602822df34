/* CoPE: positions are counted by content. How many keys from j on the query takes notice of decides where j
 * stands.
 *
 *     g(i, m) = sigmoid(s(i, m)), 0 where closed or after the query;     c(i, j) = min(sum_{m >= j} g(i, m),
 * max - 1) s(i, j) += (1 - f) q_i . e[floor c] + f q_i . e[ceil c],     f = c - floor c
 *
 * m runs over key indices; s in the gate is the score before any position; q as given, not scaled. Gates of 1
 * count keys: c is then distance + 1. Golovneva et al.: Contextual Position Encoding, 2024.
 */
#include "attend/form.h"

enum { RUN = 64 /* columns at a time */ };

/* aux[m] = q . e[m] */
static void meet_positions(const heed_form_state *form, const heed_rows *rows)
{
    const int max = heed_arg_int(form, 0), dim = rows->dim;
    for (int i = 0; i < rows->count; i++) {
        const float *q = rows->in + i * rows->in_stride;
        float *aux = rows->out + i * rows->out_stride;
        for (int m = 0; m < max; m++) {
            const float *e = form->param[0] + (int64_t)m * dim; /* [D] */
            float product = 0.0f;
#pragma omp simd reduction(+ : product)
            for (int d = 0; d < dim; d++)
                product += q[d] * e[d];
            aux[m] = product;
        }
    }
}

/* A position where no open pair stands gives nothing, whatever q holds. */
static void meet_positions_backward(const heed_form_state *form, const heed_rows *rows)
{
    const int max = heed_arg_int(form, 0), dim = rows->dim;
    for (int i = 0; i < rows->count; i++) {
        const float *q = rows->in + i * rows->in_stride;
        const float *daux = rows->out + i * rows->out_stride;
        float *dq = rows->din + i * rows->din_stride;
        for (int m = 0; m < max; m++) {
            const float g = daux[m];
            if (g == 0.0f)
                continue;
            const float *e = form->param[0] + (int64_t)m * dim;
            for (int d = 0; d < dim; d++)
                dq[d] += g * e[d];
            if (!form->grad[0])
                continue;
            float *de = form->grad[0] + (int64_t)m * dim;
            for (int d = 0; d < dim; d++)
                de[d] += g * q[d];
        }
    }
}

/* Gates of `cols` columns from j0 on, out of the scores before this form. */
static inline void gates(const heed_tile *tile, int i, int j0, int cols, const float *score, float *gate)
{
    const uint8_t *open = tile->open ? tile->open + i * tile->stride + j0 : NULL;
    const int32_t *key_pos = tile->key_pos + j0, position = tile->query_pos[i];
    for (int j = 0; j < cols; j++) {
        const float g = heed_sigmoid(score[j]);
        gate[j] = key_pos[j] > position ? 0.0f : g;
    }
    for (int j = 0; open && j < cols; j++)
        gate[j] = open[j] ? gate[j] : 0.0f;
}

/* A place between two positions. */
typedef struct place {
    int below, above;
    float share; /* of the upper one */
} place;

/* `count` is NaN when a score is; then all that follows is. */
static inline place place_of(double count, int max)
{
    const double held = count < max - 1 ? (count > 0.0 ? count : 0.0) : max - 1;
    const int below = (int)held;
    const float share = (float)(held - below);
    return (place){below, below + (share > 0.0f), count == count ? share : (float)count};
}

static void add_place(const heed_form_state *form, heed_tile *tile)
{
    const int max = heed_arg_int(form, 0);
    float gate[RUN];
    for (int i = 0; i < tile->rows; i++) {
        const float *aux = tile->aux + (int64_t)i * max;
        double count = 0.0; /* of the keys from the present one on */
        for (int j0 = (tile->cols - 1) / RUN * RUN; j0 >= 0; j0 -= RUN) {
            const int cols = tile->cols - j0 < RUN ? tile->cols - j0 : RUN;
            float *score = tile->score + i * tile->stride + j0;
            if (count >= max - 1) { /* all that come before share the last position */
                for (int j = 0; j < cols; j++)
                    score[j] += aux[max - 1];
                continue;
            }
            gates(tile, i, j0, cols, score, gate);
            for (int j = cols - 1; j >= 0; j--) {
                count += (double)gate[j];
                const place p = place_of(count, max);
                score[j] += (1.0f - p.share) * aux[p.below] + p.share * aux[p.above];
            }
        }
    }
}

/* dscore reaches the score itself, the interpolated products (daux), and c, whose gradient at j goes to all
 * gates m >= j. */
static void add_place_backward(const heed_form_state *form, heed_tile *tile)
{
    const int max = heed_arg_int(form, 0);
    float gate[RUN];
    for (int i = 0; i < tile->rows; i++) {
        const float *aux = tile->aux + (int64_t)i * max, *before = tile->before + i * tile->stride;
        float *daux = tile->daux + (int64_t)i * max, *dscore = tile->dscore + i * tile->stride;
        double count = 0.0, dgate = 0.0;
        for (int j0 = 0; j0 < tile->cols; j0 += RUN) {
            const int cols = tile->cols - j0 < RUN ? tile->cols - j0 : RUN;
            gates(tile, i, j0, cols, before + j0, gate);
            for (int j = 0; j < cols; j++)
                count += (double)gate[j];
        }
        for (int j0 = 0; j0 < tile->cols; j0 += RUN) {
            const int cols = tile->cols - j0 < RUN ? tile->cols - j0 : RUN;
            gates(tile, i, j0, cols, before + j0, gate);
            for (int j = 0; j < cols; j++) {
                const float g = dscore[j0 + j];
                const place p = place_of(count, max);
                if (g != 0.0f) {
                    daux[p.below] += (1.0f - p.share) * g;
                    daux[p.above] += p.share * g;
                    dgate += count < max - 1 ? (double)(g * (aux[p.above] - aux[p.below])) : 0.0;
                }
                dscore[j0 + j] = g + (float)dgate * gate[j] * (1.0f - gate[j]);
                count -= (double)gate[j];
            }
        }
    }
}

static int positions(const heed_form_state *form)
{
    return heed_arg_int(form, 0);
}

static const heed_arg args[] = {
    {.name = "max",
     .kind = HEED_ARG_INT,
     .value = 64,
     .least = 1,
     .most = 1 << 20,
     .summary = "number of positions; farther counts share the last"},
    {0},
};

static const heed_param params[] = {
    {.name = "e", .shape = "max,D", .summary = "embedding of each position, shared by the heads"},
    {0},
};

const heed_form HEED_FORM(position_cope) = {
    .name = "cope",
    .stage = HEED_POSITION,
    .summary = "positions counted by content: gates from the scores decide how far a key stands",
    .formula = "s + q.e[c] interpolated, c = min(sum of sigmoid(s) over keys from j on, max - 1)",
    .source = "Golovneva et al. 2024",
    .row = "000.041",
    .flags = HEED_WHOLE_ROW | HEED_RAW_SCORES | HEED_KEEPS_INPUT,
    .args = args,
    .params = params,
    .aux_floats = positions,
    .query_aux = meet_positions,
    .query_aux_backward = meet_positions_backward,
    .adjust = add_place,
    .adjust_backward = add_place_backward,
};
