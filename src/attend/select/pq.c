/* Product quantisation: a small code of each key says how large its product with the query may be.
 *
 *     a key is cut into `parts`; each part stands for the nearest of 2^bits centroids (k-means)
 *     estimate of q·k_j = sum over parts of q_part · centroid of part of j
 *
 * Each query head takes the k keys of largest estimate, of equal ones the lower; a kv head reads what any of
 * its query heads takes. A code takes parts * bits bits, at most 31. While generating only; prompts are read
 * in full.
 */
#include "attend/select/index.h"

enum { PARTS, BITS, K, ROUNDS, FRESH };

static int64_t part_of(const heed_form_state *form)
{
    return (form->sizes.dim + heed_arg_int(form, PARTS) - 1) / heed_arg_int(form, PARTS);
}

/* Entries of part p, the last of which may be short or empty. */
static int64_t entries_of(const heed_form_state *form, int p)
{
    const int64_t left = form->sizes.dim - p * part_of(form);
    return left < 0 ? 0 : left < part_of(form) ? left : part_of(form);
}

static int codes_of(const heed_form_state *form)
{
    return 1 << heed_arg_int(form, BITS);
}

static heed_status resolve(heed_form_state *form)
{
    if (heed_arg_int(form, PARTS) * heed_arg_int(form, BITS) > 31)
        return heed_fail(HEED_INVALID, "select=pq: %d parts of %d bits take more than 31 bits a key",
                         heed_arg_int(form, PARTS), heed_arg_int(form, BITS));
    return HEED_OK;
}

/* Behind number[0] [kv_heads][keys] codes */
static int64_t numbers(const heed_form_state *form, int64_t keys)
{
    return 1 + form->sizes.kv_heads * keys;
}

/* [kv_heads][parts][codes][part] centroids */
static int64_t reals(const heed_form_state *form, int64_t keys)
{
    (void)keys;
    return form->sizes.kv_heads * heed_arg_int(form, PARTS) * codes_of(form) * part_of(form);
}

static int64_t work(const heed_form_state *form, int64_t keys)
{
    (void)keys;
    return HEED_INDEX_ROWS * form->sizes.dim +
           codes_of(form) * (part_of(form) + 2 + heed_arg_int(form, PARTS));
}

static bool renews(const heed_form_state *form, const heed_recalled *now)
{
    return heed_index_renews(form, now, FRESH);
}

static float *centroids_of(const heed_form_state *form, const heed_recalled *now, int g, int p)
{
    return now->memory->real + ((int64_t)g * heed_arg_int(form, PARTS) + p) * codes_of(form) * part_of(form);
}

static void remember(const heed_form_state *form, const heed_recalled *now)
{
    float *rows = now->work + 2 * now->keys;
    now->memory->number[0] = 0;
    for (int g = 0; g < now->kv_heads; g++) {
        int32_t *code = now->memory->number + 1 + g * form->sizes.keys;
        now->memory->number[0] |= !heed_index_finite(now, g, rows);
        memset(code, 0, (size_t)now->keys * sizeof *code);
        for (int p = 0; p < heed_arg_int(form, PARTS); p++) {
            heed_clustered c = {.now = now,
                                .kv_head = g,
                                .clusters = codes_of(form),
                                .first = p * part_of(form),
                                .dim = entries_of(form, p),
                                .centroid = centroids_of(form, now, g, p),
                                .rows = rows};
            c.sum = rows + (int64_t)HEED_INDEX_ROWS * now->dim;
            c.half = c.sum + codes_of(form) * part_of(form);
            c.count = c.half + codes_of(form);
            if (c.dim > 0)
                heed_cluster(&c, heed_arg_int(form, ROUNDS), code, p * heed_arg_int(form, BITS));
        }
    }
}

/* product [parts][codes] of a query's parts with the centroids */
static void make_products(const heed_form_state *form, const heed_recalled *now, int g, const float *query,
                          float *product)
{
    for (int p = 0; p < heed_arg_int(form, PARTS); p++)
        for (int c = 0; c < codes_of(form); c++)
            product[p * codes_of(form) + c] = heed_row_product(
                query + p * part_of(form), centroids_of(form, now, g, p) + c * entries_of(form, p),
                entries_of(form, p));
}

static void recall_keys(const heed_form_state *form, const heed_recalled *now)
{
    const int group = now->heads / now->kv_heads, parts = heed_arg_int(form, PARTS),
              bits = heed_arg_int(form, BITS);
    const uint32_t last = (uint32_t)codes_of(form) - 1;
    float *estimate = now->work, *copy = now->work + now->keys, *product = now->work + 2 * now->keys;
    for (int h = 0; h < now->heads; h++) {
        const int32_t *code = now->memory->number + 1 + h / group * form->sizes.keys;
        make_products(form, now, h / group, now->query[h], product);
        for (int64_t j = 0; j < now->memory->keys; j++) {
            float sum = 0;
            for (int p = 0; p < parts; p++)
                sum += product[p * codes_of(form) + (int)((uint32_t)code[j] >> (p * bits) & last)];
            estimate[j] = sum;
        }
        heed_index_mark_best(estimate, now->memory->keys, heed_arg_int(form, K), now->keep[h / group], copy);
    }
    now->memory->scanned += now->heads * now->memory->keys;
}

static const heed_arg args[] = {
    {.name = "parts", .kind = HEED_ARG_INT, .value = 6, .least = 1, .most = 31, .summary = "of a key"},
    {.name = "bits",
     .kind = HEED_ARG_INT,
     .value = 5,
     .least = 1,
     .most = 12,
     .summary = "of the code of a part"},
    {.name = "k",
     .kind = HEED_ARG_INT,
     .value = 256,
     .least = 1,
     .most = INFINITY,
     .summary = "keys that a query head takes"},
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

const heed_form HEED_FORM(select_pq) = {
    .name = "pq",
    .stage = HEED_SELECT,
    .summary = "while generating: keys whose product-quantised codes promise the largest products",
    .formula = "k keys of largest sum over parts of q_part · centroid of the key's part",
    .source = "Zhang et al.: PQCache, 2024",
    .args = args,
    .resolve = resolve,
    .recall = &recall,
};
