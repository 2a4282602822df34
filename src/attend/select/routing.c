/* Routing by online k-means: tokens attend within clusters that all hold equally many.
 *
 *     keys of cluster c = the `size` of largest mu_c · k_j, of equal ones the lower, in the order of the text
 *     queries of cluster c = as many, of largest mu_c · q_i
 *     out_i = mean over the clusters that i is in of a softmax within each; with merge=last that of the last
 *
 * Where a text is read in pieces, only some queries are there: a cluster then has those whose product reaches
 * the least of its keys, which with q = k is the same.
 *
 * A query in no cluster reads nothing. Rows are those that are compared: with score=layernorm, and q = k in
 * causal use, these are the published ones; half of the heads are local there (`heads 0-3: where=causal &
 * window(256)`). The choice looks at the whole text, so later tokens can shut out earlier ones; read on token
 * by token, a text shuts nothing out but what came before. Lists do not pass gradients on, and centroids have
 * none: calibrated, they follow the tokens nearest to them,
 *
 *     mu <- decay mu + (1 - decay) / 2 (mean of its queries + mean of its keys)
 *
 * Roy et al.: Efficient Content-Based Sparse Attention with Routing Transformers, 2020.
 */
#include "attend/form.h"
#include "attend/select/cut.h"
#include "attend/select/draw.h"
#include "base/arena.h"
#include "base/vectors.h"

#include <float.h>
#include <heed/gather.h>
#include <string.h>

enum { CLUSTERS, SIZE, MERGE, DECAY };
enum { ROWS = 128 }; /* keys that are loaded at a time */

static int64_t clusters_of(const heed_form_state *form)
{
    return heed_arg_int(form, CLUSTERS);
}

static heed_status resolve(heed_form_state *form)
{
    const double keys = form->sizes.keys > 0 ? (double)form->sizes.keys : 1;
    if (!form->arg[CLUSTERS].given)
        form->arg[CLUSTERS].number = fmax(1, floor(sqrt(keys)));
    if (!form->arg[SIZE].given)
        form->arg[SIZE].number = ceil(keys / form->arg[CLUSTERS].number);
    return HEED_OK;
}

/* As long as a row of variance 1. */
static void fill(const heed_form_state *form, float *mu)
{
    uint64_t state = 1;
    const int64_t n = form->sizes.heads * clusters_of(form) * form->sizes.dim;
    heed_draw_normal(&state, n, mu);
    for (int64_t i = 0; i < n; i++)
        mu[i] *= 1.7320508f;
}

typedef struct lists {
    int64_t size;       /* keys in a cluster */
    int32_t *key;       /* [clusters][size] */
    uint8_t *member;    /* [clusters][N] */
    int32_t *count;     /* [N] clusters of a query */
    int32_t *last;      /* [N] */
    int32_t *held;      /* [clusters] keys of a cluster */
    int32_t *query;     /* [N] of the cluster at hand */
    float *share;       /* [N] likewise */
    float *value;       /* [clusters][M] products with keys */
    float *line, *work; /* [N or M, the larger] */
    float *rows;        /* [ROWS][dim] */
} lists;

static lists carve(const heed_form_state *form, void *base, size_t *bytes)
{
    const size_t N = (size_t)form->sizes.queries, M = (size_t)form->sizes.keys, most = N > M ? N : M;
    const size_t clusters = (size_t)clusters_of(form), asked = (size_t)heed_arg_int(form, SIZE);
    heed_arena arena = {.base = base};
    lists l = {.size = (int64_t)(asked < M ? asked : M)};
    l.key = heed_arena_take(&arena, clusters * (size_t)l.size, sizeof *l.key);
    l.member = heed_arena_take(&arena, clusters * N, 1);
    int32_t **whole[] = {&l.count, &l.last, &l.query};
    for (int i = 0; i < 3; i++)
        *whole[i] = heed_arena_take(&arena, N, sizeof(int32_t));
    l.held = heed_arena_take(&arena, clusters, sizeof *l.held);
    l.share = heed_arena_take(&arena, N, sizeof *l.share);
    l.value = heed_arena_take(&arena, clusters * M, sizeof *l.value);
    l.line = heed_arena_take(&arena, most, sizeof *l.line);
    l.work = heed_arena_take(&arena, most, sizeof *l.work);
    l.rows = heed_arena_take(&arena, ROWS * (size_t)form->sizes.dim, sizeof *l.rows);
    *bytes = arena.used;
    return l;
}

static size_t bytes_of(const heed_form_state *form)
{
    size_t bytes;
    carve(form, NULL, &bytes);
    return bytes;
}

static void measure_keys(const heed_form_state *form, const heed_gathering *at, const float *mu, lists *l)
{
    for (int64_t j = 0; j < at->keys; j += ROWS) {
        const int64_t here = at->keys - j < ROWS ? at->keys - j : ROWS;
        at->load_keys(at, j, here, l->rows, at->dim);
        for (int64_t c = 0; c < clusters_of(form); c++)
            for (int64_t i = 0; i < here; i++) {
                const float value = heed_row_product(mu + c * at->dim, l->rows + i * at->dim, at->dim);
                l->value[c * form->sizes.keys + j + i] = value == value ? value : -INFINITY;
            }
    }
}

/* The keys of a cluster, and the least of their products. */
static int64_t choose_keys(const heed_gathering *at, lists *l, float *value, int32_t *key, float *least)
{
    int64_t count = 0;
    *least = INFINITY;
    heed_keep_highest(value, (int)at->keys, l->size, l->work);
    for (int64_t j = 0; j < at->keys; j++) {
        if (value[j] == -INFINITY)
            continue;
        key[count++] = (int32_t)j;
        *least = value[j] < *least ? value[j] : *least;
    }
    return count;
}

static void choose_queries(const heed_gathering *at, lists *l, const float *mu, float scale, float least,
                           uint8_t *member)
{
    for (int64_t i = 0; i < at->queries; i++) {
        const float value = heed_row_product(mu, at->query + i * at->query_stride, at->dim) / scale;
        l->line[i] = value == value ? value : -INFINITY;
    }
    if (at->queries == at->keys) {
        heed_keep_highest(l->line, (int)at->queries, l->size, l->work);
        least = -FLT_MAX;
    }
    for (int64_t i = 0; i < at->queries; i++)
        member[i] = l->line[i] >= least;
}

static void gather(const heed_form_state *form, const heed_gathering *at)
{
    const int64_t clusters = clusters_of(form), N = form->sizes.queries;
    const float *mu = form->param[0] + at->head * clusters * at->dim;
    const bool last = form->arg[MERGE].number == 1;
    size_t bytes;
    lists l = carve(form, at->work, &bytes);
    memset(l.count, 0, (size_t)N * sizeof *l.count);
    measure_keys(form, at, mu, &l);
    for (int64_t c = 0; c < clusters; c++) {
        float least, *value = l.value + c * form->sizes.keys;
        l.held[c] = (int32_t)choose_keys(at, &l, value, l.key + c * l.size, &least);
        choose_queries(at, &l, mu + c * at->dim, (float)at->query_scale, least, l.member + c * N);
        for (int64_t i = 0; i < at->queries; i++) {
            l.count[i] += l.member[c * N + i];
            l.last[i] = l.member[c * N + i] ? (int32_t)c : l.last[i];
        }
    }
    for (int64_t c = 0; c < clusters; c++) {
        int64_t queries = 0;
        for (int64_t i = 0; i < at->queries; i++) {
            if (!l.member[c * N + i] || (last && l.last[i] != c))
                continue;
            l.share[queries] = last ? 1.0f : 1.0f / (float)l.count[i];
            l.query[queries++] = (int32_t)i;
        }
        if (queries > 0)
            at->meet(at, &(heed_meeting){.query = l.query,
                                         .queries = queries,
                                         .key = l.key + c * l.size,
                                         .keys = l.held[c],
                                         .share = l.share});
    }
}

/* ---- centroids ---- */

/* [H][clusters][dim] centroids, then [H] whether they have begun */
static int64_t sums(const heed_form_state *form)
{
    return form->sizes.heads * (clusters_of(form) * form->sizes.dim + 1);
}

/* [2][clusters][dim] sums of queries and of keys, [2][clusters] how many */
static int64_t work(const heed_form_state *form, int64_t tokens)
{
    (void)tokens;
    return 2 * clusters_of(form) * (form->sizes.dim + 1);
}

static int64_t nearest(const double *mu, const float *row, int64_t clusters, int64_t dim)
{
    int64_t best = 0;
    double most = -INFINITY;
    for (int64_t c = 0; c < clusters; c++) {
        double value = 0;
        for (int64_t x = 0; x < dim; x++)
            value += mu[c * dim + x] * (double)row[x];
        best = value > most ? c : best;
        most = value > most ? value : most;
    }
    return best;
}

static void follow(const heed_form_state *form, const heed_shown *shown, int h, double *mu, float *room)
{
    const int64_t clusters = clusters_of(form), dim = form->sizes.dim;
    const double decay = form->arg[DECAY].number, scale = form->sizes.score_scale;
    float *count = room + 2 * clusters * dim;
    memset(room, 0, (size_t)work(form, 0) * sizeof *room);
    for (int64_t i = 0; i < 2 * shown->tokens; i++) {
        const bool key = i >= shown->tokens;
        const int64_t token = key ? i - shown->tokens : i;
        const float *row = key ? shown->key + token * dim : shown->query + (h * shown->tokens + token) * dim;
        const int64_t c = key * clusters + nearest(mu, row, clusters, dim);
        for (int64_t x = 0; x < dim; x++)
            room[c * dim + x] += key ? row[x] : row[x] / (float)scale;
        count[c] += 1;
    }
    for (int64_t c = 0; c < clusters; c++) {
        if (count[c] == 0 || count[clusters + c] == 0)
            continue; /* stays */
        for (int64_t x = 0; x < dim; x++)
            mu[c * dim + x] = decay * mu[c * dim + x] +
                              (1 - decay) / 2 *
                                  ((double)(room[c * dim + x] / count[c]) +
                                   (double)(room[(clusters + c) * dim + x] / count[clusters + c]));
    }
}

/* Centroids begin at keys that stand evenly apart. */
static void learn(const heed_form_state *form, const heed_shown *shown, double *all, float *room)
{
    const int64_t clusters = clusters_of(form), dim = form->sizes.dim;
    for (int h = 0; h < shown->group; h++) {
        const int64_t head = (int64_t)shown->kv_head * shown->group + h;
        double *mu = all + head * clusters * dim, *begun = all + form->sizes.heads * clusters * dim + head;
        for (int64_t c = 0; c < clusters && *begun == 0; c++)
            for (int64_t x = 0; x < dim; x++)
                mu[c * dim + x] = (double)shown->key[c * shown->tokens / clusters * dim + x];
        *begun = 1;
        follow(form, shown, h, mu, room);
    }
}

static heed_status settle(const heed_form_state *form, const double *all, float *const *param)
{
    for (int64_t i = 0; i < form->sizes.heads * clusters_of(form) * form->sizes.dim; i++)
        param[0][i] = (float)all[i];
    return HEED_OK;
}

static const heed_calibration calibration = {.sums = sums, .work = work, .gather = learn, .settle = settle};

static const heed_option merges[] = {{"mean", NULL}, {"last", NULL}, {NULL, NULL}};

static const heed_arg args[] = {
    [CLUSTERS] = {.name = "clusters",
                  .kind = HEED_ARG_INT,
                  .value = NAN,
                  .computed = "sqrt(M)",
                  .least = 1,
                  .most = 65536,
                  .summary = "centroids of a head"},
    [SIZE] = {.name = "size",
              .kind = HEED_ARG_INT,
              .value = NAN,
              .computed = "M/clusters",
              .least = 1,
              .most = INFINITY,
              .summary = "tokens in a cluster"},
    [MERGE] = {.name = "merge",
               .kind = HEED_ARG_CHOICE,
               .options = merges,
               .summary = "of a token in several clusters: the mean, or the last of them"},
    [DECAY] = {.name = "decay",
               .value = 0.999,
               .least = 0,
               .most = 1,
               .summary = "calibration: what a window leaves of a centroid"},
    {0},
};

static const heed_param params[] = {
    {.name = "mu", .shape = "H,clusters,D", .fill = fill, .summary = "centroids"},
    {0},
};

static const heed_gather_rule rule = {.apart = true, .bytes = bytes_of, .gather = gather};

const heed_form HEED_FORM(select_routing) = {
    .name = "routing",
    .stage = HEED_SELECT,
    .summary = "attention within clusters of equally many tokens",
    .formula = "mean over clusters c of softmax over the `size` keys of largest mu_c · k",
    .source = "Roy et al.: Efficient Content-Based Sparse Attention with Routing Transformers, 2020",
    .row = "001.108",
    .args = args,
    .params = params,
    .resolve = resolve,
    .gathers = &rule,
    .calibration = &calibration,
};
