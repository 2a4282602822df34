/* A policy on arrays of a user's own. */
#include "base/cpu.h"
#include "cache/keep.h"

#include <stdlib.h>
#include <string.h>

/* Copies of what forms that merge write to, and memory for heed_keep_apply. */
typedef struct trial {
    int heads;
    const heed_held *given;
    heed_chain *chain;          /* [heads] */
    const heed_chain **pointer; /* [heads] */
    heed_held *held;            /* [heads] */
    float **key, **value, **mass;
    bool *changed;
    void *work;
} trial;

static void free_trial(trial *t)
{
    for (int g = 0; g < t->heads; g++) {
        free(t->key ? t->key[g] : NULL);
        free(t->value ? t->value[g] : NULL);
        free(t->mass ? t->mass[g] : NULL);
    }
    free(t->chain);
    free(t->pointer);
    free(t->held);
    free(t->key);
    free(t->value);
    free(t->mass);
    free(t->changed);
    free(t->work);
}

static heed_status no_memory(void)
{
    return heed_fail(HEED_NO_MEMORY, "no memory to try a policy");
}

static heed_status check_arrays(const heed_chain *chain, const heed_held *held, int head)
{
    const bool queries = held->queries > 0 && held->count > 0;
    const struct {
        const char *name;
        bool missing;
    } list[] = {
        {"pos", !held->pos},
        {"mass", !held->mass},
        {"key", chain->observes & HEED_OBSERVES_KEYS && !held->key},
        {"bare", chain->observes & HEED_OBSERVES_BARE && !held->bare},
        {"value", chain->observes & HEED_OBSERVES_VALUES && !held->value},
        {"token", chain->observes & HEED_OBSERVES_TOKENS && !held->token},
        {"token_kind", chain->observes & HEED_OBSERVES_TOKENS && !held->token_kind},
        {"query", queries && chain->observes & HEED_OBSERVES_QUERIES && !held->query},
        {"compared", queries && chain->observes & HEED_OBSERVES_QUERIES && !held->compared},
        {"place", queries && chain->observes & HEED_OBSERVES_QUERIES && !held->place},
        {"weight", queries && chain->observes & HEED_OBSERVES_WEIGHTS && !held->weight},
        {"query_pos", held->queries > 0 && !held->query_pos},
        {"state", chain->state_floats > 0 && !held->state},
    };
    if (held->count < 0 || held->count > INT32_MAX || held->queries < 0 || held->group < 1 || held->dim < 1 ||
        held->value_dim < 1 || held->layers < 1)
        return heed_fail(HEED_INVALID, "kv head %d: sizes must be above 0, counts not below", head);
    for (size_t i = 0; held->count && i < sizeof list / sizeof *list; i++)
        if (list[i].missing)
            return heed_fail(HEED_INVALID, "kv head %d: the policy observes `%s`, which is not given", head,
                             list[i].name);
    return HEED_OK;
}

static heed_status make_chains(trial *t, const char *text, const heed_form *const *forms)
{
    heed_spec *spec;
    heed_isa isa;
    heed_status status = heed_isa_resolve(HEED_ISA_AUTO, &isa);
    if (!status)
        status = heed_spec_parse(&spec, text, forms);
    if (status)
        return status;
    for (int g = 0; !status && g < t->heads; g++) {
        const heed_held *held = &t->given[g];
        const heed_sizes sizes = {.batch = 1,
                                  .heads = (int64_t)held->group * t->heads,
                                  .kv_heads = t->heads,
                                  .dim = held->dim,
                                  .value_dim = held->value_dim};
        int root[HEED_STAGES];
        heed_spec_clauses(spec, held->layer, (int64_t)held->group * g, root);
        status =
            heed_chain_of_spec(&t->chain[g], spec, root[HEED_CACHE], isa, &sizes, held->layer, held->layers);
        if (!status)
            status = check_arrays(&t->chain[g], held, g);
        t->pointer[g] = &t->chain[g];
    }
    heed_spec_free(spec);
    return status;
}

static float *copy(const float *from, int64_t count)
{
    float *to = malloc((size_t)(count > 0 ? count : 1) * sizeof *to);
    if (to && from)
        memcpy(to, from, (size_t)count * sizeof *to);
    return to;
}

static heed_status copy_head(trial *t, int g)
{
    const heed_held *given = &t->given[g];
    t->held[g] = *given;
    t->key[g] = copy(given->key, given->count * given->dim);
    t->value[g] = copy(given->value, given->count * given->value_dim);
    t->mass[g] = copy(given->mass, given->count);
    if (!t->key[g] || !t->value[g] || !t->mass[g])
        return no_memory();
    t->held[g].key = given->key ? t->key[g] : NULL;
    t->held[g].value = given->value ? t->value[g] : NULL;
    t->held[g].mass = t->mass[g];
    return HEED_OK;
}

/* The largest of every size among the heads, and memory for any of the chains. */
static heed_status make_work(trial *t)
{
    heed_held largest = t->given[0];
    size_t bytes = 0;
    for (int g = 0; g < t->heads; g++) {
        const heed_held *held = &t->given[g];
        largest.count = held->count > largest.count ? held->count : largest.count;
        largest.queries = held->queries > largest.queries ? held->queries : largest.queries;
        largest.group = held->group > largest.group ? held->group : largest.group;
        largest.dim = held->dim > largest.dim ? held->dim : largest.dim;
        largest.value_dim = held->value_dim > largest.value_dim ? held->value_dim : largest.value_dim;
    }
    for (int g = 0; g < t->heads; g++) {
        const size_t own = heed_keep_work_bytes(&t->chain[g], t->heads, &largest);
        bytes = own > bytes ? own : bytes;
    }
    t->work = malloc(bytes);
    return t->work ? HEED_OK : no_memory();
}

heed_status heed_policy_try(const char *spec, const heed_form *const *forms, const heed_held *held,
                            int kv_heads, uint8_t *const *keep)
{
    const size_t n = (size_t)(kv_heads > 0 ? kv_heads : 1);
    if (kv_heads < 1 || !spec || !held || !keep)
        return heed_fail(HEED_INVALID,
                         "a policy needs a spec, keys held, flags and at least one kv head, not %d",
                         kv_heads);
    trial t = {.heads = kv_heads,
               .given = held,
               .chain = calloc(n, sizeof *t.chain),
               .pointer = calloc(n, sizeof *t.pointer),
               .held = calloc(n, sizeof *t.held),
               .key = calloc(n, sizeof *t.key),
               .value = calloc(n, sizeof *t.value),
               .mass = calloc(n, sizeof *t.mass),
               .changed = calloc(n, sizeof *t.changed)};
    heed_status status = HEED_OK;
    if (!t.chain || !t.pointer || !t.held || !t.key || !t.value || !t.mass || !t.changed)
        status = no_memory();
    if (!status)
        status = make_chains(&t, spec, forms);
    for (int g = 0; !status && g < kv_heads; g++)
        status = copy_head(&t, g);
    if (!status)
        status = make_work(&t);
    if (!status)
        heed_keep_apply(&(heed_keep){.chain = t.pointer,
                                     .held = t.held,
                                     .kv_heads = kv_heads,
                                     .key = t.key,
                                     .value = t.value,
                                     .mass = t.mass,
                                     .keep = keep,
                                     .changed = t.changed,
                                     .work = t.work});
    free_trial(&t);
    return status;
}
