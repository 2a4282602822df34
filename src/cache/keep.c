/* Applying a chain to a layer: each judge with the forms behind it, among the heads whose chains agree. */
#include "cache/keep.h"
#include "cache/keep_parts.h"

#include <float.h>
#include <string.h>

/* The heads of one layer whose chains are the same, as the judge whose turn it is sees them. Arrays of
 * [heads]. */
typedef struct party {
    const heed_chain *chain;
    int heads;
    int *place;                   /* among the layer's kv heads */
    heed_held *held;              /* what earlier judges left */
    heed_held *seen;              /* the same, with the state of the form that looks at it */
    float **score;                /* [count] */
    uint8_t **keep;               /* [count] */
    float **key, **value, **mass; /* writable, behind `held` */
    int32_t **index;              /* [count] places among all keys */
    char **left;                  /* memory of heed_left */
    int64_t capacity;             /* keys that it has room for */
    int64_t *budget, *first, *recent;
    float *work;
} party;

static int64_t own_work(const heed_chain *chain, const heed_held *largest)
{
    int64_t most = 0;
    for (int f = 0; f < chain->forms; f++) {
        const heed_policy *policy = chain->form[f].form->policy;
        const int64_t floats = policy->work_floats ? policy->work_floats(&chain->form[f], largest) : 0;
        most = floats > most ? floats : most;
    }
    return most;
}

/* The next `bytes` of the caller's memory; only counts where there is none. */
static void *take(size_t *at, void *memory, size_t bytes)
{
    void *taken = memory ? (char *)memory + *at : NULL;
    *at += (bytes + 7) / 8 * 8;
    return taken;
}

/* Lays a party out for `heads` heads of at most largest->count keys; returns the bytes that it takes. */
static size_t lay_out(party *p, void *memory, const heed_chain *chain, int heads, const heed_held *largest)
{
    p->capacity = largest->count;
    const size_t n = (size_t)heads, count = (size_t)largest->count;
    heed_held most = *largest;
    most.besides = most.kv_heads = heads;
    size_t at = 0;
    p->place = take(&at, memory, n * sizeof *p->place);
    p->held = take(&at, memory, n * sizeof *p->held);
    p->seen = take(&at, memory, n * sizeof *p->seen);
    p->score = take(&at, memory, n * sizeof *p->score);
    p->keep = take(&at, memory, n * sizeof *p->keep);
    p->key = take(&at, memory, n * sizeof *p->key);
    p->value = take(&at, memory, n * sizeof *p->value);
    p->mass = take(&at, memory, n * sizeof *p->mass);
    p->index = take(&at, memory, n * sizeof *p->index);
    p->left = take(&at, memory, n * sizeof *p->left);
    p->budget = take(&at, memory, n * sizeof *p->budget);
    p->first = take(&at, memory, n * sizeof *p->first);
    p->recent = take(&at, memory, n * sizeof *p->recent);
    const bool again = chain->judges > 1;
    for (size_t g = 0; g < n; g++) {
        float *score = take(&at, memory, count * sizeof *score);
        uint8_t *keep = take(&at, memory, count);
        int32_t *index = take(&at, memory, count * sizeof *index);
        char *left = take(&at, memory, again ? heed_left_bytes(chain, largest) : 0);
        if (!memory)
            continue;
        p->score[g] = score;
        p->keep[g] = keep;
        p->index[g] = index;
        p->left[g] = left;
    }
    const int64_t floats =
        4 * heads * largest->count + largest->dim + largest->value_dim + own_work(chain, &most);
    p->work = take(&at, memory, (size_t)floats * sizeof *p->work);
    return at;
}

size_t heed_keep_work_bytes(const heed_chain *chain, int kv_heads, const heed_held *largest)
{
    party p;
    size_t at = 0;
    take(&at, NULL, (size_t)kv_heads);
    return at + lay_out(&p, NULL, chain, kv_heads, largest);
}

/* Gives the form in turn its own state of every head. */
static const heed_form_state *turn(const party *p, int form)
{
    for (int g = 0; g < p->heads; g++) {
        p->seen[g] = p->held[g];
        p->seen[g].state = p->held[g].state ? p->held[g].state + p->chain->state_at[form] : NULL;
        p->seen[g].beside = p->seen;
        p->seen[g].besides = p->heads;
    }
    return &p->chain->form[form];
}

/* A score that is no number says nothing of its key: it goes before all but the banished. */
static void know_scores(const party *p)
{
    for (int g = 0; g < p->heads; g++)
        for (int64_t j = 0; j < p->held[g].count; j++)
            p->score[g][j] = p->score[g][j] == p->score[g][j] ? p->score[g][j] : -FLT_MAX;
}

static void ask_ends(const party *p, int judge)
{
    const heed_form_state *form = &p->chain->form[judge];
    for (int g = 0; g < p->heads; g++) {
        p->first[g] = p->recent[g] = 0;
        if (form->form->policy->ends)
            form->form->policy->ends(form, p->budget[g], &p->first[g], &p->recent[g]);
    }
}

static bool has_room(const party *p, int judge, int end)
{
    bool room = true;
    for (int f = judge + 1; f < end; f++)
        room &= !p->chain->form[f].form->policy->bounds;
    for (int g = 0; g < p->heads; g++)
        room &= p->budget[g] >= p->held[g].count;
    return room;
}

/* Scores, what shapes make of them, and the best of every head. */
static void keep_by_score(const party *p, int judge, int end)
{
    for (int g = 0; g < p->heads; g++)
        p->budget[g] = heed_layer_budget(p->chain, judge, p->held[g].visible);
    if (has_room(p, judge, end)) {
        for (int g = 0; g < p->heads; g++)
            memset(p->keep[g], 1, (size_t)p->held[g].count);
        return;
    }
    const heed_form_state *form = turn(p, judge);
    for (int g = 0; g < p->heads; g++)
        form->form->policy->judge(form, &p->seen[g], p->score[g], p->work);
    know_scores(p);
    for (int f = judge + 1; f < end; f++) {
        const heed_policy *policy = p->chain->form[f].form->policy;
        const heed_shares shares = {p->seen, p->heads, p->score, p->first, p->recent, p->budget};
        if (!policy->regroup && !policy->share_out)
            continue;
        ask_ends(p, judge);
        form = turn(p, f);
        if (policy->regroup)
            policy->regroup(form, &shares, p->work);
        know_scores(p);
        if (policy->share_out)
            policy->share_out(form, &shares, p->work);
        for (int g = 0; g < p->heads; g++)
            p->budget[g] = p->budget[g] < 1 ? 1 : p->budget[g];
    }
    ask_ends(p, judge);
    for (int g = 0; g < p->heads; g++)
        heed_keep_best(p->score[g], p->held[g].count, p->budget[g], p->first[g], p->recent[g], p->keep[g],
                       p->work);
}

static void keep_by_choice(const party *p, int judge)
{
    const heed_form_state *form = turn(p, judge);
    for (int g = 0; g < p->heads; g++) {
        memset(p->keep[g], 1, (size_t)p->held[g].count);
        memset(p->score[g], 0, (size_t)p->held[g].count * sizeof(float));
        form->form->policy->choose(form, &p->seen[g], p->keep[g], p->work);
    }
}

static bool drops(const party *p, int g)
{
    return memchr(p->keep[g], 0, (size_t)p->held[g].count) != NULL;
}

static void merge(const party *p, int f, bool *changed)
{
    const heed_form_state *form = turn(p, f);
    for (int g = 0; g < p->heads; g++) {
        if (!drops(p, g))
            continue;
        const heed_folding folding = {.held = &p->seen[g],
                                      .keep = p->keep[g],
                                      .score = p->score[g],
                                      .key = p->key[g],
                                      .value = p->value[g],
                                      .mass = p->mass[g],
                                      .work = p->work};
        form->form->policy->merge(form, &folding);
        changed[p->place[g]] = true;
    }
}

static void run_judge(const party *p, int judge, bool *changed)
{
    const int end = heed_chain_next_judge(p->chain, judge + 1);
    if (p->chain->form[judge].form->policy->choose)
        keep_by_choice(p, judge);
    else
        keep_by_score(p, judge, end);
    for (int f = judge; f < end; f++)
        if (p->chain->form[f].form->policy->merge)
            merge(p, f, changed);
}

/* What the judge said of the keys that it saw, for all keys. */
static void tell(const party *p, const heed_keep *keep)
{
    for (int g = 0; g < p->heads; g++) {
        const heed_held *held = &p->held[g];
        const int head = p->place[g];
        for (int64_t i = 0; i < held->count; i++) {
            const int64_t at = p->index[g][i];
            keep->keep[head][at] = p->keep[g][i] != 0;
            if (!p->chain->merges || !p->keep[g][i] || p->key[g] == keep->key[head])
                continue;
            memcpy(keep->key[head] + at * held->dim, p->key[g] + i * held->dim,
                   (size_t)held->dim * sizeof(float));
            memcpy(keep->value[head] + at * held->value_dim, p->value[g] + i * held->value_dim,
                   (size_t)held->value_dim * sizeof(float));
            keep->mass[head][at] = p->mass[g][i];
        }
    }
}

/* The next judge sees what this one left. */
static void pass_on(const party *p)
{
    for (int g = 0; g < p->heads; g++) {
        p->held[g] = heed_left(p->chain, &p->held[g], p->keep[g], p->index[g], p->left[g], p->capacity);
        p->key[g] = (float *)(uintptr_t)p->held[g].key;
        p->value[g] = (float *)(uintptr_t)p->held[g].value;
        p->mass[g] = (float *)(uintptr_t)p->held[g].mass;
    }
}

static void run_party(const party *p, const heed_keep *keep)
{
    for (int g = 0; g < p->heads; g++) {
        memset(keep->keep[p->place[g]], 1, (size_t)p->held[g].count);
        for (int64_t i = 0; i < p->held[g].count; i++)
            p->index[g][i] = (int32_t)i;
    }
    for (int judge = heed_chain_next_judge(p->chain, 0); judge < p->chain->forms;) {
        run_judge(p, judge, keep->changed);
        tell(p, keep);
        judge = heed_chain_next_judge(p->chain, judge + 1);
        if (judge < p->chain->forms)
            pass_on(p);
    }
}

/* The heads from `head` on whose chains are the same, laid out in what is left of the memory. */
static void gather(party *p, const heed_keep *keep, int head, uint8_t *done, void *memory)
{
    heed_held largest = keep->held[head];
    int heads = 0;
    for (int g = head; g < keep->kv_heads; g++) {
        if (done[g] || !heed_chain_is_same(keep->chain[g], keep->chain[head]))
            continue;
        const heed_held *held = &keep->held[g];
        largest.count = held->count > largest.count ? held->count : largest.count;
        largest.queries = held->queries > largest.queries ? held->queries : largest.queries;
        done[g] = 2;
        heads++;
    }
    p->chain = keep->chain[head];
    p->heads = 0;
    lay_out(p, memory, p->chain, heads, &largest);
    for (int g = head; g < keep->kv_heads; g++) {
        if (done[g] != 2)
            continue;
        done[g] = 1;
        p->place[p->heads] = g;
        p->held[p->heads] = keep->held[g];
        p->key[p->heads] = keep->key ? keep->key[g] : NULL;
        p->value[p->heads] = keep->value ? keep->value[g] : NULL;
        p->mass[p->heads] = keep->mass ? keep->mass[g] : NULL;
        p->heads++;
    }
}

void heed_keep_apply(const heed_keep *keep)
{
    size_t at = 0;
    uint8_t *done = take(&at, keep->work, (size_t)keep->kv_heads);
    memset(done, 0, (size_t)keep->kv_heads);
    for (int g = 0; g < keep->kv_heads; g++) {
        party p;
        if (done[g])
            continue;
        keep->changed[g] = false;
        gather(&p, keep, g, done, (char *)keep->work + at);
        run_party(&p, keep);
    }
}
