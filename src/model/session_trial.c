#include "model/session_trial.h"
#include "base/try.h"
#include "model/session.h"

#include <stdlib.h>
#include <string.h>

static size_t chains_of(const heed_session *session)
{
    return (size_t)(session->model->config.layers * session->model->config.kv_heads);
}

heed_status heed_trials_begin(heed_trials *trials, heed_session *session)
{
    const size_t count = chains_of(session);
    *trials = (heed_trials){.session = session,
                            .own_work = session->work.keep.work,
                            .work_bytes = heed_keep_chain_bytes(session, session->chain)};
    for (int64_t l = 0; l < session->model->config.layers; l++)
        if (!session->layer[l].chain)
            return heed_fail(HEED_INVALID, "layer %lld has no policies that others could stand in for",
                             (long long)l);
    trials->made = malloc(count * sizeof *trials->made);
    if (!trials->made)
        return heed_fail(HEED_NO_MEMORY, "no memory for the policies of %zu heads", count);
    memcpy(trials->made, session->chain, count * sizeof *trials->made);
    session->held_young = true;
    return HEED_OK;
}

static void put_in_place(heed_session *session, const heed_chain *chains)
{
    const int64_t heads = session->model->config.kv_heads;
    memcpy(session->chain, chains, chains_of(session) * sizeof *chains);
    for (int64_t l = 0; l < session->model->config.layers; l++)
        for (int64_t g = 0; g < heads; g++) {
            session->layer[l].team[g] = (int)g;
            for (int64_t before = g - 1; before >= 0; before--)
                if (heed_chain_is_same(&chains[l * heads + before], &chains[l * heads + g]))
                    session->layer[l].team[g] = (int)before;
        }
}

void heed_trials_end(heed_trials *trials)
{
    if (trials->made) {
        put_in_place(trials->session, trials->made);
        trials->session->work.keep.work = trials->own_work;
        trials->session->held_young = false;
    }
    free(trials->made);
    free(trials->work);
    *trials = (heed_trials){.session = NULL};
}

/* The same form with the same arguments but for its budget, whose state means the same. */
static bool gathers_alike(const heed_form_state *a, const heed_form_state *b)
{
    heed_chain one = {.forms = 1}, other = {.forms = 1};
    one.form[0] = *a;
    other.form[0] = *b;
    for (int i = 0; i < 2; i++)
        one.form[0].arg[i] = other.form[0].arg[i];
    return heed_chain_is_same(&one, &other);
}

/* Where the made chain keeps what each form of the new one gathers. */
static heed_status find_states(const heed_chain *made, heed_chain *chain)
{
    for (int f = 0; f < chain->forms; f++) {
        int m = 0;
        if (!chain->form[f].form->policy->state_floats)
            continue;
        while (m < made->forms && !gathers_alike(&made->form[m], &chain->form[f]))
            m++;
        if (m == made->forms)
            return heed_fail(HEED_UNSUPPORTED,
                             "cache=%s gathers what was not gathered while the texts were read",
                             chain->form[f].form->name);
        chain->state_at[f] = made->state_at[m];
    }
    chain->state_floats = made->state_floats;
    return HEED_OK;
}

static heed_status fit(const heed_session *session, int64_t l, const heed_chain *made, heed_chain *chain)
{
    const heed_session_layer *layer = &session->layer[l];
    if (chain->chunked || chain->packed || chain->merges)
        return heed_fail(HEED_UNSUPPORTED,
                         "policies that act while a prompt is read, move keys or merge them are not tried on "
                         "what was read without them");
    if (chain->window > layer->window || (chain->observes & ~made->observes) || chain->top > made->top)
        return heed_fail(HEED_UNSUPPORTED, "a policy of layer %lld looks at more than was kept",
                         (long long)l);
    return find_states(made, chain);
}

static heed_status chain_of_head(const heed_session *session, const heed_spec *spec, int64_t l, int64_t g,
                                 heed_chain *chain)
{
    const heed_config *c = &session->model->config;
    const int64_t group = c->heads / c->kv_heads;
    const heed_sizes sizes = {.batch = 1,
                              .heads = c->heads,
                              .kv_heads = c->kv_heads,
                              .queries = 1,
                              .keys = session->context,
                              .dim = c->head_dim,
                              .value_dim = c->head_dim};
    for (int64_t h = 0; h < group; h++) {
        int root[HEED_STAGES];
        heed_chain other, *to = h ? &other : chain;
        heed_spec_clauses(spec, l, g * group + h, root);
        TRY(heed_chain_of_spec(to, spec, root[HEED_CACHE], session->model->isa, &sizes, l, c->layers));
        if (h && !heed_chain_is_same(to, chain))
            return heed_fail(HEED_UNSUPPORTED, "query heads that share a kv head need the same policies");
    }
    return HEED_OK;
}

/* Whether pages change as they age by the same form with the same arguments. */
static bool ages_alike(const heed_form_state *a, const heed_form_state *b)
{
    return a->form == b->form && (!a->form || memcmp(a->arg, b->arg, sizeof a->arg) == 0);
}

static heed_status chains_of_layer(const heed_trials *trials, const char *attention, int64_t l, char *text,
                                   heed_chain *chain)
{
    const heed_session *session = trials->session;
    const heed_session_kind *kind = &session->kind[session->layer[l].kind];
    const int64_t heads = session->model->config.kv_heads;
    char own[1024];
    heed_attention parts = {.keys = kind->key_type, .values = kind->value_type};
    TRY(heed_config_attention(&session->model->config, l, own, sizeof own));
    TRY(heed_attention_of_layer(own, attention, NULL, l, text, HEED_ATTENTION_TEXT));
    TRY(heed_attention_take_apart(&parts, text, NULL));
    heed_status status = HEED_OK;
    if (parts.keys != kind->key_type || parts.values != kind->value_type || strcmp(parts.plain, kind->spec) ||
        !ages_alike(&parts.aging, &session->layer[l].aging))
        status = heed_fail(HEED_UNSUPPORTED, "layer %lld was read with another type of cache or attention",
                           (long long)l);
    for (int64_t g = 0; g < heads && !status; g++) {
        status = chain_of_head(session, parts.spec, l, g, &chain[l * heads + g]);
        if (!status)
            status = fit(session, l, &trials->made[l * heads + g], &chain[l * heads + g]);
    }
    heed_attention_free(&parts);
    return status;
}

/* Chains of more forms may take more memory to act. */
static heed_status make_room(heed_trials *trials, const heed_chain *chains)
{
    const size_t bytes = heed_keep_chain_bytes(trials->session, chains);
    if (bytes <= trials->work_bytes)
        return HEED_OK;
    char *work = heed_allocate(bytes, 1);
    if (!work)
        return heed_fail(HEED_NO_MEMORY, "no memory for policies: %zu bytes", bytes);
    free(trials->work);
    trials->work = work;
    trials->work_bytes = bytes;
    trials->session->work.keep.work = work;
    return HEED_OK;
}

heed_status heed_trials_change(heed_trials *trials, const char *attention)
{
    heed_session *session = trials->session;
    const int64_t layers = session->model->config.layers;
    heed_chain *chains = malloc(chains_of(session) * sizeof *chains);
    char *text = malloc(HEED_ATTENTION_TEXT);
    heed_status status =
        chains && text
            ? HEED_OK
            : heed_fail(HEED_NO_MEMORY, "no memory for the policies of %lld layers", (long long)layers);
    if (!status)
        status = heed_attention_holds(attention, NULL, layers, session->model->config.heads);
    for (int64_t l = 0; l < layers && !status; l++)
        status = chains_of_layer(trials, attention, l, text, chains);
    if (!status)
        status = make_room(trials, chains);
    if (!status)
        put_in_place(session, chains);
    free(chains);
    free(text);
    return status;
}

heed_status heed_trials_act(heed_trials *trials, int64_t sequence)
{
    heed_session *session = trials->session;
    const heed_piece end = {.sequence = sequence,
                            .first = heed_session_length(session, sequence),
                            .prompt = true,
                            .last = true,
                            .ends = true};
    for (int64_t l = 0; l < session->model->config.layers; l++) {
        TRY(heed_session_settle(session, l, &end));
        session->held_young = false;
        const heed_status aged = heed_session_age(session, l, &end);
        session->held_young = true;
        TRY(aged);
    }
    return HEED_OK;
}

heed_status heed_trials_take(heed_trials *trials, int64_t from, int64_t to, int64_t layer, int64_t kv_head)
{
    heed_session *session = trials->session;
    const heed_past *acted = heed_past_of(session, from, layer);
    heed_past *past = heed_past_of(session, to, layer);
    TRY(heed_pages_share_list(&session->pages, from, to, layer, kv_head));
    past->acted = acted->acted > past->acted ? acted->acted : past->acted;
    past->looked = acted->looked > past->looked ? acted->looked : past->looked;
    past->gone = acted->gone > past->gone ? acted->gone : past->gone;
    return HEED_OK;
}

/* What goes with a key beside its rows: its place, where one is kept, and states. The lists of a layer are
 * kept alike. */
static size_t bytes_beside(const heed_session *session, int64_t layer)
{
    const heed_storage *storage =
        session->layer[layer].aging.form ? session->layer[layer].aging.form->storage : NULL;
    size_t beside = storage && storage->weighs ? sizeof(int32_t) : 0;
    const int64_t heads = session->model->config.kv_heads;
    for (int64_t g = 0; g < heads; g++) {
        const heed_chain *chain = &session->chain[layer * heads + g];
        size_t here = chain->forms ? sizeof(int32_t) : 0;
        for (int f = 0; f < chain->forms; f++)
            here += (size_t)chain->form[f].form->policy->state_floats * sizeof(float);
        beside = here > beside ? here : beside;
    }
    return beside;
}

double heed_trials_bytes(const heed_trials *trials, int64_t sequence, int64_t layer, int64_t kv_head)
{
    const heed_session *session = trials->session;
    const heed_pages_layer *stored = &session->pages.layer[layer];
    const heed_kept_keys *list = heed_pages_list(&session->pages, sequence, layer, kv_head);
    double bytes = (double)list->count * (double)bytes_beside(session, layer);
    for (int64_t p = 0; p < heed_pages_for(list->count); p++)
        bytes += (double)(stored->layout[heed_page_grade(list, p)].page_bytes + stored->side_bytes);
    return bytes;
}
