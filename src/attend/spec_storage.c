/* What the clause `cache` says: a chain of policies, ended by how keys and values are stored. */
#include "attend/spec.h"

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

heed_status heed_spec_storage(const heed_spec *spec, int root, heed_type *k, heed_type *v,
                              const heed_form **policy)
{
    const heed_node *list[MOST];
    const int count = heed_spec_chain(spec, root, list, MOST);
    const heed_form *stored = NULL;
    *policy = NULL;
    for (int i = 0; i < count && i < MOST; i++) {
        const heed_form *form = list[i]->form;
        heed_type type;
        if (form->policy) {
            if (stored)
                return heed_fail(HEED_INVALID, "column %d: cache=%s goes before %s, which ends the chain",
                                 list[i]->column, form->name, stored->name);
            *policy = *policy ? *policy : form;
        } else if (heed_type_from_name(form->name, &type)) {
            if (stored)
                return heed_fail(HEED_INVALID,
                                 "column %d: keys and values are stored as %s or as %s, not both",
                                 list[i]->column, stored->name, form->name);
            stored = form;
            *k = *v = type;
        }
    }
    return HEED_OK;
}
