/* The layer that a spec names, by layer= or lowrank=. */
#include "nn/layers.h"

#include "attend/spec.h"
#include "base/try.h"

#include <stdlib.h>
#include <string.h>

static bool says_more(const heed_spec *spec)
{
    for (int g = 0; g < spec->groups; g++)
        for (int stage = 0; stage < HEED_STAGES; stage++)
            if (stage != HEED_LAYER && stage != HEED_LOWRANK && spec->group[g].root[stage] != HEED_ABSENT)
                return true;
    return false;
}

static heed_status print_rest(heed_spec *spec, char rest[HEED_LAYER_REST])
{
    for (int g = 0; g < spec->groups; g++)
        spec->group[g].root[HEED_LAYER] = spec->group[g].root[HEED_LOWRANK] = HEED_ABSENT;
    if (heed_spec_print(spec, rest, HEED_LAYER_REST) < HEED_LAYER_REST)
        return HEED_OK;
    return heed_fail(HEED_INVALID, "the spec beside layer= is longer than %d characters", HEED_LAYER_REST);
}

heed_status heed_layer_of_spec(const char *text, int64_t layer, heed_form_state *form,
                               char rest[HEED_LAYER_REST])
{
    heed_spec *spec;
    int root[HEED_STAGES];
    const heed_node *node = NULL;
    *form = (heed_form_state){.form = NULL};
    TRY(heed_spec_parse(&spec, text, NULL));
    heed_spec_clauses(spec, layer, 0, root);
    if (heed_spec_chain(spec, root[HEED_LAYER], &node, 1) == 0)
        heed_spec_chain(spec, root[HEED_LOWRANK], &node, 1);
    heed_status status = HEED_OK;
    if (node) {
        form->form = node->form;
        memcpy(form->arg, node->arg, sizeof form->arg);
        if (!node->form->layer->attends && spec->groups == 1 && says_more(spec))
            status =
                heed_fail(HEED_UNSUPPORTED, "%s=%s is all of its layer: no other clause stands beside it",
                          heed_stage_name(node->form->stage), node->form->name);
    }
    if (!status)
        status = print_rest(spec, rest);
    heed_spec_free(spec);
    return status;
}
