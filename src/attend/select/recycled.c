/* Recycled attention: while generating, a full step now and then, and in between only what mattered there.
 *
 * A full step attends to all keys; each kv head remembers the k keys of largest weight, which its query heads
 * give together (`pool`: the sum or the largest of their weights), of equal ones the lower key. Until the
 * next full step the kv head reads those keys and all newer ones. Nothing is dropped, so the next full step
 * sees all again.
 *
 * Full are the first step after a prompt, then every `every`-th; or, with `cosine`, each whose queries are
 * less like those of the last full step: mean over heads of cos(q, q_full) < cosine. With both, whichever
 * comes first. Queries are those that are multiplied: after rope, say. every=1 is full attention. After a
 * sequence was cut back behind its last full step, the next step is a full one.
 */
#include "attend/select/listed.h"

#include <string.h>

enum { EVERY, K, COSINE, POOL };

static int64_t unit(const heed_form_state *form)
{
    (void)form;
    return 1;
}

/* Numbers of one kv head's list. */
static int64_t each(const heed_form_state *form, int64_t keys)
{
    return 1 + (heed_arg_int(form, K) < keys ? heed_arg_int(form, K) : keys);
}

static int64_t numbers(const heed_form_state *form, int64_t keys)
{
    return form->sizes.kv_heads * each(form, keys);
}

static int64_t reals(const heed_form_state *form, int64_t keys)
{
    (void)keys;
    return form->arg[COSINE].given ? form->sizes.heads * form->sizes.dim : 0;
}

/* `cosine` alone: no other step is full. */
static heed_status resolve(heed_form_state *form)
{
    if (form->arg[COSINE].given && !form->arg[EVERY].given)
        form->arg[EVERY].number = INFINITY;
    return HEED_OK;
}

static float cosine(const float *a, const float *b, int dim)
{
    float ab = 0, aa = 0, bb = 0;
#pragma omp simd reduction(+ : ab, aa, bb)
    for (int c = 0; c < dim; c++) {
        ab += a[c] * b[c];
        aa += a[c] * a[c];
        bb += b[c] * b[c];
    }
    return aa > 0 && bb > 0 ? ab / sqrtf(aa * bb) : 0;
}

static bool renews(const heed_form_state *form, const heed_recalled *now)
{
    float sum = 0;
    if ((double)(now->keys - now->memory->keys) >= form->arg[EVERY].number)
        return true;
    if (!form->arg[COSINE].given)
        return false;
    for (int h = 0; h < now->heads; h++)
        sum += cosine(now->query[h], now->memory->real + (int64_t)h * now->dim, now->dim);
    return !(sum / (float)now->heads >= heed_arg_float(form, COSINE));
}

static void pool_weights(const heed_form_state *form, const heed_recalled *now, int g, float *pooled)
{
    const int group = now->heads / now->kv_heads;
    const bool largest = form->arg[POOL].number == 1;
    memcpy(pooled, now->weight[g * group], (size_t)now->keys * sizeof *pooled);
    for (int h = g * group + 1; h < (g + 1) * group; h++) {
        const float *restrict weight = now->weight[h];
        for (int64_t j = 0; j < now->keys; j++)
            pooled[j] = !largest ? pooled[j] + weight[j] : weight[j] > pooled[j] ? weight[j] : pooled[j];
    }
}

static void remember(const heed_form_state *form, const heed_recalled *now)
{
    float *pooled = now->work, *work = now->work + now->keys;
    for (int g = 0; g < now->kv_heads; g++) {
        pool_weights(form, now, g, pooled);
        heed_keep_highest(pooled, (int)now->keys, heed_arg_int(form, K), work);
        heed_list_write(pooled, now->keys, now->memory->number + g * each(form, form->sizes.keys));
    }
    for (int h = 0; h < now->heads && form->arg[COSINE].given; h++)
        memcpy(now->memory->real + (int64_t)h * now->dim, now->query[h], (size_t)now->dim * sizeof(float));
}

static void recall_keys(const heed_form_state *form, const heed_recalled *now)
{
    for (int g = 0; g < now->kv_heads; g++)
        heed_list_mark(now->memory->number + g * each(form, form->sizes.keys),
                       each(form, form->sizes.keys) - 1, now->keys, now->keep[g]);
}

static const heed_option pools[] = {{"sum", NULL}, {"max", NULL}, {NULL, NULL}};

static const heed_arg args[] = {
    {.name = "every",
     .kind = HEED_ARG_INT,
     .value = 10,
     .least = 1,
     .most = INFINITY,
     .summary = "steps from one full step to the next; with cosine alone no limit"},
    {.name = "k",
     .kind = HEED_ARG_INT,
     .value = 256,
     .least = 1,
     .most = INFINITY,
     .summary = "keys that a kv head remembers"},
    {.name = "cosine",
     .kind = HEED_ARG_FLOAT,
     .value = NAN,
     .least = -1,
     .most = 1,
     .computed = "none",
     .summary = "a step whose queries are less like those of the last full step is full"},
    {.name = "pool",
     .kind = HEED_ARG_CHOICE,
     .options = pools,
     .summary = "weights of the query heads that share a kv head: their sum or the largest"},
    {0},
};

static const heed_recall recall = {.flags = HEED_RECALL_WEIGHS,
                                   .unit = unit,
                                   .numbers = numbers,
                                   .reals = reals,
                                   .renews = renews,
                                   .remember = remember,
                                   .recall = recall_keys};

const heed_form HEED_FORM(select_recycled) = {
    .name = "recycled",
    .stage = HEED_SELECT,
    .summary = "while generating: a full step now and then, and in between the keys that mattered most there",
    .formula = "all keys every S steps, or when mean cos(q, q_full) < cosine; else the k of largest pooled "
               "weight there, and newer ones",
    .source = "Recycled Attention, 2024",
    .row = "000.036",
    .args = args,
    .resolve = resolve,
    .recall = &recall,
};
