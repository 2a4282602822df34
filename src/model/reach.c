#include "model/reach.h"

#include <string.h>

static const heed_reach everything = {0, HEED_FAR};

static int64_t argument(const heed_node *node, int i)
{
    const double x = node->arg[i].number;
    return x < (double)HEED_FAR ? (int64_t)x : HEED_FAR;
}

static heed_reach of_window(const heed_node *node)
{
    return (heed_reach){0, argument(node, 0)};
}

static heed_reach of_first(const heed_node *node)
{
    return (heed_reach){argument(node, 0), 0};
}

static heed_reach of_dilated(const heed_node *node)
{
    const double span = node->arg[0].number * node->arg[1].number;
    return (heed_reach){0, span < (double)HEED_FAR ? (int64_t)span : HEED_FAR};
}

static heed_reach of_self(const heed_node *node)
{
    (void)node;
    return (heed_reach){0, 1};
}

static heed_reach of_none(const heed_node *node)
{
    (void)node;
    return (heed_reach){0, 0};
}

/* Queries below n see everything before them, which lies at positions below n. */
static heed_reach of_global(const heed_node *node)
{
    return (heed_reach){argument(node, 0), 0};
}

/* Forms that bound what is seen of earlier keys. All others may see everything. */
static const struct {
    const char *name;
    heed_reach (*reach)(const heed_node *node);
} bounds[] = {
    {"window", of_window}, {"block", of_window},    {"last", of_window}, {"first", of_first},
    {"self", of_self},     {"dilated", of_dilated}, {"none", of_none},   {"global", of_global},
};

static heed_reach of_form(const heed_node *node)
{
    for (size_t i = 0; i < sizeof bounds / sizeof *bounds; i++)
        if (!strcmp(bounds[i].name, node->form->name))
            return bounds[i].reach(node);
    return everything;
}

heed_reach heed_reach_join(heed_reach a, heed_reach b)
{
    return (heed_reach){a.first > b.first ? a.first : b.first, a.span > b.span ? a.span : b.span};
}

/* Both hold for what is open under `a & b`; the one that keeps less is taken. */
static heed_reach narrower(heed_reach a, heed_reach b)
{
    return a.first + a.span <= b.first + b.span ? a : b;
}

static heed_reach of_node(const heed_spec *spec, int index)
{
    const heed_node *node = &spec->node[index];
    switch (node->kind) {
    case HEED_NODE_FORM:
        return of_form(node);
    case HEED_NODE_AND:
        return narrower(of_node(spec, node->left), of_node(spec, node->right));
    case HEED_NODE_OR:
        return heed_reach_join(of_node(spec, node->left), of_node(spec, node->right));
    default:
        return everything;
    }
}

/* sigmoid's own bias counts all keys that exist, and selectors number their blocks from the first key. */
static bool counts_keys(const heed_spec *spec, const int root[HEED_STAGES])
{
    const heed_node *list[8];
    const int forms = heed_spec_chain(spec, root[HEED_NORMALISE], list, 8);
    bool counts = false;
    for (int i = 0; i < forms && i < 8; i++)
        counts |= !strcmp(list[i]->form->name, "sigmoid") && !list[i]->arg[0].given;
    const int selectors = heed_spec_chain(spec, root[HEED_SELECT], list, 8);
    for (int i = 0; i < selectors && i < 8; i++)
        counts |= list[i]->form->summarise != NULL;
    return counts;
}

heed_reach heed_reach_of(const heed_spec *spec, const int root[HEED_STAGES])
{
    if (root[HEED_WHERE] < 0 || counts_keys(spec, root))
        return everything;
    return of_node(spec, root[HEED_WHERE]);
}
