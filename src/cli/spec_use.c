#include "cli/spec_use.h"

#include "attend/spec.h"

heed_status cli_spec_use_of(const char *spec, int64_t layer, cli_spec_use *use)
{
    heed_spec *parsed;
    *use = (cli_spec_use){.cache = HEED_TYPES};
    const heed_status status = heed_spec_parse(&parsed, spec, NULL);
    if (status)
        return status;
    for (int i = 0; i < parsed->nodes; i++)
        if (parsed->node[i].kind == HEED_NODE_FORM)
            use->flags |= parsed->node[i].form->flags;
    int root[HEED_STAGES];
    heed_spec_clauses(parsed, layer, 0, root); /* heads with other types are refused by the plan */
    heed_type values = use->cache;
    const heed_form *policy;
    const heed_status stored = heed_spec_storage(parsed, root[HEED_CACHE], &use->cache, &values, &policy);
    heed_spec_free(parsed);
    return stored;
}

heed_status cli_kv_type(int kv, const cli_spec_use *use, bool backward, heed_type *type)
{
    const bool given = kv >= 0, in_spec = use->cache != HEED_TYPES;
    *type = given ? (heed_type)kv : use->cache;
    if (given && in_spec && use->cache != *type)
        return heed_fail(HEED_INVALID, "--kv %s and cache=%s in the spec disagree", heed_type_name(*type),
                         heed_type_name(use->cache));
    if (backward && (given || in_spec) && *type != HEED_F32)
        return heed_fail(HEED_INVALID, "%s%s with --backward: gradients need f32",
                         given ? "--kv " : "cache=", heed_type_name(*type));
    return HEED_OK;
}
