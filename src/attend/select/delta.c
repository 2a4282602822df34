/* Selection layers, whose choice the layers after them read (DELTA).
 *
 *     A_j = max over all heads h of w[h][j],     score of a page = sum of A_j over its keys
 *
 * w are the weights exp(s) / sum exp(s) of the newest token's row over all open keys. A layer with this form
 * attends to all keys; the last `recent` keys, in whole pages, and the pages of largest score, `budget` keys
 * together, of equal ones the lower page, are what later layers with `follow` read, in the same step and for
 * all their heads. Chosen anew for every token. Prompts are read in full.
 *
 * Budgets are rounded up to whole pages; the page that is still filling is always one of them.
 */
#include "attend/select/listed.h"

enum { PAGE, BUDGET, RECENT };

static int64_t unit(const heed_form_state *form)
{
    return heed_arg_int(form, PAGE);
}

static int64_t pages_of(const heed_form_state *form, int which)
{
    return ((int64_t)heed_arg_int(form, which) + unit(form) - 1) / unit(form);
}

static int64_t numbers(const heed_form_state *form, int64_t keys)
{
    return heed_list_numbers(unit(form), keys);
}

static bool renews(const heed_form_state *form, const heed_recalled *now)
{
    (void)form, (void)now;
    return true;
}

/* score [pages] */
static void score_pages(const heed_recalled *now, int64_t page, float *score)
{
    for (int64_t j = 0; j < now->keys; j++) {
        float most = 0;
        for (int h = 0; h < now->heads; h++)
            most = now->weight[h][j] > most ? now->weight[h][j] : most;
        score[j / page] = most + (j % page == 0 ? 0 : score[j / page]);
    }
}

static void remember(const heed_form_state *form, const heed_recalled *now)
{
    const int64_t pages = (now->keys + unit(form) - 1) / unit(form);
    int64_t recent = pages_of(form, RECENT);
    recent = recent < 1 ? 1 : recent < pages ? recent : pages;
    float *score = now->work, *work = now->work + now->keys;
    score_pages(now, unit(form), score);
    heed_keep_highest(score, (int)(pages - recent), pages_of(form, BUDGET) - recent, work);
    heed_list_write(score, pages, now->memory->number);
}

static const heed_arg args[] = {
    {.name = "page",
     .kind = HEED_ARG_INT,
     .value = 16,
     .least = 1,
     .most = INFINITY,
     .summary = "keys in a page"},
    {.name = "budget",
     .kind = HEED_ARG_INT,
     .value = 1024,
     .least = 1,
     .most = INFINITY,
     .summary = "keys that later layers read, in whole pages"},
    {.name = "recent",
     .kind = HEED_ARG_INT,
     .value = 128,
     .least = 0,
     .most = INFINITY,
     .summary = "newest keys among them, in whole pages"},
    {0},
};

static const heed_recall recall = {.flags = HEED_RECALL_WEIGHS | HEED_RECALL_FOR_LAYERS,
                                   .unit = unit,
                                   .numbers = numbers,
                                   .renews = renews,
                                   .remember = remember};

const heed_form HEED_FORM(select_delta) = {
    .name = "delta",
    .stage = HEED_SELECT,
    .summary =
        "while generating: all keys are read, and the best pages are what later layers with follow read",
    .formula = "pages of largest sum over keys of max over all heads of w[h][j], the newest always",
    .source = "DELTA: layer-aware token attention, 2025",
    .row = "004.186",
    .args = args,
    .recall = &recall,
};
