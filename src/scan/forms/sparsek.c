/* SparseK attention (row 001.160): each query reads the k keys of highest score so far and a window, and what
 * is dropped never comes back.
 *
 *     p^t = argmin |p - u_1..t|^2, 0 <= p <= 1, sum p = k:     p_j = clip(u_j - tau_t, 0, 1)
 *     out_t = sum_j w_tj m_tj v_j,     w softmax over the window and the k highest u_j with p_j > 0
 *     m = 1 in the window, else p_j;     u_j = beta_j + slope j
 *
 * tau never falls, so a pair with p = 0 is done with and the state is k pairs, a window and `scores` numbers:
 * those with p > 0 count in tau even where they are not among the k highest; of more than `scores` the lowest
 * are forgotten. p carries the gradient to the scores: du = dp - mean of dp, over 0 < p < 1. q and k are
 * rotated by RoPE of `base`, an odd entry at the end stays; 0 leaves them as they are. Lou, Jia, Zheng, Tu:
 * Sparser is Faster and Less is More, 2024.
 */
#include "scan/forms/clip.h"
#include "scan/forms/matrix.h"
#include "scan/forms/parts.h"

enum { MOST, WINDOW, BASE, SLOPE, SCORES };
enum { WRAP = 1 << 20 }; /* places are two floats, exact as far as any text reaches */

typedef struct sizes {
    int d, e, most, window, scores;
} sizes;

static sizes sizes_of(const heed_form_state *form)
{
    return (sizes){(int)form->sizes.dim, (int)form->sizes.value_dim, heed_arg_int(form, MOST),
                   heed_arg_int(form, WINDOW), heed_arg_int(form, SCORES)};
}

/* Pairs 0 .. most - 1 are the kept ones, those behind them the window's, token t at t mod window. `inside`
 * counts down the tokens for which a kept pair is in the window too. */
typedef struct held {
    float *wraps, *place, *scores, *kept;
    float *score, *score_at;         /* [scores] falling, of equal ones the earlier first; their tokens */
    float *kept_score, *at, *inside; /* [most] */
    float *k, *v;                    /* [most + window][D], [E]; keys rotated */
} held;

typedef struct room {
    float *query, *turned, *p, *w, *dw, *dp, *dk;
} room;

static int64_t lay_out_state(sizes s, float *at, held *h)
{
    int64_t used = 0;
#define TAKE(count) (used += (count), at ? at + used - (count) : NULL)
    h->wraps = TAKE(1);
    h->place = TAKE(1);
    h->scores = TAKE(1);
    h->kept = TAKE(1);
    h->score = TAKE(s.scores);
    h->score_at = TAKE(s.scores);
    h->kept_score = TAKE(s.most);
    h->at = TAKE(s.most);
    h->inside = TAKE(s.most);
    h->k = TAKE((int64_t)(s.most + s.window) * s.d);
    h->v = TAKE((int64_t)(s.most + s.window) * s.e);
    return used;
}

static int64_t lay_out(sizes s, int64_t tokens, bool backward, float *at, room *r)
{
    int64_t used = 0;
    r->query = TAKE(s.d);
    r->turned = TAKE(s.d);
    r->p = TAKE(s.most + s.window);
    r->w = TAKE(s.most + s.window);
    if (backward) {
        r->dw = TAKE(s.most + s.window);
        r->dp = TAKE(s.most);
        r->dk = TAKE(tokens * s.d);
    }
#undef TAKE
    return used;
}

static int64_t state_floats(const heed_form_state *form)
{
    held h;
    return lay_out_state(sizes_of(form), NULL, &h);
}

static int64_t work_floats(const heed_form_state *form, int64_t tokens, bool backward)
{
    room r;
    return lay_out(sizes_of(form), tokens, backward, NULL, &r);
}

/* Pairs (x_i, x_{i + D/2}) by place base^(-2 i / D); sign -1 turns back. */
static void rotate(const heed_form_state *form, const float *x, double place, int d, float sign, float *y)
{
    const double base = form->arg[BASE].number;
    memcpy(y, x, (size_t)d * sizeof(float));
    for (int i = 0; base > 0 && i < d / 2; i++) {
        const double angle = place * pow(base, -2.0 * i / d);
        const float c = (float)cos(angle), n = sign * (float)sin(angle), a = x[i], b = x[i + d / 2];
        y[i] = a * c - b * n;
        y[i + d / 2] = a * n + b * c;
    }
}

static double place_of(const held *h)
{
    return (double)*h->wraps * WRAP + (double)*h->place;
}

static void insert_score(sizes s, held *h, float u, float at)
{
    int n = (int)*h->scores, i;
    if (n == s.scores && u <= h->score[n - 1])
        return;
    n -= n == s.scores;
    for (i = n; i > 0 && h->score[i - 1] < u; i--) {
        h->score[i] = h->score[i - 1];
        h->score_at[i] = h->score_at[i - 1];
    }
    h->score[i] = u;
    h->score_at[i] = at;
    *h->scores = (float)(n + 1);
}

/* The pair for a new token of score u: a free one, or the kept one of lowest score, of equal ones the latest;
 * -1 where all are higher. */
static int place_for(sizes s, held *h, float u)
{
    const int n = (int)*h->kept;
    int lowest = 0;
    if (n < s.most) {
        *h->kept = (float)(n + 1);
        return n;
    }
    for (int i = 1; i < n; i++)
        if (h->kept_score[i] < h->kept_score[lowest] ||
            (h->kept_score[i] <= h->kept_score[lowest] && h->at[i] > h->at[lowest]))
            lowest = i;
    return u > h->kept_score[lowest] ? lowest : -1;
}

/* A token enters; p of all pairs, -1 where there is none to read. Returns tau. */
static double take(const heed_form_state *form, const heed_scan_own *own, int t, held *h, float *p)
{
    const sizes s = sizes_of(form);
    const double place = place_of(h);
    const float u = own->beta[t] + (float)(form->arg[SLOPE].number * place);
    const int ring = s.most + (int)((int64_t)place % s.window), slot = place_for(s, h, u);
    for (int i = 0; i < (int)*h->kept; i++)
        h->inside[i] -= h->inside[i] > 0;
    rotate(form, own->k + (int64_t)t * s.d, place, s.d, 1, h->k + (int64_t)ring * s.d);
    memcpy(h->v + (int64_t)ring * s.e, own->v + (int64_t)t * s.e, (size_t)s.e * sizeof(float));
    if (slot >= 0) {
        memcpy(h->k + (int64_t)slot * s.d, h->k + (int64_t)ring * s.d, (size_t)s.d * sizeof(float));
        memcpy(h->v + (int64_t)slot * s.e, h->v + (int64_t)ring * s.e, (size_t)s.e * sizeof(float));
        h->kept_score[slot] = u;
        h->at[slot] = (float)place;
        h->inside[slot] = (float)s.window;
    }
    insert_score(s, h, u, (float)place);
    const double tau = heed_clip_threshold(h->score, (int64_t)*h->scores, s.most);
    while (*h->scores > 0 && (double)h->score[(int)*h->scores - 1] <= tau)
        *h->scores -= 1;
    for (int i = 0; i < s.most; i++) {
        const float clipped = i < (int)*h->kept ? heed_clip(h->kept_score[i], tau) : 0;
        p[i] = clipped > 0 && h->inside[i] <= 0 ? clipped : -1;
    }
    for (int i = 0; i < s.window; i++)
        p[s.most + i] = i <= place ? 1 : -1;
    if (++*h->place >= WRAP) {
        *h->place = 0;
        *h->wraps += 1;
    }
    return tau;
}

/* Softmax of the products of a rotated query with the pairs that have a p. */
static void weigh(sizes s, const float *query, const held *h, const float *p, float *w)
{
    const float scale = 1 / sqrtf((float)s.d);
    float most = -INFINITY, sum = 0;
    for (int i = 0; i < s.most + s.window; i++) {
        w[i] = p[i] < 0 ? -INFINITY : scale * heed_row_product(query, h->k + (int64_t)i * s.d, s.d);
        most = w[i] > most ? w[i] : most;
    }
    for (int i = 0; i < s.most + s.window; i++)
        sum += w[i] = p[i] < 0 ? 0 : heed_exp(w[i] - most);
    for (int i = 0; i < s.most + s.window; i++)
        w[i] /= sum;
}

static void pass(const heed_form_state *form, const heed_scan_own *own)
{
    const sizes s = sizes_of(form);
    held h;
    room r;
    lay_out_state(s, own->state, &h);
    lay_out(s, 0, false, own->work, &r);
    for (int t = 0; t < own->count; t++) {
        const double place = place_of(&h);
        take(form, own, t, &h, r.p);
        for (int g = 0; g < own->group; g++) {
            const int64_t row = (int64_t)g * own->count + t;
            rotate(form, own->q + row * s.d, place, s.d, 1, r.query);
            weigh(s, r.query, &h, r.p, r.w);
            for (int i = 0; i < s.most + s.window; i++)
                r.w[i] *= r.p[i] > 0 ? r.p[i] : 0;
            heed_matrix_read(h.v, r.w, s.most + s.window, s.e, own->out + row * s.e);
        }
    }
}

/* The token that a pair holds when token t has just entered. */
static int token_of(sizes s, const held *h, int i, int t)
{
    return i < s.most ? (int)h->at[i] : t - (t - (i - s.most)) % s.window;
}

static void read_back(const heed_form_state *form, const heed_scan_own *own, int g, int t, const held *h,
                      const room *r)
{
    const sizes s = sizes_of(form);
    const int64_t row = (int64_t)g * own->count + t;
    const float *dout = own->dout + row * s.e, scale = 1 / sqrtf((float)s.d);
    float along = 0;
    rotate(form, own->q + row * s.d, t, s.d, 1, r->query);
    weigh(s, r->query, h, r->p, r->w);
    for (int i = 0; i < s.most + s.window; i++) {
        if (r->p[i] < 0)
            continue;
        const float meets = heed_row_product(dout, h->v + (int64_t)i * s.e, s.e);
        float *dv = own->dv + (int64_t)token_of(s, h, i, t) * s.e;
        r->dw[i] = r->p[i] * meets;
        along += r->w[i] * r->dw[i];
        if (i < s.most)
            r->dp[i] += r->w[i] * meets;
        for (int c = 0; c < s.e; c++)
            dv[c] += r->w[i] * r->p[i] * dout[c];
    }
    memset(r->turned, 0, (size_t)s.d * sizeof(float));
    for (int i = 0; i < s.most + s.window; i++) {
        if (r->p[i] < 0)
            continue;
        const float ds = scale * r->w[i] * (r->dw[i] - along);
        float *dk = r->dk + (int64_t)token_of(s, h, i, t) * s.d;
        for (int c = 0; c < s.d; c++) {
            r->turned[c] += ds * h->k[(int64_t)i * s.d + c];
            dk[c] += ds * r->query[c];
        }
    }
    rotate(form, r->turned, t, s.d, -1, r->query);
    for (int c = 0; c < s.d; c++)
        own->dq[row * s.d + c] += r->query[c];
}

/* From dp of the kept pairs to the scores that are neither 0 nor whole. */
static void clip_back(sizes s, const heed_scan_own *own, const held *h, double tau, const room *r)
{
    float sum = 0;
    int between = 0;
    for (int i = 0; i < s.most; i++)
        if (r->p[i] > 0 && r->p[i] < 1) {
            sum += r->dp[i];
            own->dbeta[(int)h->at[i]] += r->dp[i];
        }
    for (int i = 0; i < (int)*h->scores; i++)
        between += heed_clip(h->score[i], tau) < 1;
    for (int i = 0; i < (int)*h->scores; i++)
        if (heed_clip(h->score[i], tau) < 1)
            own->dbeta[(int)h->score_at[i]] -= sum / (float)between;
}

static void back(const heed_form_state *form, const heed_scan_own *own)
{
    const sizes s = sizes_of(form);
    held h;
    room r;
    lay_out_state(s, own->state, &h);
    lay_out(s, own->count, true, own->work, &r);
    memset(r.dk, 0, (size_t)own->count * (size_t)s.d * sizeof(float));
    for (int t = 0; t < own->count; t++) {
        const double tau = take(form, own, t, &h, r.p);
        memset(r.dp, 0, (size_t)s.most * sizeof(float));
        for (int g = 0; g < own->group; g++)
            read_back(form, own, g, t, &h, &r);
        clip_back(s, own, &h, tau, &r);
    }
    for (int t = 0; t < own->count; t++) {
        rotate(form, r.dk + (int64_t)t * s.d, t, s.d, -1, r.query);
        for (int c = 0; c < s.d; c++)
            own->dk[(int64_t)t * s.d + c] += r.query[c];
    }
}

static const heed_arg args[] = {
    [MOST] = {.name = "k",
              .kind = HEED_ARG_INT,
              .value = 128,
              .least = 1,
              .most = 1 << 16,
              .summary = "pairs that stay, and what p sums to"},
    [WINDOW] = {.name = "window",
                .kind = HEED_ARG_INT,
                .value = 256,
                .least = 1,
                .most = 1 << 16,
                .summary = "last tokens that are read in any case, the token itself counted"},
    [BASE] = {.name = "base",
              .value = 10000,
              .least = 0,
              .most = 1e12,
              .summary = "of the rotation of queries and keys; 0: none"},
    [SLOPE] = {.name = "slope",
               .value = 0,
               .least = -100,
               .most = 100,
               .summary = "what a token's score rises by from one to the next, so that newer ones can win"},
    [SCORES] = {.name = "scores",
                .kind = HEED_ARG_INT,
                .value = 4096,
                .least = 1,
                .most = 1 << 20,
                .summary = "scores that are remembered, the highest"},
    {0},
};

static heed_status resolve(heed_form_state *form)
{
    const sizes s = sizes_of(form);
    if (s.scores <= s.most)
        return heed_fail(HEED_INVALID, "scan=sparsek: scores=%d must be more than k=%d", s.scores, s.most);
    return HEED_OK;
}

static int channels(const heed_form_state *form, int dim)
{
    (void)form, (void)dim;
    return 1;
}

static const heed_scan_loops loops = {state_floats, work_floats, pass, back};
static const heed_scan_rule rule = {
    .flags = HEED_SCAN_READS_BETA | HEED_SCAN_SCORES, .channels = channels, .loops = &loops};

const heed_form HEED_FORM(scan_sparsek) = {
    .name = "sparsek",
    .stage = HEED_SCAN,
    .summary = "the keys that a learnt score keeps, and a window: what is dropped never comes back",
    .formula = "sum_j softmax_j p_j v_j, p = clip(u - tau, 0, 1) with sum k over the scores u so far",
    .source = "Lou, Jia, Zheng, Tu: Sparser is Faster and Less is More, 2024",
    .row = "001.160",
    .args = args,
    .resolve = resolve,
    .scan = &rule,
};
