/* Clusters of keys: those whose centroid lies furthest along the query are read.
 *
 *     the keys of a prompt are put into ceil(n / size) clusters by k-means (Lloyd's rounds, Euclidean)
 *     g_c = max over the query heads of the kv head of q · centroid of c
 *
 * Clusters are read in falling order of g, of equal ones the lower, until k keys are; the last one whole.
 * Only the centroids are compared with the query: a share of 1/size of the keys. While generating only;
 * prompts are read in full.
 */
#include "attend/select/index.h"

enum { SIZE, K, ROUNDS, FRESH };

static int64_t clusters_of(const heed_form_state *form, int64_t keys)
{
    return (keys + heed_arg_int(form, SIZE) - 1) / heed_arg_int(form, SIZE);
}

/* Behind number[0] [kv_heads][keys] clusters of keys */
static int64_t numbers(const heed_form_state *form, int64_t keys)
{
    return 1 + form->sizes.kv_heads * keys;
}

/* [kv_heads][clusters][dim] centroids */
static int64_t reals(const heed_form_state *form, int64_t keys)
{
    return form->sizes.kv_heads * clusters_of(form, keys) * form->sizes.dim;
}

static int64_t work(const heed_form_state *form, int64_t keys)
{
    return HEED_INDEX_ROWS * form->sizes.dim + clusters_of(form, keys) * (form->sizes.dim + 2);
}

static bool renews(const heed_form_state *form, const heed_recalled *now)
{
    return heed_index_renews(form, now, FRESH);
}

static float *centroids_of(const heed_form_state *form, const heed_recalled *now, int g)
{
    return now->memory->real + g * clusters_of(form, form->sizes.keys) * now->dim;
}

static void remember(const heed_form_state *form, const heed_recalled *now)
{
    float *rows = now->work + 2 * now->keys;
    const int64_t clusters = clusters_of(form, now->keys);
    now->memory->number[0] = 0;
    for (int g = 0; g < now->kv_heads; g++) {
        int32_t *of = now->memory->number + 1 + g * form->sizes.keys;
        heed_clustered c = {.now = now,
                            .kv_head = g,
                            .clusters = (int)clusters,
                            .dim = now->dim,
                            .centroid = centroids_of(form, now, g),
                            .rows = rows};
        c.sum = rows + (int64_t)HEED_INDEX_ROWS * now->dim;
        c.half = c.sum + clusters * now->dim;
        c.count = c.half + clusters;
        now->memory->number[0] |= !heed_index_finite(now, g, rows);
        memset(of, 0, (size_t)now->keys * sizeof *of);
        heed_cluster(&c, heed_arg_int(form, ROUNDS), of, 0);
    }
}

static void recall_keys(const heed_form_state *form, const heed_recalled *now)
{
    const int64_t clusters = clusters_of(form, now->memory->keys), keys = now->memory->keys;
    const int group = now->heads / now->kv_heads;
    float *value = now->work, *size = now->work + now->keys;
    for (int g = 0; g < now->kv_heads; g++) {
        const float *centroid = centroids_of(form, now, g);
        const int32_t *of = now->memory->number + 1 + g * form->sizes.keys;
        for (int64_t c = 0; c < clusters; c++) {
            value[c] = -INFINITY;
            size[c] = 0;
            for (int h = g * group; h < (g + 1) * group; h++) {
                const float here = heed_row_product(now->query[h], centroid + c * now->dim, now->dim);
                value[c] = here > value[c] ? here : value[c];
            }
        }
        for (int64_t j = 0; j < keys; j++)
            size[of[j] >= 0 && of[j] < clusters ? of[j] : 0] += 1;
        for (int64_t read = 0, left = clusters; read < heed_arg_int(form, K) && left > 0; left--) {
            int64_t best = 0;
            for (int64_t c = 1; c < clusters; c++)
                best = value[c] > value[best] ? c : best;
            read += (int64_t)size[best];
            value[best] = -INFINITY;
            size[best] = -1; /* read */
        }
        for (int64_t j = 0; j < keys; j++)
            now->keep[g][j] = size[of[j] >= 0 && of[j] < clusters ? of[j] : 0] < 0;
        now->memory->scanned += clusters;
    }
}

static const heed_arg args[] = {
    {.name = "size",
     .kind = HEED_ARG_INT,
     .value = 16,
     .least = 1,
     .most = INFINITY,
     .summary = "keys in a cluster on average"},
    {.name = "k",
     .kind = HEED_ARG_INT,
     .value = 256,
     .least = 1,
     .most = INFINITY,
     .summary = "keys read, in whole clusters"},
    {.name = "rounds",
     .kind = HEED_ARG_INT,
     .value = 4,
     .least = 0,
     .most = 100,
     .summary = "of moving the centroids"},
    HEED_FRESH_ARG,
    {0},
};

static const heed_recall recall = {.flags = HEED_RECALL_AT_ONCE,
                                   .unit = heed_index_unit,
                                   .numbers = numbers,
                                   .reals = reals,
                                   .work = work,
                                   .renews = renews,
                                   .remember = remember,
                                   .recall = recall_keys};

const heed_form HEED_FORM(select_kmeans) = {
    .name = "kmeans",
    .stage = HEED_SELECT,
    .summary = "while generating: clusters of keys whose centroids lie furthest along the query",
    .formula = "clusters of largest max over the group of q · centroid, until k keys are read",
    .source = "Liu et al.: ClusterKV, 2024",
    .args = args,
    .recall = &recall,
};
