/* Prompts of which only some tokens go on to later layers.
 *
 * All pieces of the prompt go through the layers up to the one that chooses, and what comes out is put aside;
 * then the form says which tokens go on, and these go through the other layers, in pieces of their own, at
 * the positions that they have. Only their keys are kept there.
 */
#include "model/prune.h"
#include "attend/registry.h"
#include "base/try.h"
#include "model/session.h"

#include <string.h>

heed_status heed_prune_find(heed_session *session, int64_t layer, const heed_spec *spec)
{
    enum { MOST = 64 };
    heed_prune *prune = &session->prune;
    const heed_config *c = &session->model->config;
    for (int g = 0; g < spec->groups; g++) {
        const heed_node *list[MOST];
        const int count = heed_spec_chain(spec, spec->group[g].root[HEED_CACHE], list, MOST);
        for (int i = 0; i < count && i < MOST; i++) {
            const heed_form *form = list[i]->form;
            if (!form->policy || !form->policy->go_on)
                continue;
            if (g > 0)
                return heed_fail(HEED_INVALID, "cache=%s for some heads only: tokens go on for all of them",
                                 form->name);
            if (prune->form)
                return heed_fail(
                    HEED_INVALID,
                    "cache=%s stands at layer %lld and again at layer %lld: give it to one, as in "
                    "`layers %lld: cache=%s`",
                    form->name, (long long)prune->layer, (long long)layer, (long long)prune->layer,
                    form->name);
            const heed_form *built = heed_registry_find(session->model->isa, HEED_CACHE, form->name);
            prune->layer = layer;
            prune->form = built ? built : form;
            prune->state = (heed_form_state){.form = prune->form};
            memcpy(prune->state.arg, list[i]->arg, sizeof prune->state.arg);
            prune->state.sizes = (heed_sizes){.batch = 1,
                                              .heads = c->heads,
                                              .kv_heads = c->kv_heads,
                                              .keys = session->context,
                                              .dim = c->head_dim};
            if (form->resolve)
                TRY(form->resolve(&prune->state));
        }
    }
    return HEED_OK;
}

heed_status heed_prune_check(const heed_session *session)
{
    const heed_prune *prune = &session->prune;
    if (!prune->form)
        return HEED_OK;
    const char *name = prune->form->name;
    const heed_session_kind *kind = &session->kind[session->layer[prune->layer].kind];
    if (!session->cached)
        return heed_fail(HEED_UNSUPPORTED, "cache=%s: this model reads both ways and keeps no cache", name);
    if (session->with)
        return heed_fail(HEED_UNSUPPORTED,
                         "cache=%s: nothing can be captured where tokens are missing in later layers", name);
    if (kind->started || kind->placed)
        return heed_fail(
            HEED_UNSUPPORTED,
            "cache=%s looks at what each token of a prompt receives, but layer %lld sees a window "
            "only; give it to a layer that sees everything",
            name, (long long)prune->layer);
    for (int64_t l = 0; l < session->model->config.layers; l++)
        if (session->layer[l].chain)
            return heed_fail(HEED_UNSUPPORTED,
                             "cache=%s does not go together with the cache policy of layer %lld", name,
                             (long long)l);
    return HEED_OK;
}

void heed_prune_take(heed_session *session, heed_arena *arena)
{
    heed_prune *prune = &session->prune;
    const size_t context = (size_t)session->context;
    if (!prune->form)
        return;
    prune->x = heed_arena_take(arena, context, (size_t)session->model->config.width * sizeof *prune->x);
    prune->last = heed_arena_take(arena, context, sizeof *prune->last);
    prune->mean = heed_arena_take(arena, context, sizeof *prune->mean);
    prune->work = heed_arena_take(arena, 2 * context, sizeof *prune->work);
    prune->keep = heed_arena_take(arena, context, 1);
    prune->place = heed_arena_take(arena, context, sizeof *prune->place);
}

/* Adds the mean over heads of what the keys of the prompt received in the execution that was captured last.
 */
static void add_received(const heed_session *session, const heed_prune *prune, int64_t sequence, float *to)
{
    const heed_session_kind *kind = &session->kind[session->layer[prune->layer].kind];
    const int64_t heads = session->model->config.heads, held = prune->before + prune->tokens;
    const int64_t count = heed_pages_list(&session->pages, sequence, prune->layer, 0)->count;
    for (int64_t h = 0; h < heads; h++) {
        const float *sum = session->work.capture.key_sums + h * kind->most;
        for (int64_t j = prune->before; j < held && j < count; j++)
            to[j - prune->before] += sum[j] / (float)heads;
    }
}

heed_status heed_prune_look(heed_session *session, const heed_step *step)
{
    heed_prune *prune = &session->prune;
    const heed_piece *piece = session->work.piece;
    add_received(session, prune, piece->sequence, prune->mean);
    if (!piece->last)
        return HEED_OK;
    const heed_session_usage usage = session->usage; /* what is looked at again is not counted */
    const heed_status status = heed_session_attend_again(session, prune->layer, piece, piece->count - 1);
    session->usage = usage;
    (void)step;
    if (!status)
        add_received(session, prune, piece->sequence, prune->last);
    return status;
}

/* `count` rows at the front of the activations as one piece; `done` of `all` tokens went before. */
static heed_step one_piece(heed_session *session, const heed_feed_item *item, int64_t i, int64_t first,
                           int64_t count, bool last, const heed_feed_wants *wants)
{
    session->work.piece[0] = (heed_piece){.sequence = item->sequence,
                                          .first = first,
                                          .count = count,
                                          .item = i,
                                          .last = last,
                                          .prompt = true,
                                          .ends = last};
    return (heed_step){.pieces = 1, .singles = count == 1, .rows = count, .wants = wants};
}

static heed_status first_layers(heed_session *session, const heed_feed_item *item, int64_t i,
                                const heed_feed_wants *wants)
{
    heed_prune *prune = &session->prune;
    const size_t width = (size_t)session->model->config.width;
    for (int64_t done = 0, count; done < item->count; done += count) {
        count = item->count - done < session->chunk ? item->count - done : session->chunk;
        const heed_step step =
            one_piece(session, item, i, prune->before + done, count, done + count == item->count, wants);
        session->work.piece[0].tokens = item->tokens + done;
        heed_session_embed(session, &step);
        TRY(heed_session_read_layers(session, &step, 0, prune->layer + 1));
        memcpy(prune->x + (size_t)done * width, session->work.x, (size_t)count * width * sizeof *prune->x);
    }
    return HEED_OK;
}

/* The places in the text of the tokens that go on; returns how many. */
static int64_t choose(heed_prune *prune)
{
    const heed_prompt prompt = {
        .before = prune->before, .tokens = prune->tokens, .last = prune->last, .mean = prune->mean};
    int64_t count = 0;
    for (int64_t j = 0; j < prune->tokens; j++)
        prune->mean[j] /= (float)(prune->tokens - j);
    memset(prune->keep, 1, (size_t)prune->tokens);
    prune->form->policy->go_on(&prune->state, &prompt, prune->keep, prune->work);
    prune->keep[prune->tokens - 1] = 1;
    for (int64_t j = 0; j < prune->tokens; j++) {
        prune->place[count] = (int32_t)(prune->before + j);
        count += prune->keep[j] != 0;
    }
    return count;
}

static heed_status later_layers(heed_session *session, const heed_feed_item *item, int64_t i, int64_t all,
                                const heed_feed_wants *wants)
{
    const heed_prune *prune = &session->prune;
    const size_t width = (size_t)session->model->config.width;
    for (int64_t done = 0, count; done < all; done += count) {
        count = all - done < session->chunk ? all - done : session->chunk;
        const heed_step step =
            one_piece(session, item, i, prune->place[done], count, done + count == all, wants);
        session->work.piece[0].place = prune->place + done;
        for (int64_t r = 0; r < count; r++)
            memcpy(session->work.x + (size_t)r * width,
                   prune->x + (size_t)(prune->place[done + r] - prune->before) * width,
                   width * sizeof(float));
        TRY(heed_session_read_layers(session, &step, prune->layer + 1, session->model->config.layers));
        if (done + count == all)
            heed_session_give_out(session, &step);
    }
    return HEED_OK;
}

/* The sequence cannot be cut to where tokens were chosen by what came after it. */
static void note_choice(heed_session *session, const heed_feed_item *item, int64_t kept)
{
    const heed_prune *prune = &session->prune;
    const heed_config *c = &session->model->config;
    if (kept == prune->tokens)
        return;
    for (int64_t l = prune->layer + 1; l < c->layers; l++)
        heed_past_of(session, item->sequence, l)->acted = prune->before + prune->tokens;
    session->usage.dropped += (prune->tokens - kept) * (c->layers - prune->layer - 1) * c->kv_heads;
}

heed_status heed_prune_read(heed_session *session, const heed_feed_item *item, int64_t i,
                            const heed_feed_wants *wants)
{
    heed_prune *prune = &session->prune;
    prune->before = heed_session_length(session, item->sequence);
    prune->tokens = item->count;
    memset(prune->last, 0, (size_t)item->count * sizeof *prune->last);
    memset(prune->mean, 0, (size_t)item->count * sizeof *prune->mean);
    heed_status status = first_layers(session, item, i, wants);
    const int64_t kept = status ? 0 : choose(prune);
    if (!status)
        status = later_layers(session, item, i, kept, wants);
    if (!status)
        note_choice(session, item, kept);
    prune->tokens = 0;
    return status;
}
