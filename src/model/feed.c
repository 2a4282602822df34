/* Feeding tokens: items are cut into pieces by their own length alone, and pieces of several items go through
 * the layers together. */
#include "base/try.h"
#include "model/session.h"

#include <string.h>

static const heed_feed_wants no_wants = {.logits = NULL};

static heed_status check_item(const heed_session *session, const heed_feed_item *items, int64_t i)
{
    const heed_feed_item *item = &items[i];
    const heed_config *c = &session->model->config;
    const long long sequence = item->sequence;
    if (sequence < 0 || sequence >= session->sequences)
        return heed_fail(HEED_INVALID, "there is no sequence %lld, the session has %lld", sequence,
                         (long long)session->sequences);
    for (int64_t other = 0; other < i; other++)
        if (items[other].sequence == sequence)
            return heed_fail(HEED_INVALID, "sequence %lld stands twice among what is fed", sequence);
    if (item->reading > HEED_READ_WRITTEN)
        return heed_fail(HEED_INVALID, "sequence %lld: %d is no way of reading", sequence,
                         (int)item->reading);
    if (item->count < 1 || !item->tokens)
        return heed_fail(HEED_INVALID, "sequence %lld is fed %lld tokens, it must be at least 1", sequence,
                         (long long)item->count);
    if (session->prune.form && item->reading == HEED_READ_PROMPT_PART)
        return heed_fail(HEED_UNSUPPORTED,
                         "cache=%s chooses among the tokens of a whole prompt: it must come in one call",
                         session->prune.form->name);
    const int64_t held = heed_session_length(session, sequence);
    if (item->count > session->limit - held && held)
        return heed_fail(
            HEED_INVALID,
            "%lld tokens after the %lld that are held do not fit into the context of %lld tokens",
            (long long)item->count, (long long)held, (long long)session->limit);
    if (item->count > session->limit)
        return heed_fail(HEED_INVALID, "%lld tokens do not fit into the context of %lld tokens",
                         (long long)item->count, (long long)session->limit);
    const int64_t room = heed_session_room(session, sequence);
    if (item->count > room)
        return heed_fail(
            HEED_INVALID,
            "%lld tokens, but there is room for %lld keys more: the policy acts at the end of a prompt; "
            "with `> chunked(n)` it acts while one is read",
            (long long)item->count, (long long)room);
    for (int64_t t = 0; t < item->count; t++)
        if (item->tokens[t] < 0 || item->tokens[t] >= c->vocabulary)
            return heed_fail(HEED_INVALID, "token %d at place %lld is none of the vocabulary, which has %lld",
                             (int)item->tokens[t], (long long)t, (long long)c->vocabulary);
    return HEED_OK;
}

static heed_status check(const heed_session *session, const heed_feed_item *items, int64_t count,
                         const heed_feed_wants *wants)
{
    if (!session || !items || count < 1)
        return heed_fail(HEED_INVALID, "a session and at least one item are needed");
    if (count > session->sequences)
        return heed_fail(HEED_INVALID, "%lld items, but the session has %lld sequences", (long long)count,
                         (long long)session->sequences);
    if (wants->logits && !session->model->config.generates)
        return heed_fail(HEED_UNSUPPORTED, "%s models give no logits, only hidden states",
                         session->model->config.architecture);
    for (int64_t i = 0; i < count; i++)
        TRY(check_item(session, items, i));
    return HEED_OK;
}

static bool is_prompt(const heed_feed_item *item)
{
    return item->reading == HEED_READ_BY_COUNT ? item->count > 1 : item->reading != HEED_READ_WRITTEN;
}

/* Prompts of which some tokens stop early, each by itself. */
static heed_status read_pruned(heed_session *session, const heed_feed_item *items, int64_t count,
                               const heed_feed_wants *wants)
{
    for (int64_t i = 0; session->prune.form && i < count; i++) {
        if (!is_prompt(&items[i]) || items[i].count < 2)
            continue;
        if (wants->hidden || (wants->logits && wants->all_logits))
            return heed_fail(
                HEED_UNSUPPORTED,
                "cache=%s leaves tokens of a prompt out of later layers, so that it has logits and "
                "hidden states of its last token only",
                session->prune.form->name);
        TRY(heed_prune_read(session, &items[i], i, wants));
        heed_read *read = &session->read[items[i].sequence];
        memcpy(read->token + read->count, items[i].tokens, (size_t)items[i].count * sizeof *read->token);
        read->count += items[i].count;
        session->work.progress[i] = items[i].count;
    }
    return HEED_OK;
}

/* The next piece of an item, if there is one and it fits. */
static void add_piece(heed_session *session, const heed_feed_item *items, int64_t i, int64_t out_row,
                      bool single, heed_step *step)
{
    heed_work *work = &session->work;
    const bool one = session->recalls && !is_prompt(&items[i]); /* what is written is remembered one by one */
    const int64_t left = items[i].count - work->progress[i], most = one ? 1 : session->chunk;
    const int64_t count = left < most ? left : most;
    if (count < 1 || (count == 1) != single || step->rows + count > session->rows)
        return;
    work->piece[step->pieces++] =
        (heed_piece){.sequence = items[i].sequence,
                     .first = work->before[i] + work->progress[i],
                     .count = count,
                     .row = step->rows,
                     .tokens = items[i].tokens + work->progress[i],
                     .item = i,
                     .out_row = out_row + work->progress[i],
                     .last = count == left,
                     .prompt = is_prompt(&items[i]),
                     .ends = count == left && items[i].reading != HEED_READ_PROMPT_PART};
    for (int64_t t = 0; t < count; t++)
        work->position[step->rows + t] = (int32_t)(work->before[i] + work->progress[i] + t);
    step->rows += count;
    step->singles += single;
}

static heed_step gather(heed_session *session, const heed_feed_item *items, int64_t count,
                        const heed_feed_wants *wants)
{
    heed_step step = {.wants = wants};
    for (int pass = 0; pass < 2; pass++) {
        int64_t out_row = 0;
        for (int64_t i = 0; i < count; i++) {
            add_piece(session, items, i, out_row, pass == 0, &step);
            out_row += items[i].count;
        }
    }
    for (int64_t p = 0; p < step.pieces; p++)
        session->work.progress[session->work.piece[p].item] += session->work.piece[p].count;
    return step;
}

/* The tokens of a step are read. */
static void note_tokens(heed_session *session, const heed_step *step)
{
    for (int64_t p = 0; p < step->pieces; p++) {
        const heed_piece *piece = &session->work.piece[p];
        heed_read *read = &session->read[piece->sequence];
        memcpy(read->token + read->count, piece->tokens, (size_t)piece->count * sizeof *read->token);
        read->count += piece->count;
    }
}

/* After a failure: a sequence holds what it held, or nothing where that is gone. */
static void take_back(heed_session *session, int64_t sequence, int64_t before)
{
    heed_session_forget(session, sequence, before < heed_session_shortest(session, sequence) ? 0 : before);
}

/* Prompts that ended are read once more, where policies want it. */
static heed_status read_again(heed_session *session, const heed_feed_item *items, int64_t count)
{
    for (int64_t i = 0; session->repeat.each && i < count; i++)
        if (is_prompt(&items[i]) && items[i].reading != HEED_READ_PROMPT_PART)
            TRY(heed_repeat_prompt(session, items[i].sequence));
    return HEED_OK;
}

heed_status heed_feed(heed_session *session, const heed_feed_item *items, int64_t count,
                      const heed_feed_wants *wants)
{
    wants = wants ? wants : &no_wants;
    TRY(check(session, items, count, wants));
    TRY(heed_session_feed(session, items, count, wants));
    const heed_status status = read_again(session, items, count);
    for (int64_t i = 0; status && i < count; i++)
        take_back(session, items[i].sequence,
                  heed_session_length(session, items[i].sequence) - items[i].count);
    return status;
}

heed_status heed_session_feed(heed_session *session, const heed_feed_item *items, int64_t count,
                              const heed_feed_wants *wants)
{
    for (int64_t i = 0; i < count; i++) {
        const int64_t before = session->read[items[i].sequence].count;
        session->work.before[i] = before;
        session->work.progress[i] = 0;
        if (session->cached)
            TRY(heed_session_grow_tokens(session, items[i].sequence, before + items[i].count));
    }
    heed_status status = read_pruned(session, items, count, wants);
    for (heed_step step; !status && (step = gather(session, items, count, wants)).pieces > 0;) {
        status = heed_session_read(session, &step);
        if (!status && session->cached)
            note_tokens(session, &step);
    }
    for (int64_t i = 0; status && session->cached && i < count; i++)
        take_back(session, items[i].sequence, session->work.before[i]);
    return status;
}
