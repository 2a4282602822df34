/* A chain of cache forms: which of them belong together, what they want, when they act. */
#include "attend/registry.h"
#include "cache/keep.h"
#include "cache/keep_parts.h"

#include <string.h>

#define TRY(call)                                                                                            \
    do {                                                                                                     \
        const heed_status try_status = (call);                                                               \
        if (try_status != HEED_OK)                                                                           \
            return try_status;                                                                               \
    } while (0)

enum { BUDGET, SHARE };

/* Effort of moving kept keys together, and of unpacking keys or values, in queries that meet all of them. */
enum { MOVING = 8, UNPACKING = 8, TWENTIETH = 20, LEAST_EVERY = 64 };

static bool shapes(const heed_policy *policy)
{
    return policy->regroup || policy->layer_budget || policy->share_out || policy->merge;
}

int heed_chain_next_judge(const heed_chain *chain, int from)
{
    while (from < chain->forms && !heed_is_judge(chain->form[from].form->policy))
        from++;
    return from;
}

static bool is_given(const heed_form_state *form, int arg)
{
    return !isnan(form->arg[arg].number);
}

int64_t heed_judge_budget(const heed_form_state *judge, int64_t visible)
{
    if (is_given(judge, BUDGET))
        return heed_arg_int(judge, BUDGET);
    if (!is_given(judge, SHARE))
        return visible;
    const int64_t budget = (int64_t)(judge->arg[SHARE].number * (double)visible + 1e-9);
    return budget < 1 ? 1 : budget;
}

/* A judge of scores keeps as many as its arguments, or a form behind it, say. */
static heed_status check_budget(const heed_chain *chain, int judge)
{
    const heed_form_state *form = &chain->form[judge];
    const heed_policy *policy = form->form->policy;
    bool bounded = false;
    for (int f = judge + 1; f < heed_chain_next_judge(chain, judge + 1); f++)
        bounded |= chain->form[f].form->policy->bounds;
    if (policy->choose)
        return HEED_OK;
    const heed_arg *args = form->form->args;
    if (!args || !args[BUDGET].name || strcmp(args[BUDGET].name, "budget") || !args[SHARE].name ||
        strcmp(args[SHARE].name, "share"))
        return heed_fail(HEED_INVALID,
                         "cache=%s judges keys, so its arguments must begin with HEED_BUDGET_ARGS",
                         form->form->name);
    const bool budget = is_given(form, BUDGET), share = is_given(form, SHARE);
    if (budget && share)
        return heed_fail(HEED_INVALID, "cache=%s has two budgets, budget=%lld and share=%g: give one",
                         form->form->name, (long long)heed_arg_int(form, BUDGET), form->arg[SHARE].number);
    if (!budget && !share && !bounded)
        return heed_fail(HEED_INVALID,
                         "cache=%s has no budget: give budget=, in keys a kv head, or share=, of the tokens "
                         "read",
                         form->form->name);
    int64_t first = 0, recent = 0;
    if (budget && policy->ends)
        policy->ends(form, heed_arg_int(form, BUDGET), &first, &recent);
    if (budget && first + recent > heed_arg_int(form, BUDGET))
        return heed_fail(
            HEED_INVALID,
            "cache=%s(budget=%lld): the first %lld and the last %lld keys stay in any case, so the "
            "budget must be at least %lld",
            form->form->name, (long long)heed_arg_int(form, BUDGET), (long long)first, (long long)recent,
            (long long)(first + recent));
    return HEED_OK;
}

/* What stands behind a judge up to the next must have something to shape, and at most one form merges. */
static heed_status check_shapes(const heed_chain *chain, int judge)
{
    const heed_form *form = chain->form[judge].form;
    const char *merges = form->policy->merge ? form->name : NULL;
    for (int f = judge + 1; f < heed_chain_next_judge(chain, judge + 1); f++) {
        const heed_form *shape = chain->form[f].form;
        if (form->policy->choose &&
            (shape->policy->regroup || shape->policy->layer_budget || shape->policy->share_out))
            return heed_fail(
                HEED_INVALID,
                "cache=%s > %s: %s says itself what stays, so there is no budget or score for %s", form->name,
                shape->name, form->name, shape->name);
        if (shape->policy->merge && merges)
            return heed_fail(HEED_INVALID,
                             "cache=%s > %s: dropped keys go into others by %s or by %s, not both",
                             form->name, shape->name, merges, shape->name);
        merges = shape->policy->merge ? shape->name : merges;
    }
    return HEED_OK;
}

static heed_status take_manner(heed_chain *chain, const heed_form_state *form, bool seen[])
{
    const int manner = form->form->policy->manner;
    if (manner == HEED_MANNER_NONE)
        return HEED_OK;
    seen[manner] = true;
    chain->packed |= manner == HEED_MANNER_PACKED;
    chain->prompt_only |= manner == HEED_MANNER_PREFILL;
    chain->every = manner == HEED_MANNER_EVERY ? heed_arg_int(form, 0) : chain->every;
    chain->chunked = manner == HEED_MANNER_CHUNKED ? heed_arg_int(form, 0) : chain->chunked;
    if (seen[HEED_MANNER_PREFILL] && seen[HEED_MANNER_EVERY])
        return heed_fail(
            HEED_INVALID,
            "cache: every(%lld) acts while decoding and prompt_only never does: give one of them",
            (long long)chain->every);
    return HEED_OK;
}

static void add_wants(heed_chain *chain, int f)
{
    const heed_form_state *form = &chain->form[f];
    const heed_policy *policy = form->form->policy;
    chain->observes |= policy->observes;
    if (policy->merge) {
        chain->merges = true;
        chain->observes |= HEED_OBSERVES_KEYS | HEED_OBSERVES_VALUES;
    }
    chain->effort += policy->effort;
    if (policy->repeats) {
        const int each = policy->repeats(form);
        chain->repeats = chain->repeats && chain->repeats < each ? chain->repeats : each;
        chain->prompt_only = true;
    }
    const int window = policy->window ? policy->window(form) : 0, top = policy->top ? policy->top(form) : 0;
    chain->window = window > chain->window ? window : chain->window;
    chain->top = top > chain->top ? top : chain->top;
    chain->state_at[f] = chain->state_floats;
    chain->state_floats += policy->state_floats;
}

heed_status heed_chain_settle(heed_chain *chain)
{
    bool seen[HEED_MANNER_PREFILL + 1] = {false};
    chain->observes = 0;
    chain->window = chain->top = chain->state_floats = chain->judges = 0;
    chain->packed = chain->prompt_only = chain->merges = false;
    chain->every = 0;
    chain->effort = MOVING;
    chain->chunked = 0;
    chain->repeats = 0;
    for (int f = 0; f < chain->forms; f++) {
        heed_form_state *form = &chain->form[f];
        const heed_policy *policy = form->form->policy;
        if (!policy)
            return heed_fail(HEED_INVALID, "cache=%s is no policy", form->form->name);
        if (form->form->resolve)
            TRY(form->form->resolve(form));
        if (!heed_is_judge(policy) && shapes(policy) && !chain->judges)
            return heed_fail(HEED_INVALID, "cache=%s shapes a policy, so it goes behind one: POLICY > %s",
                             form->form->name, form->form->name);
        chain->judges += heed_is_judge(policy);
        TRY(take_manner(chain, form, seen));
        add_wants(chain, f);
    }
    if (chain->repeats && (chain->every || chain->chunked))
        return heed_fail(HEED_INVALID,
                         "cache: a policy that has a prompt read once more acts at its end, so %s has no "
                         "sense there",
                         chain->every ? "every" : "chunked");
    if (chain->observes & HEED_OBSERVES_KEYS)
        chain->effort += UNPACKING;
    if (chain->observes & HEED_OBSERVES_BARE)
        chain->effort += UNPACKING;
    if (chain->observes & HEED_OBSERVES_VALUES)
        chain->effort += UNPACKING;
    if (chain->observes & (HEED_OBSERVES_QUERIES | HEED_OBSERVES_WEIGHTS))
        chain->effort += chain->window;
    if (chain->forms && !chain->judges)
        return heed_fail(HEED_INVALID, "cache=%s says how a policy acts, but there is no policy before it",
                         chain->form[0].form->name);
    for (int j = heed_chain_next_judge(chain, 0); j < chain->forms; j = heed_chain_next_judge(chain, j + 1)) {
        TRY(check_budget(chain, j));
        TRY(check_shapes(chain, j));
    }
    return HEED_OK;
}

heed_status heed_chain_of_spec(heed_chain *chain, const heed_spec *spec, int root, heed_isa isa,
                               const heed_sizes *sizes, int64_t layer, int64_t layers)
{
    enum { MOST = HEED_MAX_CHAIN + 8 }; /* with storage forms */
    const heed_node *list[MOST];
    const int count = heed_spec_chain(spec, root, list, MOST);
    *chain = (heed_chain){.layer = layer, .layers = layers};
    for (int i = 0; i < count && i < MOST; i++) {
        if (!list[i]->form->policy || list[i]->form->policy->go_on)
            continue;
        if (chain->forms == HEED_MAX_CHAIN)
            return heed_fail(HEED_INVALID,
                             "column %d: cache=%s is one policy form too many: a chain has at most %d",
                             list[i]->column, list[i]->form->name, (int)HEED_MAX_CHAIN);
        const heed_form *form = heed_registry_find(isa, HEED_CACHE, list[i]->form->name);
        heed_form_state *state = &chain->form[chain->forms++];
        state->form = form ? form : list[i]->form;
        memcpy(state->arg, list[i]->arg, sizeof state->arg);
        state->sizes = *sizes;
    }
    if (count > MOST)
        return heed_fail(HEED_INVALID, "cache: a chain of %d forms is too long", count);
    return heed_chain_settle(chain);
}

static bool same_number(double a, double b)
{
    return a == b || (isnan(a) && isnan(b));
}

bool heed_chain_is_same(const heed_chain *a, const heed_chain *b)
{
    bool same = a->forms == b->forms;
    for (int f = 0; same && f < a->forms; f++) {
        same = a->form[f].form == b->form[f].form;
        for (int i = 0; i < HEED_MAX_ARGS; i++) {
            const heed_value *x = &a->form[f].arg[i], *y = &b->form[f].arg[i];
            same = same && same_number(x->number, y->number);
            for (int j = 0; j < HEED_MAX_SUBARGS; j++)
                same = same && same_number(x->sub[j], y->sub[j]);
        }
    }
    return same;
}

int64_t heed_layer_budget(const heed_chain *chain, int judge, int64_t visible)
{
    int64_t budget = heed_judge_budget(&chain->form[judge], visible);
    for (int f = judge + 1; f < heed_chain_next_judge(chain, judge + 1); f++) {
        const heed_policy *policy = chain->form[f].form->policy;
        if (policy->layer_budget)
            budget = policy->layer_budget(&chain->form[f], chain->layer, chain->layers, budget, visible);
    }
    return budget < 1 ? 1 : budget;
}

int64_t heed_chain_budget(const heed_chain *chain, int64_t visible)
{
    int64_t least = visible;
    for (int j = heed_chain_next_judge(chain, 0); j < chain->forms; j = heed_chain_next_judge(chain, j + 1)) {
        const int64_t budget =
            chain->form[j].form->policy->choose ? visible : heed_layer_budget(chain, j, visible);
        least = budget < least ? budget : least;
    }
    return least;
}

/* Some judge decides by itself how much stays. */
static bool is_open(const heed_chain *chain)
{
    bool open = false;
    for (int f = 0; f < chain->forms; f++)
        open |= chain->form[f].form->policy->choose || chain->form[f].form->policy->bounds;
    return open;
}

int64_t heed_chain_every(const heed_chain *chain, int64_t visible)
{
    if (chain->every)
        return chain->every;
    const int64_t quarter = heed_chain_budget(chain, visible) / 4, worth = TWENTIETH * chain->effort;
    const int64_t every = worth < quarter ? worth : quarter;
    return every > LEAST_EVERY ? every : LEAST_EVERY;
}

bool heed_chain_is_due(const heed_chain *chain, int64_t visible, int64_t held, int64_t since,
                       heed_moment moment)
{
    if (!chain->forms || held < 1 || since < 1)
        return false;
    const int64_t over = held - heed_chain_budget(chain, visible);
    const int64_t every = heed_chain_every(chain, visible);
    const bool open = is_open(chain);
    if (moment == HEED_DECODING)
        return !chain->prompt_only && (over >= every || (open && since >= every));
    return (moment == HEED_PROMPT_ENDS || chain->chunked) && (over > 0 || open);
}

void heed_chain_observe(const heed_chain *chain, const heed_seen *seen, float *state)
{
    for (int f = 0; f < chain->forms; f++) {
        const heed_policy *policy = chain->form[f].form->policy;
        if (policy->observe)
            policy->observe(&chain->form[f], seen, state + chain->state_at[f], chain->state_floats);
    }
}
