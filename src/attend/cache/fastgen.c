/* FastGen: each head keeps what it looks at, by the cheapest of five sets that holds enough of its weight.
 *
 *     sets: control tokens; + punctuation; + the frequent * visible keys of largest sums of weights;
 *           + the newest local * visible keys; all
 *     kept: the first set C with mean over the last `window` queries and the heads that share the keys of
 *           sum_{j in C} w_ij >= recovery
 *
 * visible: the tokens read that the layer can see, so that sets do not shrink from act to act. recovery above
 * 1 keeps all. The paper profiles heads once, from the whole map of the prompt; here the last queries profile
 * them whenever the policy acts. Ge et al.: Model Tells You What to Discard, 2023.
 */
#include "attend/cache/best.h"
#include "attend/cache/judge.h"

enum { RECOVERY, LOCAL, FREQUENT, WINDOW };
enum { SPECIAL, PUNCTUATION, FREQUENTLY, LOCALLY, SETS };

static int window(const heed_form_state *form)
{
    return heed_arg_int(form, WINDOW);
}

static void observe(const heed_form_state *form, const heed_seen *seen, float *state, int64_t stride)
{
    (void)form;
    heed_add_sums(seen, state, stride);
}

static int64_t part_of(const heed_form_state *form, int arg, const heed_held *held)
{
    const int64_t n = (int64_t)(form->arg[arg].number * (double)held->visible + 1e-9);
    return n < held->count ? n : held->count;
}

/* set[j]: the first of the sets that has key j; SETS for those that only `all` has. work [2 count]. */
static void sort_keys(const heed_form_state *form, const heed_held *held, float *set, float *work)
{
    for (int64_t j = 0; j < held->count; j++)
        work[j] = held->state[j * held->state_stride];
    heed_score_cut cut = heed_cut_of(work, held->count, part_of(form, FREQUENT, held), work + held->count);
    const int64_t local = held->count - part_of(form, LOCAL, held);
    for (int64_t j = held->count - 1; j >= 0; j--) {
        const bool tie = work[j] == cut.score && cut.ties > 0;
        cut.ties -= tie;
        set[j] = held->token_kind[j] & HEED_TOKEN_SPECIAL       ? SPECIAL
                 : held->token_kind[j] & HEED_TOKEN_PUNCTUATION ? PUNCTUATION
                 : work[j] > cut.score || tie                   ? FREQUENTLY
                 : j >= local                                   ? LOCALLY
                                                                : SETS;
    }
}

static void choose(const heed_form_state *form, const heed_held *held, uint8_t *keep, float *work)
{
    float *set = work, *weight = work + held->count, recovered = 0.0f;
    sort_keys(form, held, set, work + held->count);
    heed_mean_weights(held, heed_arg_int(form, WINDOW), weight);
    int cheapest = 0;
    for (; cheapest < SETS; cheapest++) {
        for (int64_t j = 0; j < held->count; j++)
            recovered += set[j] == (float)cheapest ? weight[j] : 0.0f;
        if (recovered >= heed_arg_float(form, RECOVERY))
            break;
    }
    for (int64_t j = 0; j < held->count; j++)
        keep[j] = set[j] <= (float)cheapest;
}

static const heed_arg args[] = {
    {.name = "recovery",
     .value = 0.95,
     .least = 0,
     .most = INFINITY,
     .summary = "weight that a set must hold"},
    HEED_PART_ARG("local", 0.3, "of the visible tokens, in the local window"),
    HEED_PART_ARG("frequent", 0.3, "of the visible tokens, of largest sums"),
    HEED_COUNT_ARG("window", 1, 64, "last queries that profile a head"),
    {0},
};

static const heed_policy policy = {.observes =
                                       HEED_OBSERVES_TOKENS | HEED_OBSERVES_WEIGHTS | HEED_OBSERVES_SUMS,
                                   .window = window,
                                   .state_floats = 1,
                                   .observe = observe,
                                   .choose = choose};

const heed_form HEED_FORM(cache_fastgen) = {
    .name = "fastgen",
    .stage = HEED_CACHE,
    .summary = "each head keeps the cheapest of five sets of keys that holds enough of its weight",
    .formula = "the first of special, punctuation, frequent, local, all with retained weight >= recovery",
    .source = "Ge et al.: Model Tells You What to Discard, 2023",
    .row = "001.037",
    .args = args,
    .policy = &policy,
};
