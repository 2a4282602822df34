#include "attend/plan_checks.h"
#include "base/try.h"

heed_status heed_check_storage(const heed_plan *plan, const heed_spec *spec, int root)
{
    heed_type k = plan->problem.k_type, v = plan->problem.v_type;
    const heed_form *policy;
    TRY(heed_spec_storage(spec, root, &k, &v, &policy));
    if (policy)
        return heed_fail(
            HEED_UNSUPPORTED,
            "cache=%s keeps part of the past, which takes a model that reads on and on: a plan attends to "
            "the keys it is given",
            policy->name);
    const heed_node *aging = heed_spec_aging(spec, root);
    if (aging)
        return heed_fail(
            HEED_UNSUPPORTED,
            "cache=%s stores keys otherwise as they age, which takes a model that reads on and on: a plan "
            "attends to the keys it is given",
            aging->form->name);
    if (k != plan->problem.k_type || v != plan->problem.v_type)
        return heed_fail(HEED_INVALID,
                         "the spec's cache is %s for keys and %s for values, but k is %s and v is %s",
                         heed_type_name(k), heed_type_name(v), heed_type_name(plan->problem.k_type),
                         heed_type_name(plan->problem.v_type));
    return HEED_OK;
}

/* Keys that differ from kv head to kv head, and keys that stand for several. */
heed_status heed_check_keys(const heed_plan *plan, const heed_pipeline *pipeline)
{
    const heed_form *heads = pipeline->form[pipeline->heads].form;
    const heed_form *normalise = pipeline->form[pipeline->normalise].form;
    const unsigned own = HEED_WITH_KEYS_BY_HEAD | HEED_WITH_POSITIONS; /* else all must hold as many keys */
    if ((plan->problem.with & own) == own && heads->flags & HEED_MIXES_HEADS)
        return heed_fail(HEED_UNSUPPORTED,
                         "heads=%s mixes what different heads give to one key, but here each kv head holds "
                         "keys of its own",
                         heads->name);
    if (plan->problem.with & HEED_WITH_MASS && !(normalise->flags & HEED_KEEPS_MOMENT))
        return heed_fail(HEED_UNSUPPORTED,
                         "normalise=%s is no exponential, so a key's mass cannot be added to its logits",
                         normalise->name);
    return HEED_OK;
}

/* Votes of earlier queries on keys. */
heed_status heed_check_votes(const heed_plan *plan, const heed_pipeline *pipeline)
{
    const heed_problem *p = &plan->problem;
    if (pipeline->votes < 0)
        return HEED_OK;
    const heed_form_state *form = &pipeline->form[pipeline->votes];
    const char *name = form->form->name;
    if (pipeline->select[0] != pipeline->votes)
        return heed_fail(HEED_UNSUPPORTED,
                         "select=%s takes votes off scores, which goes before other selectors", name);
    if (pipeline->form[pipeline->heads].form->flags & HEED_MIXES_HEADS)
        return heed_fail(HEED_UNSUPPORTED,
                         "select=%s counts the votes of one head, but heads=%s mixes scores", name,
                         pipeline->form[pipeline->heads].form->name);
    if (pipeline->heads_here != p->heads)
        return heed_fail(HEED_INVALID,
                         "select=%s counts one head's votes for all, so all heads must have the same spec",
                         name);
    if (form->form->voter(form) >= p->heads)
        return heed_fail(HEED_INVALID, "select=%s: there is no head %d, there are %lld", name,
                         form->form->voter(form), (long long)p->heads);
    if (p->queries != p->keys)
        return heed_fail(HEED_UNSUPPORTED,
                         "select=%s counts the votes of all earlier queries, but of %lld keys only the last "
                         "%lld bring their query: a text must be read in one piece",
                         name, (long long)p->keys, (long long)p->queries);
    return HEED_OK;
}

heed_status heed_check_stages(const heed_spec *spec, int64_t layer)
{
    int root[HEED_STAGES];
    heed_spec_clauses(spec, layer, 0, root);
    if (root[HEED_LAYER] >= 0 || root[HEED_LOWRANK] >= 0)
        return heed_fail(HEED_UNSUPPORTED,
                         "layer= and lowrank= are made of several steps with maps of its own: heed train, or "
                         "a graph of heed/nn.h, runs it");
    if (root[HEED_SCAN] == HEED_ABSENT)
        return HEED_OK;
    return heed_fail(HEED_UNSUPPORTED,
                     "scan= is a recurrence, which has no scores: heed scan, or heed_scan_create, runs it");
}
