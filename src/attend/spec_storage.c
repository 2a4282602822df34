/* What the clause `cache` says: a chain of policies, ended by how keys and values are stored. */
#include "attend/spec.h"
#include "base/try.h"
#include <heed/policy.h>
#include <string.h>

int heed_spec_chain(const heed_spec *spec, int root, const heed_node **list, int most)
{
    if (root < 0)
        return 0;
    const heed_node *node = &spec->node[root];
    if (node->kind == HEED_NODE_CHAIN) {
        const int before = heed_spec_chain(spec, node->left, list, most);
        const int written = before < most ? before : most;
        return before + heed_spec_chain(spec, node->right, list + written, most - written);
    }
    if (most > 0)
        *list = node;
    return 1;
}

enum { MOST = 64 };

/* What a storage form says the type of. */
typedef enum stored_part { NEITHER = 0, KEYS = 1, VALUES = 2, BOTH = 3 } stored_part;

/* The type that a choice of the form's first argument names. */
static bool chosen_type(const heed_node *node, heed_type *type)
{
    const heed_arg *arg = node->form->args;
    return arg && arg->options && heed_type_from_name(arg->options[(int)node->arg[0].number].name, type);
}

static heed_form_state state_of(const heed_node *node)
{
    heed_form_state state = {.form = node->form};
    memcpy(state.arg, node->arg, sizeof state.arg);
    return state;
}

static stored_part part_of(const heed_node *node, heed_type *type)
{
    const char *name = node->form->name;
    if (node->form->storage) {
        heed_form_state state = state_of(node);
        heed_grade_types grade[1 + HEED_MOST_GRADES];
        node->form->storage->grades(&state, grade);
        *type = grade[0].k; /* new keys and values alike */
        return BOTH;
    }
    if (heed_type_from_name(name, type))
        return BOTH;
    const stored_part part = !strcmp(name, "keys")      ? KEYS
                             : !strcmp(name, "values")  ? VALUES
                             : !strcmp(name, "rotated") ? BOTH
                                                        : NEITHER;
    if (part == NEITHER || !chosen_type(node, type))
        return NEITHER;
    if (part != BOTH)
        return part;
    *type = *type == HEED_Q8   ? HEED_ROTATED_Q8
            : *type == HEED_Q4 ? HEED_ROTATED_Q4
            : *type == HEED_Q3 ? HEED_ROTATED_Q3
                               : HEED_ROTATED_Q2;
    return BOTH;
}

const heed_node *heed_spec_aging(const heed_spec *spec, int root)
{
    const heed_node *list[MOST];
    const int count = heed_spec_chain(spec, root, list, MOST);
    for (int i = 0; i < count && i < MOST; i++)
        if (list[i]->form->storage)
            return list[i];
    return NULL;
}

heed_status heed_spec_storage(const heed_spec *spec, int root, heed_type *k, heed_type *v,
                              const heed_form **policy)
{
    const heed_node *list[MOST];
    const int count = heed_spec_chain(spec, root, list, MOST);
    const heed_form *stored = NULL;
    unsigned said = NEITHER;
    *policy = NULL;
    for (int i = 0; i < count && i < MOST; i++) {
        const heed_form *form = list[i]->form;
        heed_type type;
        heed_form_state state = state_of(list[i]);
        if (form->storage && form->resolve)
            TRY(form->resolve(&state));
        stored_part part = part_of(list[i], &type);
        if (form->policy) {
            if (stored)
                return heed_fail(HEED_INVALID, "column %d: cache=%s goes before %s, which ends the chain",
                                 list[i]->column, form->name, stored->name);
            *policy = *policy ? *policy : form;
        } else if (part != NEITHER) {
            if (part & said)
                return heed_fail(HEED_INVALID,
                                 "column %d: keys and values are stored as %s or as %s, not both",
                                 list[i]->column, stored->name, form->name);
            stored = form;
            said |= part;
            *k = part & KEYS ? type : *k;
            *v = part & VALUES ? type : *v;
        }
    }
    return HEED_OK;
}
