/* What a layer before chose: while generating, a layer with this form reads the pages that the last selection
 * layer before it (`delta`) chose in the same step, all heads the same, and no other key.
 *
 * Its page is that of the selection layer. Prompts are read in full.
 */
#include "attend/select/listed.h"

static int64_t unit(const heed_form_state *form)
{
    return heed_arg_int(form, 0);
}

static int64_t numbers(const heed_form_state *form, int64_t keys)
{
    return heed_list_numbers(unit(form), keys);
}

static void recall_pages(const heed_form_state *form, const heed_recalled *now)
{
    const int64_t blocks = (now->keys + unit(form) - 1) / unit(form);
    for (int g = 0; g < now->kv_heads; g++)
        heed_list_mark(now->memory->number, blocks, blocks, now->keep[g]);
}

static const heed_arg args[] = {
    {.name = "page",
     .kind = HEED_ARG_INT,
     .value = 16,
     .least = 1,
     .most = INFINITY,
     .summary = "keys in a page, as the selection layer has it"},
    {0},
};

static const heed_recall recall = {
    .flags = HEED_RECALL_FROM_LAYERS, .unit = unit, .numbers = numbers, .recall = recall_pages};

const heed_form HEED_FORM(select_follow) = {
    .name = "follow",
    .stage = HEED_SELECT,
    .summary = "while generating: the pages that a selection layer before this one chose",
    .formula = "the pages that the last layer with delta chose in the same step",
    .source = "DELTA: layer-aware token attention, 2025",
    .row = "004.186",
    .args = args,
    .recall = &recall,
};
