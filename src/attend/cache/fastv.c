/* FastV: tokens of a prompt that hardly anyone looks at go no further than this layer.
 *
 *     phi_j = mean over heads of w[last][j]      score=last: weights that the prompt's last token gives
 *           = the same over all queries i >= j   score=mean
 *
 * Of the designated tokens - those of the prompt from place `first` to below `end`, less the last `recent` -
 * the share `drop` of lowest phi stops here, rounded down, of equal ones the later. Later layers compute and
 * keep the others, at the positions that they have. The layer that the form is given to is the last that all
 * tokens reach: `layers 1: cache=fastv` runs layers 0 and 1 in full, which is the paper's K=2. Text that is
 * written afterwards goes through all layers. score=random is there to compare with.
 */
#include "attend/cache/judge.h"
#include "attend/select/cut.h"

enum { DROP, SCORE, FIRST, END, RECENT, SEED };
enum { LAST, MEAN, RANDOM };

static float lot(uint64_t seed, int64_t place)
{
    uint64_t z = seed * 0x9E3779B97F4A7C15u + (uint64_t)place * 0xBF58476D1CE4E5B9u;
    z = (z ^ z >> 30) * 0xBF58476D1CE4E5B9u;
    z = (z ^ z >> 27) * 0x94D049BB133111EBu;
    return (float)((z ^ z >> 31) >> 40);
}

static void go_on(const heed_form_state *form, const heed_prompt *prompt, uint8_t *keep, float *work)
{
    const int score = heed_arg_int(form, SCORE);
    const int64_t first = heed_arg_int(form, FIRST), recent = heed_arg_int(form, RECENT);
    int64_t end = heed_arg_int(form, END);
    end = end < prompt->tokens - recent ? end : prompt->tokens - recent;
    const int64_t tokens = end > first ? end - first : 0;
    const int64_t stay = tokens - (int64_t)(form->arg[DROP].number * (double)tokens + 1e-9);
    for (int64_t j = 0; j < tokens; j++)
        work[j] = score == LAST   ? prompt->last[first + j]
                  : score == MEAN ? prompt->mean[first + j]
                                  : lot((uint64_t)heed_arg_int(form, SEED), prompt->before + first + j);
    heed_keep_highest(work, (int)tokens, stay, work + tokens);
    for (int64_t j = 0; j < tokens; j++)
        keep[first + j] = work[j] != -INFINITY;
}

static const heed_option scores[] = {{"last", NULL}, {"mean", NULL}, {"random", NULL}, {NULL, NULL}};

static const heed_arg args[] = {
    HEED_PART_ARG("drop", 0.5, "designated tokens that stop here, as a share"),
    {.name = "score",
     .kind = HEED_ARG_CHOICE,
     .options = scores,
     .summary = "by the weights that the last token gives, all tokens on average, or a hash"},
    HEED_COUNT_ARG("first", 0, 0, "first designated token of the prompt"),
    {.name = "end",
     .kind = HEED_ARG_INT,
     .value = NAN,
     .least = 0,
     .most = INFINITY,
     .computed = "all",
     .summary = "the token behind the last designated one"},
    HEED_COUNT_ARG("recent", 0, 32, "last tokens of the prompt that are not designated"),
    HEED_COUNT_ARG("seed", 0, 0, "of the hash"),
    {0},
};

static heed_status resolve(heed_form_state *form)
{
    if (!form->arg[END].given)
        form->arg[END].number = INFINITY;
    return HEED_OK;
}

static const heed_policy policy = {.go_on = go_on};

const heed_form HEED_FORM(cache_fastv) = {
    .name = "fastv",
    .stage = HEED_CACHE,
    .summary = "tokens of a prompt that hardly anyone looks at are left out of later layers",
    .formula = "phi_j = mean over heads of w[last][j]; the lowest share R of designated tokens stops here",
    .source = "Chen et al.: An Image is Worth 1/2 Tokens After Layer 2 (FastV), 2024",
    .row = "001.008",
    .args = args,
    .resolve = resolve,
    .policy = &policy,
};
