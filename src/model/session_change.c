/* What a session's sequences hold, and taking it back, sharing and showing it. */
#include "base/try.h"
#include "model/session.h"

#include <stdlib.h>
#include <string.h>

static heed_status check_sequence(const heed_session *session, int64_t sequence)
{
    if (sequence >= 0 && sequence < session->sequences)
        return HEED_OK;
    return heed_fail(HEED_INVALID, "there is no sequence %lld, the session has %lld", (long long)sequence,
                     (long long)session->sequences);
}

int64_t heed_session_length(const heed_session *session, int64_t sequence)
{
    return sequence >= 0 && sequence < session->sequences ? session->read[sequence].count : 0;
}

const int32_t *heed_session_tokens(const heed_session *session, int64_t sequence)
{
    return sequence >= 0 && sequence < session->sequences ? session->read[sequence].token : NULL;
}

/* Where a layer has changed what tokens from here on do not need, and tokens before would. */
static int64_t shortest_of(const heed_session *session, int64_t sequence, int64_t l)
{
    const heed_past *past = heed_past_of(session, sequence, l);
    int64_t least = past->acted;
    for (int64_t g = 0; past->gone && g < session->model->config.kv_heads; g++) {
        const heed_reach reach = session->layer[l].reach[g];
        const int64_t here = heed_reach_ends(reach) ? past->gone + reach.span - 1 : 0;
        least = here > least ? here : least;
    }
    return least;
}

static int64_t layer_of_shortest(const heed_session *session, int64_t sequence)
{
    int64_t layer = 0;
    for (int64_t l = 1; l < session->model->config.layers; l++)
        if (shortest_of(session, sequence, l) > shortest_of(session, sequence, layer))
            layer = l;
    return layer;
}

int64_t heed_session_shortest(const heed_session *session, int64_t sequence)
{
    return shortest_of(session, sequence, layer_of_shortest(session, sequence));
}

/* What became of the keys of a layer that shorter texts would see. */
static const char *became_of_keys(const heed_session *session, int64_t sequence, int64_t l)
{
    const heed_session_layer *layer = &session->layer[l];
    const bool acted = heed_past_of(session, sequence, l)->acted == shortest_of(session, sequence, l);
    bool merges = false;
    for (int64_t g = 0; layer->chain && g < session->model->config.kv_heads; g++)
        merges |= layer->chain[g].merges;
    if (!acted || !layer->aging.form)
        return merges ? "dropped or merged" : "dropped";
    return layer->chain ? "dropped or quantised" : "quantised";
}

static heed_status check_cut(const heed_session *session, int64_t sequence, int64_t length)
{
    TRY(check_sequence(session, sequence));
    const int64_t now = heed_session_length(session, sequence);
    if (length < 0 || length > now)
        return heed_fail(HEED_INVALID, "sequence %lld holds %lld tokens, it cannot be cut to %lld",
                         (long long)sequence, (long long)now, (long long)length);
    const int64_t l = layer_of_shortest(session, sequence), least = shortest_of(session, sequence, l);
    if (length > 0 && length < now && length < least && heed_carry_is_state(session, l))
        return heed_fail(
            HEED_INVALID,
            "layer %lld carries a state along, which cannot go back to token %lld: sequence %lld can "
            "be cut to none",
            (long long)l, (long long)length, (long long)sequence);
    if (length > 0 && length < now && length < least)
        return heed_fail(HEED_INVALID,
                         "sequence %lld has %s keys that token %lld would see; it can be cut to %lld "
                         "tokens or more, or to none",
                         (long long)sequence, became_of_keys(session, sequence, l), (long long)length,
                         (long long)(least < now ? least : now));
    return HEED_OK;
}

int64_t heed_keys_before(const heed_kept_keys *list, int64_t place)
{
    int64_t from = 0, to = list->count;
    while (from < to) {
        const int64_t middle = from + (to - from) / 2;
        if (heed_key_place(list, middle) < place)
            from = middle + 1;
        else
            to = middle;
    }
    return from;
}

void heed_session_forget(heed_session *session, int64_t sequence, int64_t length)
{
    heed_pages *pages = &session->pages;
    const int64_t before = session->read[sequence].count;
    session->read[sequence].count = length;
    for (int64_t l = 0; l < pages->layers; l++) {
        for (int64_t g = 0; g < pages->heads; g++) {
            const heed_kept_keys *list = heed_pages_list(pages, sequence, l, g);
            heed_pages_truncate(pages, sequence, l, g, heed_keys_before(list, length));
        }
        heed_past *past = heed_past_of(session, sequence, l);
        const int64_t shown = past->shown - (before - length);
        past->shown = shown > 0 ? shown : 0;
        past->looked = past->looked < length ? past->looked : length;
        if (length == 0)
            *past = (heed_past){.offset = 0};
    }
    heed_session_unlearn(session, sequence, length);
    if (length == 0)
        heed_carry_empty(session, sequence);
}

heed_status heed_session_cut(heed_session *session, int64_t sequence, int64_t length)
{
    TRY(check_cut(session, sequence, length));
    if (length < heed_session_length(session, sequence))
        heed_session_forget(session, sequence, length);
    return HEED_OK;
}

heed_status heed_session_grow_tokens(heed_session *session, int64_t sequence, int64_t count)
{
    heed_read *read = &session->read[sequence];
    if (count <= read->room)
        return HEED_OK;
    const int64_t room = count > 2 * read->room ? count : 2 * read->room;
    int32_t *grown = realloc(read->token, (size_t)room * sizeof *grown);
    if (!grown)
        return heed_fail(HEED_NO_MEMORY, "no memory for the tokens of a sequence");
    read->token = grown;
    read->room = room;
    return HEED_OK;
}

heed_status heed_session_share(heed_session *session, int64_t from, int64_t to, int64_t length)
{
    TRY(check_sequence(session, to));
    TRY(check_cut(session, from, length));
    if (from == to)
        return heed_session_cut(session, to, length);
    return heed_session_copy(session, from, to, length);
}

heed_status heed_session_copy(heed_session *session, int64_t from, int64_t to, int64_t length)
{
    TRY(heed_session_grow_tokens(session, to, length));
    heed_session_forget(session, to, 0);
    TRY(heed_pages_share(&session->pages, from, to));
    if (length > 0)
        memcpy(session->read[to].token, session->read[from].token, (size_t)length * sizeof(int32_t));
    session->read[to].count = heed_session_length(session, from);
    for (int64_t l = 0; l < session->model->config.layers; l++) {
        const heed_session_layer *layer = &session->layer[l];
        const int64_t floats = layer->window * session->model->config.heads * session->model->config.head_dim;
        *heed_past_of(session, to, l) = *heed_past_of(session, from, l);
        if (floats > 0)
            memcpy(layer->query + to * floats, layer->query + from * floats, (size_t)floats * sizeof(float));
    }
    heed_session_share_memories(session, from, to);
    heed_carry_copy(session, from, to, length);
    heed_session_forget(session, to, length);
    return HEED_OK;
}

static heed_status check_hide(const heed_session *session, int64_t sequence, int64_t first, int64_t count)
{
    TRY(check_sequence(session, sequence));
    const int64_t now = heed_session_length(session, sequence);
    if (first < 0 || count < 0 || count > now || first > now - count)
        return heed_fail(HEED_INVALID, "tokens %lld to %lld cannot be hidden: sequence %lld holds %lld",
                         (long long)first, (long long)(first + count - 1), (long long)sequence,
                         (long long)now);
    if (heed_carry_any(session))
        return heed_fail(HEED_UNSUPPORTED,
                         "layers of this model carry a state along or keep inputs of all tokens, "
                         "so single ones cannot be hidden");
    for (int64_t l = 0; l < session->model->config.layers; l++)
        if (!session->cached || !session->pages.layer[l].placed || session->recalls)
            return heed_fail(HEED_UNSUPPORTED,
                             "layer %lld keeps no place of each key%s, so single ones cannot be hidden; with "
                             "cache=fifo(share=1) it does",
                             (long long)l, session->recalls ? " in what its selector remembers" : "");
    return HEED_OK;
}

heed_status heed_session_hide(heed_session *session, int64_t sequence, int64_t first, int64_t count)
{
    TRY(check_hide(session, sequence, first, count));
    for (int64_t l = 0; count > 0 && l < session->model->config.layers; l++) {
        for (int64_t g = 0; g < session->model->config.kv_heads; g++) {
            const heed_kept_keys *list = heed_pages_list(&session->pages, sequence, l, g);
            const int64_t from = heed_keys_before(list, first), to = heed_keys_before(list, first + count);
            uint8_t *keep = session->work.keep.keep;
            memset(keep, 1, (size_t)list->count);
            memset(keep + from, 0, (size_t)(to - from));
            if (to > from)
                heed_pages_keep(&session->pages, sequence, l, g, keep);
        }
        heed_past_of(session, sequence, l)->acted = heed_session_length(session, sequence);
    }
    return HEED_OK;
}

int64_t heed_session_kept(const heed_session *session, int64_t sequence, int64_t layer, int64_t kv_head,
                          int32_t *pos, float *mass, int64_t most)
{
    const heed_config *c = &session->model->config;
    if (!session->cached || sequence < 0 || sequence >= session->sequences || layer < 0 ||
        layer >= c->layers || kv_head < 0 || kv_head >= c->kv_heads)
        return 0;
    const heed_kept_keys *list = heed_pages_list(&session->pages, sequence, layer, kv_head);
    for (int64_t i = 0; i < list->count && i < most; i++) {
        if (pos)
            pos[i] = (int32_t)heed_key_place(list, i);
        if (mass)
            mass[i] = list->mass ? list->mass[i] : 1.0f;
    }
    return list->count;
}

void heed_session_get_usage(const heed_session *session, heed_session_usage *usage)
{
    *usage = session->usage;
    const size_t carried = heed_carry_bytes(session);
    usage->bytes = heed_pages_bytes(&session->pages) + carried;
    usage->peak_bytes = session->pages.peak_bytes + carried;
    usage->reserved_bytes = heed_pages_reserved(&session->pages);
    usage->offloaded_bytes = heed_pages_away(&session->pages);
    usage->fetched_bytes = heed_pages_fetched(&session->pages);
}
