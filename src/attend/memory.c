/* Selectors whose choice outlives an execution, in plans. */
#include "attend/memory.h"
#include "base/try.h"

#include <heed/gather.h>
#include <string.h>

static const heed_form_state *first_recaller(const heed_plan *plan)
{
    const heed_form_state *found = NULL;
    for (int p = 0; plan && p < plan->pipelines && !found; p++)
        found = heed_recaller(&plan->pipeline[p]);
    return found;
}

heed_status heed_check_memory(const heed_plan *plan)
{
    const heed_form_state *form = first_recaller(plan);
    const heed_pipeline *pipeline = &plan->pipeline[0];
    if (!form)
        return HEED_OK;
    const char *name = form->form->name;
    const bool gathers = form->form->recall->flags & HEED_RECALL_GATHERS;
    if (gathers && !(plan->problem.with & HEED_WITH_MEMORY)) {
        if (form->form->gathers->survey)
            return heed_fail(
                HEED_UNSUPPORTED,
                "select=%s goes from step to step, or from piece to piece of a text: its memory is "
                "HEED_WITH_MEMORY's",
                name);
        if (plan->problem.queries == plan->problem.keys)
            return HEED_OK;
        return heed_fail(
            HEED_UNSUPPORTED,
            "select=%s makes something of the queries of all keys, but of %lld keys only the last "
            "%lld bring theirs: a text that is read in pieces takes HEED_WITH_MEMORY",
            name, (long long)plan->problem.keys, (long long)plan->problem.queries);
    }
    if (!(plan->problem.with & HEED_WITH_MEMORY))
        return heed_fail(HEED_UNSUPPORTED,
                         "select=%s carries its choice from step to step or from layer to layer, which takes "
                         "a model that generates: a plan by itself has HEED_WITH_MEMORY for it",
                         name);
    if (plan->pipelines > 1)
        return heed_fail(HEED_UNSUPPORTED,
                         "select=%s makes one choice for a layer, so all heads must have the same spec",
                         name);
    if (pipeline->selects > 1)
        return heed_fail(HEED_UNSUPPORTED,
                         "select=%s stands alone: no other selector goes before or behind it", name);
    if (gathers)
        return HEED_OK;
    if (plan->problem.queries != 1 || pipeline->kernel != HEED_KERNEL_DECODE)
        return heed_fail(HEED_UNSUPPORTED, "select=%s chooses for one new token at a time: %s", name,
                         plan->problem.queries != 1 ? "a plan with HEED_WITH_MEMORY has one query"
                                                    : pipeline->why);
    if (form->form->recall->unit(form) < 1)
        return heed_fail(HEED_INVALID, "select=%s: a block of keys holds at least 1", name);
    return HEED_OK;
}

void heed_plan_memory(const heed_plan *plan, int64_t keys, int64_t *numbers, int64_t *reals)
{
    const heed_form_state *form = first_recaller(plan);
    const heed_recall *recall = form ? form->form->recall : NULL;
    *numbers = recall && recall->numbers ? recall->numbers(form, keys) : 0;
    *reals = recall && recall->reals ? recall->reals(form, keys) : 0;
}

static heed_status check_one(const heed_run *run, const heed_memory *memory, int64_t b, int64_t numbers,
                             int64_t reals)
{
    const int64_t count = heed_key_count(run, b, 0);
    if ((numbers > 0 && !memory->number) || (reals > 0 && !memory->real))
        return heed_fail(HEED_INVALID,
                         "the memory of batch entry %lld lacks an array: %lld numbers, %lld reals",
                         (long long)b, (long long)numbers, (long long)reals);
    for (int64_t g = 1; g < run->plan->problem.kv_heads; g++)
        if (heed_key_count(run, b, g) != count)
            return heed_fail(HEED_INVALID,
                             "kv head %lld holds %d keys and kv head 0 %lld: a memory is of one list of keys",
                             (long long)g, (int)heed_key_count(run, b, g), (long long)count);
    return HEED_OK;
}

/* What such a selector made of the keys that stand before the first query must be there. */
static heed_status check_gathered(const heed_run *run, const heed_extra *extra, const heed_form_state *form)
{
    const heed_gather_rule *rule = form->form->gathers;
    for (int64_t b = 0; b < run->plan->problem.batch; b++) {
        const int64_t before = (int64_t)heed_key_count(run, b, 0) - run->query_count[b];
        const heed_memory *memory = extra->memory ? extra->memory[b] : NULL;
        if (before < 0)
            return heed_fail(HEED_INVALID,
                             "select=%s takes a key for every query, but %lld queries have none",
                             form->form->name, (long long)-before);
        if (run->query_count[b] == 0 || (before == 0 && (memory || !rule->survey)))
            continue;
        if (!memory || memory->keys < before || (rule->ready && !rule->ready(form, memory, before)))
            return heed_fail(
                HEED_INVALID,
                "what select=%s makes of queries is not there for all of the %lld keys before the "
                "new ones: the text was cut, or put together of parts, and must be read again",
                form->form->name, (long long)before);
    }
    return HEED_OK;
}

heed_status heed_bind_memory(const heed_run *run, const heed_extra *extra)
{
    const heed_problem *p = &run->plan->problem;
    const heed_form_state *form = first_recaller(run->plan);
    if (extra->memory && !(p->with & HEED_WITH_MEMORY))
        return heed_fail(HEED_INVALID, "a memory is given, but the plan was made without HEED_WITH_MEMORY");
    int64_t numbers, reals;
    heed_plan_memory(run->plan, p->keys, &numbers, &reals);
    for (int64_t b = 0; extra->memory && b < p->batch; b++)
        if (extra->memory[b])
            TRY(check_one(run, extra->memory[b], b, numbers, reals));
    if (form && form->form->recall->flags & HEED_RECALL_GATHERS)
        TRY(check_gathered(run, extra, form));
    return HEED_OK;
}
