/* Plans of recurrences. */
#include "scan/plan.h"

#include "attend/registry.h"
#include "attend/spec.h"
#include "base/cpu.h"

#include <stdlib.h>
#include <string.h>

static heed_status check_size(const char *what, int64_t value, int64_t least, int64_t most)
{
    if (value >= least && value <= most)
        return HEED_OK;
    return heed_fail(HEED_INVALID, "%s is %lld; it must be %lld to %lld", what, (long long)value,
                     (long long)least, (long long)most);
}

static heed_status check_problem(heed_scan_problem *p)
{
    p->kv_heads = p->kv_heads ? p->kv_heads : p->heads;
    p->value_dim = p->value_dim ? p->value_dim : p->dim;
    p->layers = p->layers ? p->layers : 1;
    p->threads = p->threads ? p->threads : heed_cpu_physical_cores();
    const int64_t most = INT32_MAX;
    TRY(check_size("batch", p->batch, 1, most));
    TRY(check_size("heads", p->heads, 1, 65536));
    TRY(check_size("kv_heads", p->kv_heads, 1, p->heads));
    TRY(check_size("tokens", p->tokens, 1, most));
    TRY(check_size("dim", p->dim, 1, 65536));
    TRY(check_size("value_dim", p->value_dim, 1, 65536));
    TRY(check_size("layers", p->layers, 1, most));
    TRY(check_size("layer", p->layer, 0, p->layers - 1));
    TRY(check_size("threads", p->threads, 1, 1024));
    if (p->heads % p->kv_heads != 0)
        return heed_fail(HEED_INVALID, "heads is %lld, which is no multiple of kv_heads, %lld",
                         (long long)p->heads, (long long)p->kv_heads);
    return HEED_OK;
}

/* The node of the recurrence that holds for a layer, which stands alone in its group: what a spec says of
 * other layers does not touch it. NULL in `node` where the layer has none. */
static heed_status find_clause(const heed_spec *spec, int64_t layer, const heed_node **node)
{
    int root[HEED_STAGES];
    heed_spec_clauses(spec, layer, 0, root);
    *node = NULL;
    for (int g = 0; g < spec->groups; g++) {
        const heed_group *group = &spec->group[g];
        if (group->root[HEED_SCAN] < 0)
            continue;
        if (group->heads.count > 0)
            return heed_fail(HEED_UNSUPPORTED, "a recurrence has one form for all heads of a layer");
        for (int stage = 0; stage < HEED_STAGES; stage++)
            if (stage != HEED_SCAN && group->root[stage] != HEED_ABSENT)
                return heed_fail(HEED_UNSUPPORTED,
                                 "%s= stands beside scan=, which has no scores to apply it to",
                                 heed_stage_name((heed_stage)stage));
    }
    heed_spec_chain(spec, root[HEED_SCAN], node, 1);
    return HEED_OK;
}

static heed_status find_form(heed_scan_plan *plan, const heed_spec *spec, heed_isa isa)
{
    const heed_node *node;
    TRY(find_clause(spec, plan->problem.layer, &node));
    if (!node)
        return heed_fail(HEED_INVALID, "the spec has no clause scan=, as in scan=linear");
    const heed_form *form = heed_registry_find(isa, HEED_SCAN, node->form->name);
    plan->form = (heed_form_state){.form = form ? form : node->form};
    memcpy(plan->form.arg, node->arg, sizeof plan->form.arg);
    plan->rule = plan->form.form->scan;
    plan->slots = plan->rule->flags & HEED_SCAN_SLOTS ? heed_slots_kernels_of(isa) : NULL;
    return HEED_OK;
}

heed_status heed_scan_of_layer(const char *text, const heed_form *const *forms, int64_t layer,
                               heed_scan_facts *facts)
{
    heed_spec *spec;
    const heed_node *node;
    *facts = (heed_scan_facts){.scans = false};
    TRY(heed_spec_parse(&spec, text, forms));
    const heed_status status = find_clause(spec, layer, &node);
    if (!status && node) {
        heed_form_state form = {.form = node->form};
        memcpy(form.arg, node->arg, sizeof form.arg);
        facts->scans = true;
        facts->flags = node->form->scan->flags;
        if (facts->flags & (HEED_SCAN_SLOTS | HEED_SCAN_RAW_GATE))
            facts->slots = node->form->scan->channels(&form, 0);
    }
    heed_spec_free(spec);
    return status;
}

static heed_status resolve(heed_scan_plan *plan)
{
    const heed_scan_problem *p = &plan->problem;
    plan->form.backward = p->backward;
    plan->form.sizes = (heed_sizes){.batch = p->batch,
                                    .heads = p->heads,
                                    .kv_heads = p->kv_heads,
                                    .queries = p->tokens,
                                    .keys = p->tokens,
                                    .dim = p->dim,
                                    .value_dim = p->value_dim,
                                    .causal = true,
                                    .layer = p->layer,
                                    .layers = p->layers};
    if (plan->form.form->resolve)
        TRY(plan->form.form->resolve(&plan->form));
    plan->group = (int)(p->heads / p->kv_heads);
    if (plan->rule->flags & HEED_SCAN_NO_QUERIES && plan->group > 1)
        return heed_fail(HEED_INVALID, "scan=%s reads no queries, so heads must be kv_heads, %lld, not %lld",
                         plan->form.form->name, (long long)p->kv_heads, (long long)p->heads);
    plan->channels = plan->rule->channels ? plan->rule->channels(&plan->form, (int)p->dim) : (int)p->dim;
    plan->normalises = plan->rule->flags & HEED_SCAN_NORMALISES;
    plan->whole = plan->slots || plan->rule->loops;
    plan->columns = p->value_dim + (plan->slots ? p->dim : plan->normalises);
    plan->blocks = plan->whole ? 1 : (plan->columns + HEED_SCAN_COLUMNS - 1) / HEED_SCAN_COLUMNS;
    const int64_t heads = p->batch * p->kv_heads;
    plan->together = !plan->whole && (heads % p->threads == 0 || heads >= 4 * p->threads);
    return HEED_OK;
}

static heed_status allocate(heed_scan_plan *plan)
{
    const heed_scan_problem *p = &plan->problem;
    heed_scan_work work;
    plan->per_thread = heed_scan_lay_out(plan, NULL, &work);
    if (plan->per_thread != SIZE_MAX)
        plan->memory = heed_allocate((size_t)p->threads, plan->per_thread);
    const size_t rows = (size_t)(p->batch * p->heads);
    if (plan->normalises && p->tokens < INT64_MAX / 64 / (int64_t)rows)
        plan->norm = heed_allocate(rows * (size_t)p->tokens, 2 * sizeof *plan->norm);
    plan->dnorm = plan->norm ? plan->norm + rows * (size_t)p->tokens : NULL;
    if (plan->memory && (plan->norm || !plan->normalises))
        return HEED_OK;
    return heed_fail(HEED_NO_MEMORY, "no memory for the plan of a recurrence over %lld tokens",
                     (long long)p->tokens);
}

heed_status heed_scan_create(heed_scan_plan **out, const char *text, const heed_scan_problem *problem)
{
    if (!out || !text || !problem)
        return heed_fail(HEED_INVALID, "plan, spec and problem must not be NULL");
    *out = NULL;
    heed_scan_problem checked = *problem;
    TRY(check_problem(&checked));
    heed_isa isa;
    TRY(heed_isa_resolve(problem->isa, &isa));
    heed_spec *spec;
    TRY(heed_spec_parse(&spec, text, problem->forms));
    heed_scan_plan *plan = calloc(1, sizeof *plan);
    heed_status status = plan ? HEED_OK : heed_fail(HEED_NO_MEMORY, "no memory for a plan");
    if (!status) {
        plan->problem = checked;
        plan->kernels = heed_scan_kernels_of(isa);
        status = find_form(plan, spec, isa);
    }
    heed_spec_free(spec);
    if (!status)
        status = resolve(plan);
    if (!status)
        status = allocate(plan);
    if (status) {
        heed_scan_free(plan);
        return status;
    }
    *out = plan;
    return HEED_OK;
}

void heed_scan_free(heed_scan_plan *plan)
{
    if (!plan)
        return;
    free(plan->memory);
    free(plan->norm);
    free(plan);
}

int64_t heed_scan_state_floats(const heed_scan_plan *plan)
{
    if (plan->rule->loops)
        return plan->rule->loops->state(&plan->form);
    return plan->channels * plan->columns + plan->blocks * plan->rule->carried;
}

unsigned heed_scan_flags(const heed_scan_plan *plan)
{
    return plan->rule->flags;
}

size_t heed_scan_bytes(const heed_scan_plan *plan)
{
    const heed_scan_problem *p = &plan->problem;
    return sizeof *plan + (size_t)p->threads * plan->per_thread +
           (plan->normalises ? (size_t)(p->batch * p->heads * p->tokens) * 2 * sizeof(float) : 0);
}
