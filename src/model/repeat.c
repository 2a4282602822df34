/* Prompts that are read once more.
 *
 * A spare sequence shares what the sequence holds and reads an instruction and the text behind it, part by
 * part, each part on a share of its own; the weights that these queries give are looked at as they are made.
 * The sequence itself reads nothing, so that all is as before but for the keys that policies drop now.
 */
#include "model/repeat.h"
#include "base/try.h"
#include "model/session.h"

#include <float.h>
#include <heed/maths.h>
#include <string.h>

static const char whole_text[] = "\n\nRepeat the previous text exactly.\n\n";
static const char part_text[] = "\n\nRepeat the previous text exactly, starting with:\n\n";

static heed_status make_instructions(heed_repeat *repeat, const heed_tokenizer *tokenizer)
{
    if (!tokenizer) /* the text follows itself without a word */
        return HEED_OK;
    TRY(heed_tokenize(tokenizer, whole_text, strlen(whole_text), 0, &repeat->whole));
    return heed_tokenize(tokenizer, part_text, strlen(part_text), 0, &repeat->part);
}

static int64_t larger(int64_t a, int64_t b)
{
    return a > b ? a : b;
}

heed_status heed_repeat_find(heed_session *session)
{
    heed_repeat *repeat = &session->repeat;
    const heed_config *c = &session->model->config;
    for (int64_t i = 0; i < c->layers * c->kv_heads; i++) {
        const int64_t each = session->chain[i].repeats;
        repeat->each = each && (!repeat->each || each < repeat->each) ? each : repeat->each;
    }
    if (!repeat->each)
        return HEED_OK;
    if (session->prune.form || session->with)
        return heed_fail(HEED_UNSUPPORTED, "cache=%s: a prompt that is read once more %s",
                         session->prune.form ? session->prune.form->name : "kvzip",
                         session->prune.form ? "cannot be one of which tokens are left out of layers"
                                             : "cannot be captured from");
    TRY(make_instructions(repeat, session->model->tokenizer));
    repeat->each = repeat->each < session->context ? repeat->each : session->context;
    repeat->room = repeat->each + HEED_REPEAT_HINT + larger(repeat->whole.count, repeat->part.count);
    return HEED_OK;
}

heed_status heed_repeat_check(const heed_session *session)
{
    return session->repeat.each && session->recalls
               ? heed_fail(HEED_UNSUPPORTED,
                           "a prompt is not read once more where selectors have a memory of it")
               : HEED_OK;
}

void heed_repeat_take(heed_session *session, heed_arena *arena)
{
    heed_repeat *repeat = &session->repeat;
    const heed_config *c = &session->model->config;
    if (!repeat->each)
        return;
    repeat->keys = session->wants.most;
    repeat->token = heed_arena_take(arena, (size_t)repeat->room, sizeof *repeat->token);
    repeat->largest =
        heed_arena_take(arena, (size_t)(c->layers * c->kv_heads), (size_t)repeat->keys * sizeof(uint32_t));
    repeat->heads = heed_arena_take(arena, (size_t)c->layers, (size_t)c->heads);
    for (int64_t l = 0; arena->base && l < c->layers; l++)
        memset(repeat->heads + l * c->heads,
               (session->kind[session->layer[l].kind].with & HEED_WITH_WEIGHTS) != 0, (size_t)c->heads);
}

void heed_repeat_free(heed_repeat *repeat)
{
    heed_tokens_free(&repeat->whole);
    heed_tokens_free(&repeat->part);
}

/* Keys that the sequence itself holds lie at the front of the spare sequence's lists too. */
static void take_weights(void *context, int64_t layer, int64_t sequence, const heed_weights_tile *tile)
{
    const heed_session *session = context;
    const heed_repeat *repeat = &session->repeat;
    const heed_config *c = &session->model->config;
    const int64_t g = tile->head / (c->heads / c->kv_heads);
    const int64_t count = heed_pages_list(&session->pages, sequence, layer, g)->count;
    _Atomic uint32_t *largest = repeat->largest + (layer * c->kv_heads + g) * repeat->keys;
    for (int64_t j = 0; j < tile->cols && tile->key0 + j < count; j++) {
        float most = 0.0f;
        for (int r = 0; r < tile->rows; r++) {
            const float weight = tile->weight[r * tile->stride + j];
            most = weight > most ? weight : most;
        }
        const uint32_t bits = heed_bits_of_float(most);
        uint32_t before = atomic_load_explicit(&largest[tile->key0 + j], memory_order_relaxed);
        while (bits > before && !atomic_compare_exchange_weak(&largest[tile->key0 + j], &before, bits))
            continue;
    }
}

/* Chains of a layer that wait for a repetition, and see all of the text. */
static bool waits(const heed_session *session, int64_t l, int64_t g)
{
    return session->layer[l].chain && session->layer[l].chain[g].repeats;
}

/* The first token whose key was in no text that was repeated; the length where there is none. */
static int64_t first_new(const heed_session *session, int64_t sequence)
{
    const heed_config *c = &session->model->config;
    int64_t first = heed_session_length(session, sequence);
    for (int64_t l = 0; l < c->layers; l++)
        for (int64_t g = 0; g < c->kv_heads; g++) {
            const heed_kept_keys *list = heed_pages_list(&session->pages, sequence, l, g);
            if (!waits(session, l, g))
                continue;
            const int64_t stride = session->pages.layer[l].states;
            int64_t i = list->count;
            while (i > 0 && list->state[(i - 1) * stride] == 0.0f)
                i--;
            if (i < list->count && list->place[i] < first)
                first = list->place[i];
        }
    return first;
}

/* The instruction and up to `each` tokens from `at` on; returns how many of them. */
static int64_t write_part(heed_session *session, const int32_t *text, int64_t from, int64_t at, int64_t end,
                          int64_t *count)
{
    heed_repeat *repeat = &session->repeat;
    const heed_tokens *words = at > from ? &repeat->part : &repeat->whole;
    const int64_t hint = at > from ? (at - from < HEED_REPEAT_HINT ? at - from : HEED_REPEAT_HINT) : 0,
                  each = end - at < repeat->each ? end - at : repeat->each;
    *count = 0;
    for (int64_t i = 0; i < words->count; i++)
        repeat->token[(*count)++] = words->id[i];
    for (int64_t i = at - hint; i < at + each; i++)
        repeat->token[(*count)++] = text[i];
    return each;
}

static heed_status read_again(heed_session *session, int64_t sequence, int64_t from)
{
    heed_repeat *repeat = &session->repeat;
    const int64_t length = heed_session_length(session, sequence), spare = session->sequences,
                  positions = session->model->config.positions;
    const heed_feed_wants wants = {
        .weights = take_weights, .weight_heads = repeat->heads, .context = session};
    for (int64_t at = from, each; at < length; at += each) {
        int64_t count;
        TRY(heed_session_copy(session, sequence, spare, length));
        each = write_part(session, session->read[sequence].token, from, at, length, &count);
        if (positions && length + count > positions)
            return heed_fail(
                HEED_INVALID,
                "a prompt that ends at token %lld is to be read once more, %lld tokens at a time, "
                "but the model has learnt %lld positions only",
                (long long)length, (long long)count, (long long)positions);
        const heed_feed_item item = {
            .sequence = spare, .tokens = repeat->token, .count = count, .reading = HEED_READ_PROMPT_PART};
        TRY(heed_session_feed(session, &item, 1, &wants));
    }
    return HEED_OK;
}

/* What was seen goes beside the keys; a weight of 0 is told from none. */
static void note(const heed_session *session, int64_t sequence, int64_t l, int64_t g)
{
    const heed_config *c = &session->model->config;
    const heed_chain *chain = &session->layer[l].chain[g];
    const heed_kept_keys *list = heed_pages_list(&session->pages, sequence, l, g);
    const _Atomic uint32_t *largest = session->repeat.largest + (l * c->kv_heads + g) * session->repeat.keys;
    const bool ends = heed_reach_ends(session->layer[l].reach[g]);
    for (int f = 0; f < chain->forms; f++) {
        float *state = list->state + chain->state_at[f];
        for (int64_t i = 0; chain->form[f].form->policy->repeats && i < list->count; i++) {
            const uint32_t bits = atomic_load_explicit(&largest[i], memory_order_relaxed);
            float seen;
            memcpy(&seen, &bits, sizeof seen);
            float *to = &state[i * session->pages.layer[l].states];
            if (ends)
                *to = INFINITY;
            else if (*to == 0.0f)
                *to = seen > FLT_MIN ? seen : FLT_MIN;
        }
    }
}

static bool any_is_due(const heed_session *session, int64_t sequence)
{
    const heed_config *c = &session->model->config;
    const heed_piece end = {
        .sequence = sequence, .first = heed_session_length(session, sequence), .prompt = true, .ends = true};
    bool due = false;
    for (int64_t l = 0; l < c->layers; l++)
        for (int64_t g = 0; g < c->kv_heads; g++)
            due |= waits(session, l, g) && !heed_reach_ends(session->layer[l].reach[g]) &&
                   heed_session_is_due(session, l, &end, g);
    return due;
}

heed_status heed_repeat_prompt(heed_session *session, int64_t sequence)
{
    heed_repeat *repeat = &session->repeat;
    const heed_config *c = &session->model->config;
    const heed_tokenizer *tokenizer = session->model->tokenizer;
    const heed_session_usage usage = session->usage;
    repeat->done = true;
    heed_status status = HEED_OK;
    if (any_is_due(session, sequence)) {
        int64_t from = first_new(session, sequence);
        const int64_t length = heed_session_length(session, sequence);
        while (tokenizer && from + 1 < length &&
               heed_token_is_control(tokenizer, session->read[sequence].token[from]))
            from++;
        memset((void *)repeat->largest, 0,
               (size_t)(c->layers * c->kv_heads * repeat->keys) * sizeof *repeat->largest);
        status = read_again(session, sequence, from);
        session->usage.pairs_read = usage.pairs_read; /* nobody asked for what was looked at again */
        session->usage.pairs_open = usage.pairs_open;
        session->usage.dropped = usage.dropped;
        heed_session_forget(session, session->sequences, 0);
        const heed_piece end = {.sequence = sequence, .first = length, .prompt = true, .ends = true};
        for (int64_t l = 0; !status && l < c->layers; l++) {
            for (int64_t g = 0; g < c->kv_heads; g++)
                if (waits(session, l, g))
                    note(session, sequence, l, g);
            status = heed_session_settle(session, l, &end);
            if (!status)
                status = heed_session_age(session, l, &end);
        }
    }
    repeat->done = false;
    return status;
}
