/* Infini-attention (row 001.161): softmax within a segment, and a compressive memory of all segments before.
 *
 *     A_mem = s(q) M / (s(q) z),     A_dot = causal softmax attention of the segment,     s(x) = elu(x) + 1
 *     out = sigmoid(b) A_mem + (1 - sigmoid(b)) A_dot,     b given as beta, a number of the head
 *     after a segment:  M += s(K)^T V,  or s(K)^T (V - s(K) M / (s(K) z)) (update=delta);  z += sum_t s(k_t)
 *
 * While nothing has been written the memory reads 0. q and k are rotated by RoPE of `base` for A_dot only; 0
 * leaves them as they are. Munkhdalai, Faruqui, Gopal: Leave No Context Behind, 2024.
 */
#include "scan/forms/matrix.h"
#include "scan/forms/parts.h"

enum { SEGMENT, UPDATE, BASE };

/* M [D][E], z [D], whether anything was written, place in the segment, its keys [N][D] and values [N][E] */
typedef struct memory {
    float *M, *z, *written, *place, *k, *v;
} memory;

typedef struct sizes {
    int d, e, n;
} sizes;

static sizes sizes_of(const heed_form_state *form)
{
    return (sizes){(int)form->sizes.dim, (int)form->sizes.value_dim, heed_arg_int(form, SEGMENT)};
}

static int64_t held(sizes s)
{
    return (int64_t)s.d * s.e + s.d + 1;
}

static int64_t state_floats(const heed_form_state *form)
{
    const sizes s = sizes_of(form);
    return held(s) + 1 + (int64_t)s.n * (s.d + s.e);
}

static memory memory_at(sizes s, float *state)
{
    float *z = state + (int64_t)s.d * s.e, *written = z + s.d;
    return (memory){state, z, written, written + 1, written + 2, written + 2 + (int64_t)s.n * s.d};
}

/* What a pass works with. */
typedef struct room {
    float *rotated, *weight, *query, *dquery, *y, *dy; /* [N][D], [N], [D], [D], [E], [E] */
    float *old;                                        /* a memory */
    float *drotated, *dweight, *memories, *dmemory;    /* of the way back */
} room;

static int64_t lay_out(sizes s, int64_t tokens, bool backward, float *at, room *r)
{
    int64_t used = 0;
#define TAKE(count) (used += (count), at ? at + used - (count) : NULL)
    r->rotated = TAKE((int64_t)s.n * s.d);
    r->weight = TAKE(s.n);
    r->query = TAKE(s.d);
    r->dquery = TAKE(s.d);
    r->y = TAKE(s.e);
    r->dy = TAKE(s.e);
    r->old = TAKE(held(s));
    if (backward) {
        r->drotated = TAKE((int64_t)s.n * s.d);
        r->dweight = TAKE(s.n);
        r->memories = TAKE(((tokens + s.n - 1) / s.n + 1) * held(s));
        r->dmemory = TAKE(held(s));
    }
#undef TAKE
    return used;
}

static int64_t work_floats(const heed_form_state *form, int64_t tokens, bool backward)
{
    room r;
    return lay_out(sizes_of(form), tokens, backward, NULL, &r);
}

static float feature(float x)
{
    return x > 0 ? x + 1 : heed_exp(x);
}

static void features(const float *x, int n, float *y)
{
    for (int i = 0; i < n; i++)
        y[i] = feature(x[i]);
}

/* dx += of x from dy of s(x) */
static void features_back(const float *x, int n, const float *dy, float *dx)
{
    for (int i = 0; i < n; i++)
        dx[i] += (x[i] > 0 ? 1 : heed_exp(x[i])) * dy[i];
}

/* Pairs (x_i, x_{i + D/2}) by place base^(-2 i / D); sign -1 turns back. */
static void rotate(const heed_form_state *form, const float *x, int place, int d, float sign, float *y)
{
    const double base = form->arg[BASE].number;
    memcpy(y, x, (size_t)d * sizeof(float));
    for (int i = 0; base > 0 && i < d / 2; i++) {
        const double angle = place * pow(base, -2.0 * i / d);
        const float c = (float)cos(angle), s = sign * (float)sin(angle), a = x[i], b = x[i + d / 2];
        y[i] = a * c - b * s;
        y[i + d / 2] = a * s + b * c;
    }
}

/* y = s M / (s z), the divisor */
static float recall(sizes s, const float *M, const float *z, const float *x, float *y)
{
    const float norm = heed_row_product(x, z, s.d);
    heed_matrix_read(M, x, s.d, s.e, y);
    for (int c = 0; c < s.e; c++)
        y[c] /= norm;
    return norm;
}

/* Of y = recall(x): dx, dM and dz added to; dy is lost. */
static void recall_back(sizes s, const float *M, const float *z, const float *x, const float *y, float norm,
                        float *dy, float *dx, float *dM, float *dz)
{
    const float dnorm = -heed_row_product(dy, y, s.e) / norm;
    for (int c = 0; c < s.e; c++)
        dy[c] /= norm;
    heed_matrix_meet(M, 1, dy, s.d, s.e, dx);
    heed_matrix_add(dM, 1, x, dy, s.d, s.e);
    for (int r = 0; r < s.d; r++) {
        dx[r] += dnorm * z[r];
        dz[r] += dnorm * x[r];
    }
}

/* A segment goes into the memory; every token meets the memory `old` that was before it. */
static void absorb(const heed_form_state *form, const float *k, const float *v, const float *old, float *to,
                   const room *r)
{
    const sizes s = sizes_of(form);
    const bool corrects = form->arg[UPDATE].number == 1 && old[held(s) - 1] > 0;
    float *z = to + (int64_t)s.d * s.e, *x = r->query, *y = r->y;
    for (int t = 0; t < s.n; t++, k += s.d, v += s.e) {
        features(k, s.d, x);
        if (corrects)
            recall(s, old, old + (z - to), x, y);
        for (int c = 0; c < s.e; c++)
            y[c] = v[c] - (corrects ? y[c] : 0);
        heed_matrix_add(to, 1, x, y, s.d, s.e);
        for (int i = 0; i < s.d; i++)
            z[i] += x[i];
    }
    to[held(s) - 1] = 1;
}

/* r->dmemory, of the memory after the segment, becomes that of the memory before it. */
static void absorb_back(const heed_form_state *form, const heed_scan_own *own, int first, const float *old,
                        const room *r)
{
    const sizes s = sizes_of(form);
    const bool corrects = form->arg[UPDATE].number == 1 && old[held(s) - 1] > 0;
    const int64_t size = (int64_t)s.d * s.e;
    const float *z = old + size;
    float *after = r->old, *x = r->query, *dx = r->dquery, *y = r->y, *dy = r->dy;
    memcpy(after, r->dmemory, (size_t)held(s) * sizeof(float));
    for (int t = first; t < first + s.n; t++) {
        const float *k = own->k + (int64_t)t * s.d;
        float norm = 1, *dv = own->dv + (int64_t)t * s.e;
        features(k, s.d, x);
        memset(y, 0, (size_t)s.e * sizeof(float));
        if (corrects)
            norm = recall(s, old, z, x, y);
        heed_matrix_read(after, x, s.d, s.e, dy); /* of what was written */
        for (int c = 0; c < s.e; c++)
            dv[c] += dy[c];
        memcpy(dx, after + size, (size_t)s.d * sizeof(float));
        for (int i = 0; i < s.d; i++) {
            const float *row = after + (int64_t)i * s.e;
            for (int c = 0; c < s.e; c++)
                dx[i] += row[c] * (own->v[(int64_t)t * s.e + c] - y[c]);
        }
        for (int c = 0; c < s.e; c++)
            dy[c] = -dy[c];
        if (corrects)
            recall_back(s, old, z, x, y, norm, dy, dx, r->dmemory, r->dmemory + size);
        features_back(k, s.d, dx, own->dk + (int64_t)t * s.d);
    }
}

/* Softmax of the scores of a rotated query with places 0..p; weights. */
static void weigh(sizes s, const float *query, const float *rotated, int p, float *weight)
{
    const float scale = 1 / sqrtf((float)s.d);
    float most = -INFINITY, sum = 0;
    for (int j = 0; j <= p; j++) {
        weight[j] = scale * heed_row_product(query, rotated + (int64_t)j * s.d, s.d);
        most = weight[j] > most ? weight[j] : most;
    }
    for (int j = 0; j <= p; j++)
        sum += weight[j] = heed_exp(weight[j] - most);
    for (int j = 0; j <= p; j++)
        weight[j] /= sum;
}

/* Outputs of token t, at place p of its segment; `v` are the segment's values. */
static void read(const heed_form_state *form, const heed_scan_own *own, int t, int p, const float *v,
                 const float *M, const room *r)
{
    const sizes s = sizes_of(form);
    const float share = heed_sigmoid(own->beta[t]), *z = M + (int64_t)s.d * s.e;
    for (int h = 0; h < own->group; h++) {
        const int64_t row = (int64_t)h * own->count + t;
        float *out = own->out + row * s.e;
        rotate(form, own->q + row * s.d, p, s.d, 1, r->query);
        weigh(s, r->query, r->rotated, p, r->weight);
        heed_matrix_read(v, r->weight, p + 1, s.e, out);
        features(own->q + row * s.d, s.d, r->query);
        memset(r->y, 0, (size_t)s.e * sizeof(float));
        if (M[held(s) - 1] > 0)
            recall(s, M, z, r->query, r->y);
        for (int c = 0; c < s.e; c++)
            out[c] = share * r->y[c] + (1 - share) * out[c];
    }
}

static void pass(const heed_form_state *form, const heed_scan_own *own)
{
    const sizes s = sizes_of(form);
    const memory at = memory_at(s, own->state);
    room r;
    lay_out(s, 0, false, own->work, &r);
    int p = (int)*at.place;
    for (int j = 0; j < p; j++)
        rotate(form, at.k + (int64_t)j * s.d, j, s.d, 1, r.rotated + (int64_t)j * s.d);
    for (int t = 0; t < own->count; t++) {
        memcpy(at.k + (int64_t)p * s.d, own->k + (int64_t)t * s.d, (size_t)s.d * sizeof(float));
        memcpy(at.v + (int64_t)p * s.e, own->v + (int64_t)t * s.e, (size_t)s.e * sizeof(float));
        rotate(form, at.k + (int64_t)p * s.d, p, s.d, 1, r.rotated + (int64_t)p * s.d);
        read(form, own, t, p, at.v, at.M, &r);
        if (++p < s.n)
            continue;
        memcpy(r.old, at.M, (size_t)held(s) * sizeof(float));
        absorb(form, at.k, at.v, r.old, at.M, &r);
        p = 0;
    }
    *at.place = (float)p;
}

/* One token of one query head, whose segment begins at token `first`. */
static void read_back(const heed_form_state *form, const heed_scan_own *own, int h, int t, int first,
                      const float *M, const room *r)
{
    const sizes s = sizes_of(form);
    const int p = t - first;
    const int64_t row = (int64_t)h * own->count + t, size = (int64_t)s.d * s.e;
    const float share = heed_sigmoid(own->beta[t]), *q = own->q + row * s.d, *dout = own->dout + row * s.e;
    const float *v = own->v + (int64_t)first * s.e, scale = 1 / sqrtf((float)s.d);
    float *dv = own->dv + (int64_t)first * s.e, local = 0, remembered = 0, along = 0;
    rotate(form, q, p, s.d, 1, r->query);
    weigh(s, r->query, r->rotated, p, r->weight);
    for (int j = 0; j <= p; j++) {
        r->dweight[j] = heed_row_product(dout, v + (int64_t)j * s.e, s.e);
        local += r->weight[j] * r->dweight[j];
        for (int c = 0; c < s.e; c++)
            dv[(int64_t)j * s.e + c] += (1 - share) * r->weight[j] * dout[c];
    }
    along = local;
    memset(r->dquery, 0, (size_t)s.d * sizeof(float));
    for (int j = 0; j <= p; j++) {
        const float ds = (1 - share) * scale * r->weight[j] * (r->dweight[j] - along);
        for (int i = 0; i < s.d; i++) {
            r->dquery[i] += ds * r->rotated[(int64_t)j * s.d + i];
            r->drotated[(int64_t)j * s.d + i] += ds * r->query[i];
        }
    }
    rotate(form, r->dquery, p, s.d, -1, r->query);
    for (int i = 0; i < s.d; i++)
        own->dq[row * s.d + i] += r->query[i];
    if (M[held(s) - 1] > 0) {
        features(q, s.d, r->query);
        const float norm = recall(s, M, M + size, r->query, r->y);
        remembered = heed_row_product(dout, r->y, s.e);
        for (int c = 0; c < s.e; c++)
            r->dy[c] = share * dout[c];
        memset(r->dquery, 0, (size_t)s.d * sizeof(float));
        recall_back(s, M, M + size, r->query, r->y, norm, r->dy, r->dquery, r->dmemory, r->dmemory + size);
        features_back(q, s.d, r->dquery, own->dq + row * s.d);
    }
    own->dbeta[t] += share * (1 - share) * (remembered - local);
}

static void back(const heed_form_state *form, const heed_scan_own *own)
{
    const sizes s = sizes_of(form);
    const int segments = (own->count + s.n - 1) / s.n;
    const size_t bytes = (size_t)held(s) * sizeof(float);
    room r;
    lay_out(s, own->count, true, own->work, &r);
    memset(r.memories, 0, bytes);
    for (int g = 0; (g + 1) * s.n <= own->count; g++) {
        float *next = r.memories + (g + 1) * held(s);
        memcpy(next, next - held(s), bytes);
        absorb(form, own->k + (int64_t)g * s.n * s.d, own->v + (int64_t)g * s.n * s.e, next - held(s), next,
               &r);
    }
    memset(r.dmemory, 0, bytes);
    for (int g = segments - 1; g >= 0; g--) {
        const int first = g * s.n, end = first + s.n < own->count ? first + s.n : own->count;
        const float *M = r.memories + g * held(s);
        if (first + s.n <= own->count)
            absorb_back(form, own, first, M, &r);
        memset(r.drotated, 0, (size_t)s.n * (size_t)s.d * sizeof(float));
        for (int t = first; t < end; t++)
            rotate(form, own->k + (int64_t)t * s.d, t - first, s.d, 1,
                   r.rotated + (int64_t)(t - first) * s.d);
        for (int t = first; t < end; t++)
            for (int h = 0; h < own->group; h++)
                read_back(form, own, h, t, first, M, &r);
        for (int t = first; t < end; t++) {
            rotate(form, r.drotated + (int64_t)(t - first) * s.d, t - first, s.d, -1, r.query);
            for (int i = 0; i < s.d; i++)
                own->dk[(int64_t)t * s.d + i] += r.query[i];
        }
    }
}

static const heed_option updates[] = {{"linear", NULL}, {"delta", NULL}, {NULL, NULL}};
static const heed_arg args[] = {
    [SEGMENT] = {.name = "segment",
                 .kind = HEED_ARG_INT,
                 .value = 2048,
                 .least = 1,
                 .most = 1 << 20,
                 .summary = "tokens of a segment"},
    [UPDATE] = {.name = "update",
                .kind = HEED_ARG_CHOICE,
                .options = updates,
                .summary = "values are added to the memory as they are, or less what it has of them"},
    [BASE] = {.name = "base",
              .value = 10000,
              .least = 0,
              .most = 1e12,
              .summary = "of the rotation within the segment; 0: none"},
    {0},
};

static int channels(const heed_form_state *form, int dim)
{
    (void)form, (void)dim;
    return 1;
}

static const heed_scan_loops loops = {state_floats, work_floats, pass, back};
static const heed_scan_rule rule = {
    .flags = HEED_SCAN_READS_BETA | HEED_SCAN_MIXES, .channels = channels, .loops = &loops};

const heed_form HEED_FORM(scan_infini) = {
    .name = "infini",
    .stage = HEED_SCAN,
    .summary = "softmax within a segment, and a compressive memory of the segments before",
    .formula = "sigmoid(b) s(q) M / (s(q) z) + (1 - sigmoid(b)) softmax within the segment",
    .source = "Munkhdalai, Faruqui, Gopal: Leave No Context Behind, 2024",
    .row = "001.161",
    .args = args,
    .scan = &rule,
};
