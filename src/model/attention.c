#include "model/attention.h"
#include "base/try.h"

#include <heed/recall.h>
#include <stdlib.h>
#include <string.h>

static int shifted(int root, int by)
{
    return root < 0 ? root : root + by;
}

/* Both specs in one: the nodes of `own`, then those of `over`; one group for all heads, then those of `over`
 * that hold for some. The ranges stay those of `over`. */
static void merge(heed_spec *merged, const heed_spec *own, const heed_spec *over, int64_t layer)
{
    memcpy(merged->node, own->node, (size_t)own->nodes * sizeof *own->node);
    for (int i = 0; i < over->nodes; i++) {
        heed_node *node = &merged->node[own->nodes + i];
        *node = over->node[i];
        node->left += own->nodes;
        node->right += own->nodes;
    }
    merged->nodes = own->nodes + over->nodes;
    merged->group[0] = own->group[0];
    merged->groups = 1;
    for (int g = 0; g < over->groups; g++) {
        const heed_group *group = &over->group[g];
        if (!heed_ranges_hold(&group->layers, layer))
            continue;
        heed_group *to = &merged->group[0];
        if (group->heads.count) {
            to = &merged->group[merged->groups++];
            *to = (heed_group){.heads = group->heads};
            for (int stage = 0; stage < HEED_STAGES; stage++)
                to->root[stage] = HEED_ABSENT;
        }
        for (int stage = 0; stage < HEED_STAGES; stage++) {
            if (group->root[stage] == HEED_ABSENT)
                continue;
            to->root[stage] = shifted(group->root[stage], own->nodes);
            for (int before = 1; !group->heads.count && before < merged->groups; before++)
                merged->group[before].root[stage] = HEED_ABSENT; /* this clause, for all heads, comes later */
        }
    }
}

static heed_status read_storage(const heed_spec *spec, heed_attention *attention)
{
    attention->aging = (heed_form_state){.form = NULL};
    for (int g = 0; g < spec->groups; g++) {
        heed_type k = HEED_TYPES, v = HEED_TYPES;
        const heed_form *policy;
        TRY(heed_spec_storage(spec, spec->group[g].root[HEED_CACHE], &k, &v, &policy));
        if (k == HEED_TYPES)
            continue;
        if (g > 0)
            return heed_fail(HEED_UNSUPPORTED,
                             "cache=%s for some heads only: a layer's heads share one cache",
                             heed_type_name(k));
        attention->keys = k;
        attention->values = v;
        const heed_node *aging = heed_spec_aging(spec, spec->group[g].root[HEED_CACHE]);
        if (!aging)
            continue;
        attention->aging.form = aging->form;
        memcpy(attention->aging.arg, aging->arg, sizeof aging->arg);
    }
    return HEED_OK;
}

static heed_status print(const heed_spec *spec, char *text, size_t size)
{
    const size_t length = heed_spec_print(spec, text, size);
    if (length >= size)
        return heed_fail(HEED_INVALID, "the attention of a layer takes %zu bytes of text, more than %zu",
                         length, size);
    return HEED_OK;
}

heed_status heed_attention_of_layer(const char *own, const char *override, const heed_form *const *forms,
                                    int64_t layer, char *text, size_t size)
{
    heed_spec *mine = NULL, *over = NULL, merged = {0};
    heed_status status = heed_spec_parse(&mine, own, NULL);
    if (!status)
        status = heed_spec_parse(&over, override ? override : "", forms);
    if (!status) {
        merged.node = calloc((size_t)mine->nodes + (size_t)over->nodes + 1, sizeof *merged.node);
        merged.group = calloc((size_t)over->groups + 1, sizeof *merged.group);
        if (!merged.node || !merged.group)
            status = heed_fail(HEED_NO_MEMORY, "no memory for the attention of layer %lld", (long long)layer);
    }
    if (!status) {
        merge(&merged, mine, over, layer);
        status = print(&merged, text, size);
    }
    free(merged.node);
    free(merged.group);
    heed_spec_free(mine);
    heed_spec_free(over);
    return status;
}

static heed_status check_ranges(const heed_ranges *ranges, const char *what, int64_t count)
{
    for (int i = 0; i < ranges->count; i++)
        if (ranges->range[i][0] >= count)
            return heed_fail(HEED_INVALID, "%s %lld: the model has %lld %s, 0 to %lld", what,
                             (long long)ranges->range[i][0], (long long)count, what, (long long)count - 1);
    return HEED_OK;
}

/* Whether the clause `cache` of a group makes sense, with columns of the user's own text. */
static heed_status check_storage(const heed_spec *spec, const heed_group *group)
{
    heed_type k = HEED_TYPES, v = HEED_TYPES;
    const heed_form *policy;
    return heed_spec_storage(spec, group->root[HEED_CACHE], &k, &v, &policy);
}

heed_status heed_attention_holds(const char *override, const heed_form *const *forms, int64_t layers,
                                 int64_t heads)
{
    heed_spec *spec;
    heed_status status = HEED_OK;
    TRY(heed_spec_parse(&spec, override ? override : "", forms));
    for (int g = 0; g < spec->groups && !status; g++) {
        status = check_ranges(&spec->group[g].layers, "layers", layers);
        if (!status)
            status = check_ranges(&spec->group[g].heads, "heads", heads);
        if (!status)
            status = check_storage(spec, &spec->group[g]);
    }
    heed_spec_free(spec);
    return status;
}

/* The spec without the clause `cache`, and without `select` where that is unwanted. */
static heed_status print_without(const heed_spec *spec, bool select, char **text)
{
    heed_spec plain = *spec;
    plain.group = calloc((size_t)spec->groups, sizeof *plain.group);
    *text = malloc(HEED_ATTENTION_TEXT);
    if (!plain.group || !*text) {
        free(plain.group);
        return heed_fail(HEED_NO_MEMORY, "no memory for the text of a spec");
    }
    plain.groups = 0;
    for (int g = 0; g < spec->groups; g++) {
        heed_group *group = &plain.group[plain.groups];
        *group = spec->group[g];
        group->root[HEED_CACHE] = HEED_ABSENT;
        group->root[HEED_SELECT] = select ? group->root[HEED_SELECT] : HEED_ABSENT;
        bool says = g == 0; /* anything else than what is kept */
        for (int stage = 0; stage < HEED_STAGES; stage++)
            says |= group->root[stage] != HEED_ABSENT;
        plain.groups += says;
    }
    const heed_status status = print(&plain, *text, HEED_ATTENTION_TEXT);
    free(plain.group);
    return status;
}

/* The first selector whose choice outlives executions. */
static const heed_form *find_recaller(const heed_spec *spec)
{
    const heed_form *found = NULL;
    for (int i = 0; i < spec->nodes && !found; i++)
        if (spec->node[i].form && spec->node[i].form->recall)
            found = spec->node[i].form;
    return found;
}

heed_status heed_attention_take_apart(heed_attention *attention, const char *text,
                                      const heed_form *const *forms)
{
    attention->spec = NULL;
    attention->plain = attention->prompt = NULL;
    heed_status status = heed_spec_parse(&attention->spec, text, forms);
    if (!status)
        status = read_storage(attention->spec, attention);
    if (!status)
        status = print_without(attention->spec, true, &attention->plain);
    attention->recaller = status ? NULL : find_recaller(attention->spec);
    if (attention->recaller && !(attention->recaller->recall->flags & HEED_RECALL_GATHERS))
        status = print_without(attention->spec, false, &attention->prompt);
    if (status)
        heed_attention_free(attention);
    return status;
}

void heed_attention_free(heed_attention *attention)
{
    heed_spec_free(attention->spec);
    free(attention->plain);
    free(attention->prompt);
    attention->prompt = NULL;
    attention->spec = NULL;
    attention->plain = NULL;
}
