#include "cli/spec_use.h"

#include "attend/spec.h"
#include "base/try.h"
#include "cli/cli.h"

heed_status cli_spec_use_of(const char *spec, int64_t layer, cli_spec_use *use)
{
    heed_spec *parsed;
    *use = (cli_spec_use){.keys = HEED_TYPES, .values = HEED_TYPES};
    const heed_status status = heed_spec_parse(&parsed, spec, NULL);
    if (status)
        return status;
    for (int i = 0; i < parsed->nodes; i++)
        if (parsed->node[i].kind == HEED_NODE_FORM)
            use->flags |= parsed->node[i].form->flags;
    int root[HEED_STAGES];
    heed_spec_clauses(parsed, layer, 0, root); /* heads with other types are refused by the plan */
    const heed_form *policy;
    const heed_status stored = heed_spec_storage(parsed, root[HEED_CACHE], &use->keys, &use->values, &policy);
    heed_spec_free(parsed);
    return stored;
}

/* What --kv says, or the spec, of `what`. */
static heed_status one_type(int kv, heed_type in_spec, bool backward, const char *what, heed_type *type)
{
    *type = kv >= 0 ? cli_kv_type_of(kv) : in_spec;
    if (kv >= 0 && in_spec != HEED_TYPES && in_spec != *type)
        return heed_fail(HEED_INVALID, "--kv %s and cache=%s in the spec disagree on %s",
                         heed_type_name(*type), heed_type_name(in_spec), what);
    if (backward && *type != HEED_TYPES && *type != HEED_F32)
        return heed_fail(HEED_INVALID, "%s%s with --backward: gradients need f32",
                         kv >= 0 ? "--kv " : "cache=", heed_type_name(*type));
    return HEED_OK;
}

heed_status cli_kv_types(int kv, const cli_spec_use *use, bool backward, heed_type type[2])
{
    TRY(one_type(kv, use->keys, backward, "keys", &type[0]));
    return one_type(kv, use->values, backward, "values", &type[1]);
}
