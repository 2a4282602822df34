/* Comateformer (row 000.091): a signed affinity, gated by how near query and key lie. With normalise=plain
 * the score is the weight.
 *
 *     s(i, j) = tanh(E) 2 sigmoid(N),     E = a q·k / sqrt(D),     N = -b |q - k|_1 / sqrt(D)
 *
 * A value is added, ignored or subtracted by tanh, and the gate, in (0, 1], scales it. The slope of |x| at 0
 * is taken as 0. Li et al.: Comateformer: Combined Attention Transformer for Semantic Sentence Matching,
 * 2024; with the doubled gate, not the centred one.
 */
#include "attend/score/rows.h"

#include <string.h>

enum { A, B };
enum { LANE = 16 }; /* columns that go together; tiles are whole multiples of it */

static float per_root(const heed_form_state *form, int arg)
{
    return (float)(form->arg[arg].number / sqrt((double)form->sizes.dim));
}

/* Products and distances of row i with LANE columns. */
static inline void meet(const heed_tile *tile, int i, int j0, float *product, float *distance)
{
    const float *q = tile->query + i * tile->query_stride;
    memset(product, 0, LANE * sizeof *product);
    memset(distance, 0, LANE * sizeof *distance);
    for (int c = 0; c < tile->dim; c++) {
        const float *k = tile->key + c * tile->key_stride + j0, x = q[c];
        for (int j = 0; j < LANE; j++) {
            product[j] += x * k[j];
            distance[j] += fabsf(x - k[j]);
        }
    }
}

static void compare(const heed_form_state *form, heed_tile *tile)
{
    const float a = per_root(form, A), b = per_root(form, B);
    for (int i = 0; i < tile->rows; i++)
        for (int j0 = 0; j0 + LANE <= tile->cols; j0 += LANE) {
            float *score = tile->score + i * tile->stride + j0, product[LANE], distance[LANE];
            meet(tile, i, j0, product, distance);
            for (int j = 0; j < LANE; j++)
                score[j] = heed_tanh(a * product[j]) * 2.0f * heed_sigmoid(-b * distance[j]);
        }
}

static void compare_backward(const heed_form_state *form, heed_tile *tile)
{
    const float a = per_root(form, A), b = per_root(form, B);
    for (int i = 0; i < tile->rows; i++)
        for (int j0 = 0; j0 + LANE <= tile->cols; j0 += LANE) {
            const float *d = tile->dscore + i * tile->stride + j0, *q = tile->query + i * tile->query_stride;
            float product[LANE], distance[LANE], dproduct[LANE], ddistance[LANE];
            if (row_is_zero(d, LANE))
                continue;
            meet(tile, i, j0, product, distance);
            for (int j = 0; j < LANE; j++) {
                const float t = heed_tanh(a * product[j]), g = heed_sigmoid(-b * distance[j]);
                dproduct[j] = d[j] == 0.0f ? 0.0f : d[j] * (1.0f - t * t) * 2.0f * g * a;
                ddistance[j] = d[j] == 0.0f ? 0.0f : -d[j] * t * 2.0f * g * (1.0f - g) * b;
            }
            for (int c = 0; c < tile->dim; c++) {
                const float *k = tile->key + c * tile->key_stride + j0;
                float *dk = tile->dkey + c * tile->key_stride + j0, sum = 0.0f;
                for (int j = 0; j < LANE; j++) {
                    const float apart = q[c] - k[j];
                    const float sign = apart == 0.0f ? 0.0f : copysignf(1.0f, apart);
                    const bool open = d[j] != 0.0f; /* else the key may be NaN */
                    sum += open ? dproduct[j] * k[j] + ddistance[j] * sign : 0.0f;
                    dk[j] += open ? dproduct[j] * q[c] - ddistance[j] * sign : 0.0f;
                }
                tile->dquery[i * tile->query_stride + c] += sum;
            }
        }
}

static const heed_arg args[] = {
    [A] = {.name = "a", .value = 1, .least = -1e6, .most = 1e6, .summary = "factor on the product"},
    [B] = {.name = "b", .value = 1, .least = 0, .most = 1e6, .summary = "factor on the distance"},
    {0},
};

const heed_form HEED_FORM(score_comate) = {
    .name = "comate",
    .stage = HEED_SCORE,
    .summary = "a signed affinity gated by nearness, for normalise=plain",
    .formula = "s = tanh(a q·k / sqrt D) 2 sigmoid(-b |q - k|_1 / sqrt D)",
    .source = "Li et al.: Comateformer, 2024; the doubled gate",
    .row = "000.091",
    .args = args,
    .pair = compare,
    .pair_backward = compare_backward,
};
