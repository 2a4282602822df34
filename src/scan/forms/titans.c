/* Titans (row 001.135): a linear memory that learns at test time, with momentum and forgetting.
 *
 *     S_t = eta_t S_{t-1} - theta_t grad |k_t M - v_t|^2,     M_t = (1 - alpha_t) M_{t-1} + S_t
 *     out_t = q_t M_t,     (eta, theta, alpha) = sigmoid(gate_t)
 *
 * The gradient, 2 k^T (k M - v), is taken at M_{t-1}, or at the memory before the chunk that t lies in
 * (chunk > 1), as it is where chunks run in parallel. q and k are divided by their length unless norm=none.
 * Without momentum and forgetting it is the delta rule with beta = 2 theta. A memory of one map, not of two.
 * Behrouz, Zhong, Mirrokni: Titans: Learning to Memorize at Test Time, 2024.
 */
#include "scan/forms/matrix.h"
#include "scan/forms/parts.h"

enum { CHUNK, NORM };
enum { ETA, THETA, ALPHA, GATES };
enum { RUN = 64 }; /* tokens of the way back between states that are kept */

/* M, S and the memory before the chunk [D][E] each, then the place in the chunk. */
typedef struct memory {
    float *M, *S, *start, *place;
} memory;

static int64_t size_of(const heed_form_state *form)
{
    return form->sizes.dim * form->sizes.value_dim;
}

static int64_t state_floats(const heed_form_state *form)
{
    return 3 * size_of(form) + 1;
}

static memory memory_at(const heed_form_state *form, float *state)
{
    const int64_t size = size_of(form);
    return (memory){state, state + size, state + 2 * size, state + 3 * size};
}

static int64_t work_floats(const heed_form_state *form, int64_t tokens, bool backward)
{
    const int64_t rows = 2 * form->sizes.dim + 3 * form->sizes.value_dim;
    const int64_t states = backward ? (tokens + RUN - 1) / RUN + RUN + 1 : 0;
    return rows + states * state_floats(form) + (backward ? 3 * size_of(form) : 0);
}

static int channels(const heed_form_state *form, int dim)
{
    (void)form, (void)dim;
    return GATES;
}

/* 1 / |x|, or 1 */
static float inverse_of(const heed_form_state *form, const float *x, int dim)
{
    return form->arg[NORM].number == 0 ? heed_scan_inverse_length(x, dim) : 1;
}

/* Token t; `work` [D + 2 E]. */
static void step(const heed_form_state *form, const heed_scan_own *own, int t, memory at, float *work)
{
    const int d = own->dim, e = own->value_dim;
    const int64_t size = size_of(form);
    const float *gate = own->gate + (int64_t)t * GATES, *k = own->k + (int64_t)t * d;
    const float eta = heed_sigmoid(gate[ETA]), theta = heed_sigmoid(gate[THETA]),
                stays = 1 - heed_sigmoid(gate[ALPHA]);
    float *key = work, *wrong = work + d;
    if (*at.place == 0)
        memcpy(at.start, at.M, (size_t)size * sizeof(float));
    heed_scan_scale(k, d, inverse_of(form, k, d), key);
    heed_matrix_read(at.start, key, d, e, wrong);
    for (int c = 0; c < e; c++)
        wrong[c] -= own->v[(int64_t)t * e + c];
    for (int64_t i = 0; i < size; i++)
        at.S[i] *= eta;
    heed_matrix_add(at.S, -2 * theta, key, wrong, d, e);
#pragma omp simd
    for (int64_t i = 0; i < size; i++)
        at.M[i] = stays * at.M[i] + at.S[i];
    *at.place = *at.place + 1 < heed_arg_float(form, CHUNK) ? *at.place + 1 : 0;
}

static void pass(const heed_form_state *form, const heed_scan_own *own)
{
    const int d = own->dim, e = own->value_dim;
    const memory at = memory_at(form, own->state);
    for (int t = 0; t < own->count; t++) {
        step(form, own, t, at, own->work);
        for (int h = 0; h < own->group; h++) {
            const int64_t row = (int64_t)h * own->count + t;
            const float *q = own->q + row * d;
            heed_scan_scale(q, d, inverse_of(form, q, d), own->work);
            heed_matrix_read(at.M, own->work, d, e, own->out + row * e);
        }
    }
}

typedef struct gradients {
    float *M, *S, *start; /* [D][E] */
} gradients;

/* dx of x, from dy of x / |x| */
static void back_row(const heed_form_state *form, const float *x, float inverse, const float *dy, int n,
                     float *dx)
{
    if (form->arg[NORM].number == 0)
        heed_scan_length_back(x, inverse, dy, n, dx);
    else
        heed_scan_scale_back(dy, n, 1, dx);
}

static void back_reads(const heed_form_state *form, const heed_scan_own *own, int t, const float *M,
                       float *dM)
{
    const int d = own->dim, e = own->value_dim;
    float *query = own->work, *dquery = own->work + d;
    for (int h = 0; h < own->group; h++) {
        const int64_t row = (int64_t)h * own->count + t;
        const float *q = own->q + row * d, *dout = own->dout + row * e;
        const float inverse = inverse_of(form, q, d);
        heed_scan_scale(q, d, inverse, query);
        memset(dquery, 0, (size_t)d * sizeof(float));
        heed_matrix_meet(M, 1, dout, d, e, dquery);
        heed_matrix_add(dM, 1, query, dout, d, e);
        back_row(form, q, inverse, dquery, d, own->dq + row * d);
    }
}

/* Token t from the memories before and after it. */
static void back_step(const heed_form_state *form, const heed_scan_own *own, int t, memory was, memory is,
                      gradients g)
{
    const int d = own->dim, e = own->value_dim;
    const int64_t size = size_of(form);
    const float *gate = own->gate + (int64_t)t * GATES, *k = own->k + (int64_t)t * d;
    const float eta = heed_sigmoid(gate[ETA]), theta = heed_sigmoid(gate[THETA]),
                alpha = heed_sigmoid(gate[ALPHA]), inverse = inverse_of(form, k, d);
    float *key = own->work, *dkey = key + d, *wrong = dkey + d, *along = wrong + e, *dwrong = along + e;
    back_reads(form, own, t, is.M, g.M);
    heed_scan_scale(k, d, inverse, key);
    heed_matrix_read(is.start, key, d, e, wrong);
    for (int c = 0; c < e; c++)
        wrong[c] -= own->v[(int64_t)t * e + c];
    const float dalpha = -heed_row_product(g.M, was.M, size);
    for (int64_t i = 0; i < size; i++) {
        g.S[i] += g.M[i];
        g.M[i] *= 1 - alpha;
    }
    const float deta = heed_row_product(g.S, was.S, size);
    heed_matrix_read(g.S, key, d, e, along);
    for (int c = 0; c < e; c++) {
        dwrong[c] = -2 * theta * along[c];
        own->dv[(int64_t)t * e + c] -= dwrong[c];
    }
    memset(dkey, 0, (size_t)d * sizeof(float));
    heed_matrix_meet(g.S, -2 * theta, wrong, d, e, dkey);
    heed_matrix_meet(is.start, 1, dwrong, d, e, dkey);
    heed_matrix_add(g.start, 1, key, dwrong, d, e);
    for (int64_t i = 0; i < size; i++)
        g.S[i] *= eta;
    if (*was.place == 0)
        for (int64_t i = 0; i < size; i++) {
            g.M[i] += g.start[i];
            g.start[i] = 0;
        }
    back_row(form, k, inverse, dkey, d, own->dk + (int64_t)t * d);
    float *dgate = own->dgate + (int64_t)t * GATES;
    dgate[ETA] += deta * eta * (1 - eta);
    dgate[THETA] -= 2 * heed_row_product(along, wrong, e) * theta * (1 - theta);
    dgate[ALPHA] += dalpha * alpha * (1 - alpha);
}

static void back(const heed_form_state *form, const heed_scan_own *own)
{
    const int64_t floats = state_floats(form), size = size_of(form);
    const size_t bytes = (size_t)floats * sizeof(float);
    const int runs = (own->count + RUN - 1) / RUN;
    float *begin = own->work + 2 * own->dim + 3 * own->value_dim, *states = begin + runs * floats;
    float *d = states + (RUN + 1) * floats;
    for (int t = 0; t < own->count; t++) {
        if (t % RUN == 0)
            memcpy(begin + t / RUN * floats, own->state, bytes);
        step(form, own, t, memory_at(form, own->state), own->work);
    }
    memset(d, 0, (size_t)(3 * size) * sizeof(float));
    for (int r = runs - 1; r >= 0; r--) {
        const int first = r * RUN, count = own->count - first < RUN ? own->count - first : RUN;
        memcpy(states, begin + r * floats, bytes);
        for (int t = 0; t < count; t++) {
            float *next = states + (t + 1) * floats;
            memcpy(next, next - floats, bytes);
            step(form, own, first + t, memory_at(form, next), own->work);
        }
        for (int t = count - 1; t >= 0; t--)
            back_step(form, own, first + t, memory_at(form, states + t * floats),
                      memory_at(form, states + (t + 1) * floats), (gradients){d, d + size, d + 2 * size});
    }
}

static const heed_option norms[] = {{"l2", NULL}, {"none", NULL}, {NULL, NULL}};
static const heed_arg args[] = {
    [CHUNK] = {.name = "chunk",
               .kind = HEED_ARG_INT,
               .value = 1,
               .least = 1,
               .most = 65536,
               .summary = "tokens whose gradients are taken at the memory before them"},
    [NORM] = {.name = "norm",
              .kind = HEED_ARG_CHOICE,
              .options = norms,
              .summary = "queries and keys are divided by their length, or taken as they are"},
    {0},
};

static const heed_scan_loops loops = {state_floats, work_floats, pass, back};
static const heed_scan_rule rule = {
    .flags = HEED_SCAN_READS_GATE | HEED_SCAN_RAW_GATE, .channels = channels, .loops = &loops};

const heed_form HEED_FORM(scan_titans) = {
    .name = "titans",
    .stage = HEED_SCAN,
    .summary = "a linear memory that learns at test time, with momentum and forgetting",
    .formula = "S = eta S - 2 theta k^T (k M - v); M = (1 - alpha) M + S; out = q M",
    .source = "Behrouz, Zhong, Mirrokni: Titans: Learning to Memorize at Test Time, 2024; memory of one map",
    .row = "001.135",
    .args = args,
    .scan = &rule,
};
