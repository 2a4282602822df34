/* Attention in two levels: a query reads groups of keys, each by a softmax of its own, and weighs what they
 * give by weights that are made before. Groups of weight 0 are not looked at.
 *
 *     out_i = sum_{g: p_ig > 0} p_ig sum_{j in g} w_igj v_j,   w_ig = softmax over j in g of q_i·k_j
 */
#include "nn/graph.h"

#include <math.h>
#include <string.h>

enum { QUERIES, KEYS, GROUPS, DIM, VALUE };

typedef struct rows {
    const float *q, *k, *v, *p; /* of one batch entry */
    int64_t size;               /* keys of a group */
} rows;

static rows rows_of(const heed_work *work, int64_t b)
{
    const int64_t *w = work->node->whole;
    return (rows){(const float *)work->in[0] + b * w[QUERIES] * w[DIM],
                  (const float *)work->in[1] + b * w[KEYS] * w[DIM],
                  (const float *)work->in[2] + b * w[KEYS] * w[VALUE],
                  (const float *)work->in[3] + b * w[QUERIES] * w[GROUPS], w[KEYS] / w[GROUPS]};
}

/* w of query i in group g */
static void weigh(const heed_work *work, const rows *r, int64_t i, int64_t g, float *weight)
{
    const int64_t dim = work->node->whole[DIM];
    for (int64_t j = 0; j < r->size; j++)
        weight[j] = work->kernels->dot(r->q + i * dim, r->k + (g * r->size + j) * dim, dim);
    work->kernels->softmax(weight, weight, r->size);
}

static heed_status two_level_forward(const heed_work *work)
{
    const int64_t *w = work->node->whole, batch = work->node->shape[0];
    HEED_NN_PIECES(work->threads, batch, b, 1)
    {
        const rows r = rows_of(work, b);
        float *weight = (float *)work->scratch + b * 2 * r.size;
        for (int64_t i = 0; i < w[QUERIES]; i++) {
            float *out = (float *)work->out + (b * w[QUERIES] + i) * w[VALUE];
            memset(out, 0, (size_t)w[VALUE] * sizeof *out);
            for (int64_t g = 0; g < w[GROUPS]; g++) {
                const float p = r.p[i * w[GROUPS] + g];
                if (p == 0.0f)
                    continue;
                weigh(work, &r, i, g, weight);
                for (int64_t j = 0; j < r.size; j++)
                    work->kernels->scale(r.v + (g * r.size + j) * w[VALUE], p * weight[j], 0.0f, out, true,
                                         w[VALUE]);
            }
        }
    }
    return HEED_OK;
}

/* One query in one group: adds to dq, dk and dv and returns the gradient of its weight p. */
static float group_back(const heed_work *work, const rows *r, int64_t b, int64_t i, int64_t g, float *weight)
{
    const int64_t *w = work->node->whole, dim = w[DIM], e = w[VALUE], first = b * w[KEYS] + g * r->size;
    const float *dout = work->dout + (b * w[QUERIES] + i) * e, p = r->p[i * w[GROUPS] + g];
    float *along = weight + r->size, read = 0.0f;
    weigh(work, r, i, g, weight);
    for (int64_t j = 0; j < r->size; j++) {
        along[j] = work->kernels->dot(dout, r->v + (g * r->size + j) * e, e);
        read += weight[j] * along[j];
    }
    for (int64_t j = 0; j < r->size; j++) {
        const float ds = p * weight[j] * (along[j] - read);
        if (work->din[0])
            work->kernels->scale(r->k + (g * r->size + j) * dim, ds, 0.0f,
                                 work->din[0] + (b * w[QUERIES] + i) * dim, true, dim);
        if (work->din[1])
            work->kernels->scale(r->q + i * dim, ds, 0.0f, work->din[1] + (first + j) * dim, true, dim);
        if (work->din[2])
            work->kernels->scale(dout, p * weight[j], 0.0f, work->din[2] + (first + j) * e, true, e);
    }
    return read;
}

static heed_status two_level_backward(const heed_work *work)
{
    const int64_t *w = work->node->whole, batch = work->node->shape[0];
    const int64_t each[] = {w[QUERIES] * w[DIM], w[KEYS] * w[DIM], w[KEYS] * w[VALUE]};
    HEED_NN_PIECES(work->threads, batch, b, 1)
    {
        const rows r = rows_of(work, b);
        float *weight = (float *)work->scratch + b * 2 * r.size;
        for (int x = 0; x < 3; x++)
            if (work->din[x] && !work->add[x])
                memset(work->din[x] + b * each[x], 0, (size_t)each[x] * sizeof(float));
        for (int64_t i = 0; i < w[QUERIES]; i++)
            for (int64_t g = 0; g < w[GROUPS]; g++) {
                const int64_t at = i * w[GROUPS] + g;
                const float slope = r.p[at] == 0.0f ? 0.0f : group_back(work, &r, b, i, g, weight);
                float *dp = work->din[3] ? work->din[3] + b * w[QUERIES] * w[GROUPS] + at : NULL;
                if (dp)
                    *dp = (work->add[3] ? *dp : 0.0f) + slope;
            }
    }
    return HEED_OK;
}

static const heed_op two_level_op = {
    .name = "two_level", .forward = two_level_forward, .backward = two_level_backward, .reads = 15};

heed_variable heed_nn_two_level(heed_graph *graph, heed_variable q, heed_variable k, heed_variable v,
                                heed_variable p)
{
    const heed_variable in[] = {q, k, v, p};
    heed_nn_node *node = heed_nn_make(graph, &two_level_op, 4, in);
    const heed_nn_node *x[4] = {NULL};
    if (!node)
        return HEED_NO_VARIABLE;
    bool fits = true;
    for (int i = 0; i < 4; i++) {
        x[i] = heed_nn_in(graph, node, i);
        fits = fits && x[i]->rank == 3 && x[i]->shape[0] == x[0]->shape[0];
    }
    fits = fits && x[1]->shape[2] == x[0]->shape[2] && x[2]->shape[1] == x[1]->shape[1] &&
           x[3]->shape[1] == x[0]->shape[1] && x[3]->shape[2] > 0 && x[1]->shape[1] % x[3]->shape[2] == 0;
    if (!fits)
        return heed_nn_fail(graph, HEED_INVALID, "two_level: q %s, k %s, v %s, p %s do not go together",
                            heed_nn_shape_text(x[0]).text, heed_nn_shape_text(x[1]).text,
                            heed_nn_shape_text(x[2]).text, heed_nn_shape_text(x[3]).text);
    heed_nn_shape_of(node, x[0]);
    node->shape[2] = node->whole[VALUE] = x[2]->shape[2];
    node->whole[QUERIES] = x[0]->shape[1];
    node->whole[DIM] = x[0]->shape[2];
    node->whole[KEYS] = x[1]->shape[1];
    node->whole[GROUPS] = x[3]->shape[2];
    node->forward_scratch = node->backward_scratch =
        (size_t)(2 * node->shape[0] * (node->whole[KEYS] / node->whole[GROUPS])) * sizeof(float);
    return heed_nn_done(graph, node);
}
