/* What one sequence holds goes behind what another holds: a text that was read by itself becomes a passage of
 * a longer one.
 *
 * The keys of the passage stood at positions from 0 on and move to their places, k <- R(offset) k; values
 * stay. Its tokens see no earlier passage, as if `where` were block-diagonal for all passages, and what is
 * read afterwards sees them all. A layer with a window holds the end of a passage that is longer than it:
 * that is what the next token sees. Pages are shared where nothing moves: at the beginning, and where keys
 * are the same wherever they stand and a page begins where the passage does.
 */
#include "attend/plan.h"
#include "base/try.h"
#include "model/session.h"

#include <string.h>

/* Keys of a layer are the same wherever they stand. */
static bool stands_anywhere(const heed_session *session, int64_t l)
{
    const heed_session_kind *kind = &session->kind[session->layer[l].kind];
    const heed_plan *plan = kind->rung[0];
    bool anywhere = true;
    for (int p = 0; kind->prepared && p < plan->pipelines; p++)
        for (int n = 0; n < plan->pipeline[p].prepares; n++)
            anywhere &= plan->pipeline[p].form[plan->pipeline[p].prepare[n]].form->stage != HEED_POSITION;
    return anywhere;
}

static heed_status check_layers(const heed_session *session)
{
    const heed_config *c = &session->model->config;
    if (!session->cached)
        return heed_fail(HEED_UNSUPPORTED, "this model reads both ways and keeps no cache to splice");
    if (session->model->positions)
        return heed_fail(
            HEED_UNSUPPORTED,
            "%s has learnt a vector for each position, which is in all that a passage holds, so it "
            "cannot move to another place",
            c->architecture);
    if (session->prune.form)
        return heed_fail(
            HEED_UNSUPPORTED,
            "cache=%s stops tokens of a prompt at a layer, so layers hold different tokens of a passage",
            session->prune.form->name);
    for (int64_t l = 0; l < c->layers; l++) {
        if (session->layer[l].chain)
            return heed_fail(
                HEED_UNSUPPORTED,
                "layer %lld has a cache policy, so what it holds of a passage depends on what else was "
                "read: passages are spliced where all keys, or a window, are kept",
                (long long)l);
        if (session->layer[l].aging.form)
            return heed_fail(HEED_UNSUPPORTED,
                             "cache=%s stores the pages of layer %lld by their age, so a passage holds other "
                             "keys when it was "
                             "read behind others: passages are spliced where keys stay as they came",
                             session->layer[l].aging.form->name, (long long)l);
        if (stands_anywhere(session, l))
            continue;
        float row[1] = {0.0f};
        TRY(heed_plan_move_keys(
            session->kind[session->layer[l].kind].rung[0],
            &(heed_new_keys){.k = row, .k_stride = c->head_dim, .out = row, .out_stride = c->head_dim}));
    }
    return HEED_OK;
}

static heed_status check(const heed_session *session, int64_t from, int64_t to)
{
    const int64_t sequences[] = {from, to};
    for (int i = 0; i < 2; i++)
        if (sequences[i] < 0 || sequences[i] >= session->sequences)
            return heed_fail(HEED_INVALID, "there is no sequence %lld, the session has %lld",
                             (long long)sequences[i], (long long)session->sequences);
    if (from == to)
        return heed_fail(HEED_INVALID, "sequence %lld cannot go behind itself", (long long)from);
    const int64_t more = heed_session_length(session, from), held = heed_session_length(session, to);
    if (more > session->limit - held)
        return heed_fail(
            HEED_INVALID,
            "%lld tokens after the %lld that are held do not fit into the context of %lld tokens",
            (long long)more, (long long)held, (long long)session->limit);
    return check_layers(session);
}

/* Keys first... of a list to where they stand now, 16 at a time; or as they are. */
static void copy_keys(heed_session *session, int64_t l, int64_t g, const heed_kept_keys *from,
                      heed_kept_keys *to, int64_t behind, int64_t offset)
{
    const heed_session_kind *kind = &session->kind[session->layer[l].kind];
    const heed_pages *pages = &session->pages;
    const heed_page_layout *stored = &pages->layer[l].layout[0];
    const int64_t dim = session->model->config.head_dim;
    const bool stays = stands_anywhere(session, l);
    float *rows = session->work.key, *moved = rows + HEED_KEY_ROWS * dim;
    int32_t by[HEED_KEY_ROWS];
    for (int r = 0; r < HEED_KEY_ROWS; r++)
        by[r] = (int32_t)offset;
    for (int64_t i = 0, n; i < from->count; i += n) {
        const int64_t left = from->count - i, here = HEED_PAGE - i % HEED_PAGE,
                      there = HEED_PAGE - (behind + i) % HEED_PAGE;
        n = here < there ? here : there; /* rows of a page lie one after the other */
        n = n < left ? n : left;
        n = n < HEED_KEY_ROWS ? n : HEED_KEY_ROWS;
        memcpy(heed_pages_value(pages, l, to, behind + i), heed_pages_value(pages, l, from, i),
               (size_t)n * stored->value_row);
        if (stays || offset == 0) {
            memcpy(heed_pages_key(pages, l, to, behind + i), heed_pages_key(pages, l, from, i),
                   (size_t)n * stored->key_row);
            continue;
        }
        heed_pages_load_keys(pages, l, from, i, n, rows);
        heed_plan_move_keys(kind->rung[0], &(heed_new_keys){.kv_head = g,
                                                            .count = n,
                                                            .pos = by,
                                                            .k = rows,
                                                            .k_stride = dim,
                                                            .out = moved,
                                                            .out_stride = dim}); /* tried before */
        heed_session_store_keys(session, l, to, behind + i, n, moved, dim);
    }
}

/* Room for the passage's keys, with their places. */
static heed_status make_room(heed_session *session, int64_t l, int64_t g, const heed_kept_keys *from,
                             heed_kept_keys *to, int64_t to_sequence, int64_t offset)
{
    heed_pages *pages = &session->pages;
    if (!from->place) {
        if (from->start > 0) /* what stands before the passage's window is out of reach */
            heed_pages_truncate(pages, to_sequence, l, g, 0);
        return heed_pages_append(pages, to_sequence, l, g, offset + from->start, offset + from->start,
                                 from->count);
    }
    const int64_t behind = to->count;
    TRY(heed_pages_append(pages, to_sequence, l, g, offset, offset, from->count));
    for (int64_t i = 0; i < from->count; i++) {
        to->place[behind + i] = (int32_t)offset + from->place[i];
        to->position[behind + i] = (int32_t)offset + from->position[i];
    }
    return HEED_OK;
}

static heed_status splice_layer(heed_session *session, int64_t l, int64_t from_sequence, int64_t to_sequence,
                                int64_t offset)
{
    heed_pages *pages = &session->pages;
    /* as many stay as the layer holds while a text is read, and no more */
    heed_session_drop(session, l, to_sequence, offset + heed_session_length(session, from_sequence));
    for (int64_t g = 0; g < session->model->config.kv_heads; g++) {
        const heed_kept_keys *from = heed_pages_list(pages, from_sequence, l, g);
        heed_kept_keys *to = heed_pages_list(pages, to_sequence, l, g);
        if (stands_anywhere(session, l) && to->count % HEED_PAGE == 0 && !to->place && from->start == 0) {
            TRY(heed_pages_join(pages, from_sequence, to_sequence, l, g, offset));
            continue;
        }
        TRY(make_room(session, l, g, from, to, to_sequence, offset));
        copy_keys(session, l, g, from, to, to->count - from->count, offset);
    }
    const heed_past *passage = heed_past_of(session, from_sequence, l);
    heed_past *past = heed_past_of(session, to_sequence, l);
    const int64_t gone = passage->gone ? offset + passage->gone : 0;
    past->gone = gone > past->gone ? gone : past->gone;
    if (heed_session_remembers(session, l)) /* what was chosen is chosen anew */
        heed_session_memory(session, to_sequence, l)->keys = -1;
    return HEED_OK;
}

heed_status heed_session_splice(heed_session *session, int64_t from, int64_t to)
{
    if (!session)
        return heed_fail(HEED_INVALID, "a session is needed");
    TRY(check(session, from, to));
    if (heed_carry_any(session))
        return heed_fail(HEED_UNSUPPORTED,
                         "layers of this model carry a state along or keep inputs of all tokens: "
                         "texts that were read apart cannot be put together");
    const int64_t offset = heed_session_length(session, to), more = heed_session_length(session, from);
    if (offset == 0) /* nothing has to move */
        return heed_session_share(session, from, to, more);
    TRY(heed_session_grow_tokens(session, to, offset + more));
    heed_status status = HEED_OK;
    for (int64_t l = 0; l < session->model->config.layers && !status; l++)
        status = splice_layer(session, l, from, to, offset);
    if (status) {
        heed_session_forget(session, to, offset < heed_session_shortest(session, to) ? 0 : offset);
        return status;
    }
    heed_read *read = &session->read[to];
    memcpy(read->token + offset, session->read[from].token, (size_t)more * sizeof *read->token);
    read->count = offset + more;
    return HEED_OK;
}
