/* Round attention: of a conversation, the rounds that the current question looks at.
 *
 *     a message begins at a control token that follows text; `messages` messages are a round, counted from
 * the end, where the last is the current one R_r = sum over the layer's heads, the last `window` queries i
 * and the keys j of round r of w_ij kept: the k rounds of largest R (of equal ones the later), the current
 * one, messages before the first whole round, and the first `first` keys
 *
 * The paper moves the other rounds to slower memory, from where the next question can have them back, and
 * lets one layer choose for those above; here a layer chooses for itself and the rest is dropped. A text
 * without control tokens is one round and stays. Tang et al.: Round Attention, 2025.
 */
#include "attend/cache/judge.h"

enum { K, MESSAGES, WINDOW, FIRST };

static int window(const heed_form_state *form)
{
    return heed_arg_int(form, WINDOW);
}

/* message[j], counted from 0; returns how many there are. */
static int64_t count_messages(const heed_held *held, float *message)
{
    int64_t now = 0;
    bool text = false;
    for (int64_t j = 0; j < held->count; j++) {
        const bool special = held->token_kind[j] & HEED_TOKEN_SPECIAL;
        if (special && text) {
            now++;
            text = false;
        }
        text |= !held->token_kind[j];
        message[j] = (float)now;
    }
    return now + 1;
}

/* weight[r] += what the last queries of a head gave to round r, found by the positions that `held` has. */
static void add_weights(const heed_form_state *form, const heed_held *from, const heed_held *held,
                        const float *round, float *weight, float *work)
{
    heed_mean_weights(from, heed_arg_int(form, WINDOW), work);
    for (int64_t i = 0, j = 0; i < from->count && held->count; i++) {
        while (j + 1 < held->count && held->pos[j + 1] <= from->pos[i])
            j++;
        if (round[j] >= 0.0f)
            weight[(int64_t)round[j]] += work[i];
    }
}

static void choose(const heed_form_state *form, const heed_held *held, uint8_t *keep, float *work)
{
    const int64_t count = held->count, each = heed_arg_int(form, MESSAGES);
    float *round = work, *weight = work + count, *spare = work + 2 * count;
    const int64_t messages = count_messages(held, round), rounds = messages / each;
    for (int64_t j = 0; j < count; j++) { /* from the end: 0 is the current one, -1 before the first */
        const int64_t r = (messages - 1 - (int64_t)round[j]) / each;
        round[j] = r < rounds ? (float)r : -1.0f;
        weight[j] = 0.0f;
        keep[j] = r == 0 || r >= rounds || j < heed_arg_int(form, FIRST);
    }
    for (int g = 0; g < held->besides; g++)
        add_weights(form, &held->beside[g], held, round, weight, spare);
    for (int64_t chosen = 0; chosen < heed_arg_int(form, K) && chosen < rounds - 1; chosen++) {
        int64_t best = 1;
        for (int64_t r = 2; r < rounds; r++)
            best = weight[r] > weight[best] ? r : best;
        weight[best] = -INFINITY;
        for (int64_t j = 0; j < count; j++)
            keep[j] |= round[j] == (float)best;
    }
}

static int64_t work_floats(const heed_form_state *form, const heed_held *largest)
{
    (void)form;
    return largest->count; /* of a head beside */
}

static const heed_arg args[] = {
    HEED_COUNT_ARG("k", 0, 4, "rounds that stay beside the current one"),
    HEED_COUNT_ARG("messages", 1, 2, "messages of a round"),
    HEED_COUNT_ARG("window", 1, 32, "last queries that judge"),
    HEED_COUNT_ARG("first", 0, 4, "keys at the beginning that stay"),
    {0},
};

static const heed_policy policy = {.observes = HEED_OBSERVES_TOKENS | HEED_OBSERVES_WEIGHTS,
                                   .window = window,
                                   .work_floats = work_floats,
                                   .choose = choose};

const heed_form HEED_FORM(cache_rounds) = {
    .name = "rounds",
    .stage = HEED_CACHE,
    .summary = "of a conversation, the rounds of most weight for the current question",
    .formula = "the k rounds of largest sum of w_ij over the last queries, and the current one",
    .source = "Tang et al.: Round Attention, 2025; as eviction",
    .row = "000.056",
    .args = args,
    .policy = &policy,
};
