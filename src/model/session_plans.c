/* What a session's layers run on: their specs, a plan for each way of attending, and how their keys are kept.
 *
 * A layer whose queries see no further back than a window keeps that much, and some more: what was read last
 * can be taken back (heed_session_cut) as far as SLACK tokens.
 */
#include "attend/memory.h"
#include "base/try.h"
#include "model/session_params.h"

#include <stdlib.h>
#include <string.h>

enum { SLACK = HEED_PAGE };

/* A plan for `queries` tokens of each of `batch` sequences. */
static heed_status make_plan(const heed_session *session, const heed_session_kind *kind,
                             const heed_form *const *forms, int64_t batch, int64_t queries, bool watches,
                             heed_plan **plan)
{
    const heed_config *c = &session->model->config;
    unsigned with = HEED_WITH_SEQ | HEED_WITH_SCRATCH;
    if (session->cached)
        with |= HEED_WITH_PAGES | HEED_WITH_KEYS_BY_HEAD;
    with |= kind->started ? HEED_WITH_START : 0u;
    with |= kind->placed ? HEED_WITH_POSITIONS : 0u;
    with |= kind->mass ? HEED_WITH_MASS : 0u;
    with |= kind->summed ? HEED_WITH_SUMMARIES : 0u;
    if (kind->recall && (plan == &kind->step || kind->recall->flags & HEED_RECALL_GATHERS))
        with |= HEED_WITH_MEMORY;
    with |= watches ? HEED_WITH_WEIGHTS : kind->with | session->with;
    with |= kind->prepared ? HEED_WITH_PREPARED_KEYS : 0u;
    with |= session->model->packing.kind == HEED_PRODUCT_FAST ? HEED_WITH_WHOLE_NUMBERS : 0u;
    heed_problem problem = {.batch = batch,
                            .heads = c->heads,
                            .kv_heads = c->kv_heads,
                            .queries = queries,
                            .keys = session->cached ? kind->most : queries,
                            .dim = c->head_dim,
                            .k_type = kind->key_type,
                            .v_type = kind->value_type,
                            .threads = session->threads,
                            .isa = session->model->isa,
                            .with = with,
                            .page = HEED_PAGE,
                            .grades = kind->grades,
                            .top = watches                    ? 0
                                   : kind->top > session->top ? kind->top
                                                              : session->top,
                            .forms = forms};
    memcpy(problem.grade, kind->grade, sizeof kind->grade);
    return heed_plan_create(plan, kind->prompt && plan != &kind->step ? kind->prompt : kind->spec, &problem);
}

static heed_status check_plan(const heed_session *session, const heed_plan *plan)
{
    for (int p = 0; session->cached && p < plan->pipelines; p++)
        if (!plan->pipeline[p].causal)
            return heed_fail(
                HEED_UNSUPPORTED,
                "with `%s` tokens would see later ones, which the model's cache does not hold yet; make "
                "`causal` a factor of where",
                plan->spec);
    return HEED_OK;
}

/* Summaries go with pages where keys are stored prepared and pages hold whole blocks of every selector. */
static bool keeps_summaries(const heed_session_kind *kind)
{
    const heed_plan *plan = kind->rung[0];
    bool keeps = kind->prepared && heed_plan_summary_floats(plan, HEED_PAGE) > 0;
    for (int p = 0; keeps && p < plan->pipelines; p++)
        for (int n = 0; n < plan->pipeline[p].selects; n++) {
            const heed_form_state *form = &plan->pipeline[p].form[plan->pipeline[p].select[n]];
            if (form->form->summary_floats && !form->form->block_rule)
                keeps = false;
            if (form->form->block_rule)
                keeps &= HEED_PAGE % form->form->block_rule(form).keys == 0;
        }
    return keeps;
}

static heed_status make_plans(heed_session *session, heed_session_kind *kind, const heed_form *const *forms)
{
    kind->prepared = session->cached;
    for (int i = 0; i < session->rungs; i++) {
        heed_status status = make_plan(session, kind, forms, 1, session->queries[i], false, &kind->rung[i]);
        if (status == HEED_UNSUPPORTED && kind->prepared && i == 0) { /* keys are prepared each time, then */
            kind->prepared = false;
            status = make_plan(session, kind, forms, 1, session->queries[i], false, &kind->rung[i]);
        }
        TRY(status);
        if (i == 0 && session->cached && !kind->summed && keeps_summaries(kind)) {
            kind->summed = true;
            heed_plan_free(kind->rung[0]);
            kind->rung[0] = NULL;
            i--;
        }
    }
    TRY(check_plan(session, kind->rung[0]));
    if (!session->cached)
        return HEED_OK;
    if (kind->window)
        TRY(make_plan(session, kind, forms, 1, kind->window, true, &kind->watch));
    TRY(make_plan(session, kind, forms, kind->placed ? 1 : session->sequences, 1, false, &kind->step));
    if (kind->recall) {
        const heed_form_state *recaller = heed_recaller(&kind->step->pipeline[0]);
        kind->unit = recaller->form->recall->unit(recaller);
    }
    return HEED_OK;
}

static bool same_kind(const heed_session_kind *a, const heed_session_kind *b)
{
    return a->key_type == b->key_type && a->value_type == b->value_type && a->most == b->most &&
           a->grades == b->grades && !memcmp(a->grade, b->grade, sizeof a->grade) &&
           a->started == b->started && a->placed == b->placed && a->mass == b->mass && a->with == b->with &&
           a->top == b->top && a->window == b->window && !strcmp(a->spec, b->spec);
}

/* Takes over `wanted->spec`. */
static heed_status find_kind(heed_session *session, const heed_session_kind *wanted,
                             const heed_form *const *forms, int *index)
{
    for (*index = 0; *index < session->kinds; (*index)++)
        if (same_kind(&session->kind[*index], wanted)) {
            free(wanted->spec);
            free(wanted->prompt);
            return HEED_OK;
        }
    heed_session_kind *kind = &session->kind[session->kinds++];
    *kind = *wanted;
    return kind->carried ? HEED_OK : make_plans(session, kind, forms);
}

static void find_reach(const heed_session *session, const heed_spec *spec, heed_reach *reach)
{
    const heed_config *c = &session->model->config;
    const int64_t group = c->heads / c->kv_heads;
    for (int64_t h = 0; h < c->heads; h++) {
        int root[HEED_STAGES];
        heed_spec_clauses(spec, 0, h, root);
        const heed_reach here = heed_reach_of(spec, root);
        reach[h / group] = h % group ? heed_reach_join(reach[h / group], here) : here;
    }
}

/* All kv heads of the layer forget what lies behind. */
static bool layer_ends(const heed_session *session, const heed_reach *reach)
{
    bool ends = true;
    for (int64_t g = 0; g < session->model->config.kv_heads; g++)
        ends &= heed_reach_ends(reach[g]) && reach[g].first + reach[g].span <= session->context;
    return ends;
}

static int64_t whole_pages(int64_t keys)
{
    return heed_pages_for(keys) * HEED_PAGE;
}

/* Most keys that a layer holds which drops what is out of reach once a page of it is full. */
static int64_t keys_in_reach(const heed_session *session, const heed_reach *reach)
{
    int64_t most = 0;
    for (int64_t g = 0; g < session->model->config.kv_heads; g++) {
        const int64_t here = !heed_reach_ends(reach[g])
                                 ? session->context
                                 : whole_pages(reach[g].first) +
                                       whole_pages(reach[g].span + SLACK + session->chunk) + HEED_PAGE;
        most = here > most ? here : most;
    }
    return most;
}

/* Heads that mix must all hold the same keys. */
static bool heads_mix(const heed_spec *spec)
{
    bool mix = false;
    for (int i = 0; i < spec->nodes; i++)
        mix |= spec->node[i].form && spec->node[i].form->flags & HEED_MIXES_HEADS;
    return mix;
}

static void choose_keeping(const heed_session *session, const heed_spec *spec, heed_session_layer *layer,
                           heed_session_kind *kind)
{
    const heed_reach *reach = layer->reach;
    kind->most = session->context;
    bool alike = reach[0].first == 0;
    for (int64_t g = 1; g < session->model->config.kv_heads; g++)
        alike &= reach[g].first == reach[0].first && reach[g].span == reach[0].span;
    layer->drops &= alike || !heads_mix(spec);
    if (!layer->drops)
        return;
    kind->started = alike;
    kind->placed = !alike;
    const int64_t most = keys_in_reach(session, reach);
    if (session->limit > session->context || most < kind->most)
        kind->most = most;
}

/* A prompt that is read once more stands behind itself meanwhile. */
static void make_room_for_repeats(const heed_session *session, heed_session_kind *kind)
{
    kind->most += session->repeat.room;
}

/* Sequences may read on for ever when no layer needs all that was read. */
static void choose_limit(heed_session *session)
{
    const heed_config *c = &session->model->config;
    bool ends = session->cached && !session->with && !session->prune.form;
    for (int64_t l = 0; l < c->layers && ends; l++)
        ends &= layer_ends(session, session->layer[l].reach) || heed_session_chains_end(session, l);
    session->limit = !ends ? session->context : c->positions ? c->positions : HEED_POSITION_LIMIT / 2;
}

static heed_status read_spec(heed_session *session, const heed_session_options *options, int64_t l,
                             heed_attention *attention)
{
    const heed_config *c = &session->model->config;
    char own[1024];
    TRY(heed_config_attention(c, l, own, sizeof own));
    char *text = malloc(HEED_ATTENTION_TEXT);
    if (!text)
        return heed_fail(HEED_NO_MEMORY, "no memory for the text of a spec");
    heed_status status =
        heed_attention_of_layer(own, options->attention, options->forms, l, text, HEED_ATTENTION_TEXT);
    attention->keys = attention->values = !session->cached       ? HEED_F32
                                          : options->cache_given ? options->cache
                                                                 : HEED_F16;
    if (!status)
        status = heed_attention_take_apart(attention, text, options->forms);
    session->layer[l].text = status ? NULL : strdup(text);
    free(text);
    TRY(status);
    if (!session->layer[l].text)
        return heed_fail(HEED_NO_MEMORY, "no memory for the text of a spec");
    if (session->model->carries[l] != HEED_CARRIES_NOTHING && strcmp(own, session->layer[l].text) != 0)
        return heed_fail(
            HEED_UNSUPPORTED,
            "layer %lld was trained as `%s` and keeps no keys: other clauses are for other layers, as "
            "in `layers 1,3: cache=q8`",
            (long long)l, own);
    if (!session->cached && (attention->keys != HEED_F32 || attention->values != HEED_F32))
        return heed_fail(HEED_UNSUPPORTED, "cache=%s: this model reads both ways and keeps no cache",
                         heed_type_name(attention->keys));
    find_reach(session, attention->spec, session->layer[l].reach);
    for (int64_t g = 0; g < c->kv_heads && session->model->carries[l] == HEED_CARRIES_STATE; g++)
        session->layer[l].reach[g] = (heed_reach){.first = 0, .span = 1};
    TRY(heed_session_chains(session, l, attention->spec));
    TRY(heed_prune_find(session, l, attention->spec));
    if (session->layer[l].chain && !session->cached)
        return heed_fail(HEED_UNSUPPORTED,
                         "layer %lld has a cache policy, but this model reads both ways and "
                         "keeps no cache",
                         (long long)l);
    return HEED_OK;
}

/* Nothing is kept in pages. A state forgets by itself, inputs are kept from the first on. */
static heed_status plan_carried(heed_session *session, int64_t l, heed_attention *attention,
                                heed_pages_layer *stored)
{
    heed_session_layer *layer = &session->layer[l];
    heed_session_kind kind = {.spec = attention->plain,
                              .carried = true,
                              .key_type = HEED_F16,
                              .value_type = HEED_F16,
                              .most = HEED_PAGE};
    attention->plain = NULL;
    *stored =
        (heed_pages_layer){.key_type = HEED_F16, .value_type = HEED_F16, .most = HEED_PAGE, .empty = true};
    return find_kind(session, &kind, NULL, &layer->kind);
}

/* Captures name keys by their places in the text, so with them nothing is dropped. */
static heed_status plan_layer(heed_session *session, const heed_session_options *options, int64_t l,
                              heed_attention *attention, heed_pages_layer *stored)
{
    heed_session_layer *layer = &session->layer[l];
    for (int64_t g = 0; g < session->model->config.kv_heads && session->cached && !session->with; g++)
        layer->drops |= heed_reach_ends(layer->reach[g]);
    heed_session_kind kind = {.spec = attention->plain,
                              .prompt = attention->prompt,
                              .recall = attention->recaller ? attention->recaller->recall : NULL,
                              .key_type = attention->keys,
                              .value_type = attention->values};
    attention->plain = attention->prompt = NULL;
    choose_keeping(session, attention->spec, layer, &kind);
    make_room_for_repeats(session, &kind);
    if (session->prune.form && l == session->prune.layer)
        kind.with |= HEED_WITH_KEY_SUMS;
    if (session->prune.form && l > session->prune.layer) { /* places that do not follow one another */
        kind.started = false;
        kind.placed = true;
    }
    *stored = (heed_pages_layer){
        .key_type = kind.key_type, .value_type = kind.value_type, .most = kind.most, .placed = kind.placed};
    stored->offloaded =
        session->offload && kind.most >= session->context && !layer_ends(session, layer->reach);
    heed_status status = heed_session_serve_chains(session, l, &kind, stored);
    if (!status)
        status = heed_session_serve_aging(session, l, &attention->aging, &kind, stored);
    if (status) {
        free(kind.spec);
        free(kind.prompt);
        return status;
    }
    TRY(find_kind(session, &kind, options->forms, &layer->kind));
    TRY(heed_session_bind_params(session, l));
    const heed_session_kind *made = &session->kind[layer->kind];
    if (made->summed)
        stored->summary_floats = heed_plan_summary_floats(made->rung[0], HEED_PAGE);
    TRY(heed_session_check_recall(session, l));
    TRY(heed_session_check_aging(session, l));
    return heed_session_check_chains(session, l);
}

/* Lengths of pieces that have plans of their own. */
static void choose_rungs(heed_session *session)
{
    static const int64_t steps[] = {8, 48, 160};
    for (size_t i = 0; i < sizeof steps / sizeof *steps; i++)
        if (steps[i] < session->chunk)
            session->queries[session->rungs++] = steps[i];
    session->queries[session->rungs++] = session->chunk;
    session->rows = session->chunk > session->sequences ? session->chunk : session->sequences;
}

heed_status heed_session_plan(heed_session *session, const heed_session_options *options,
                              heed_pages_layer *stored)
{
    const int64_t layers = session->model->config.layers;
    heed_attention *attention = calloc((size_t)layers, sizeof *attention);
    if (!attention)
        return heed_fail(HEED_NO_MEMORY, "no memory for the specs of a session");
    heed_status status = HEED_OK;
    for (int64_t l = 0; l < layers && !status; l++)
        status = read_spec(session, options, l, &attention[l]);
    if (!status)
        status = heed_repeat_find(session);
    if (!status) {
        choose_rungs(session);
        choose_limit(session);
    }
    for (int64_t l = 0; l < layers && !status; l++)
        status = session->model->carries[l] != HEED_CARRIES_NOTHING
                     ? plan_carried(session, l, &attention[l], &stored[l])
                     : plan_layer(session, options, l, &attention[l], &stored[l]);
    for (int64_t l = 0; l < layers; l++)
        heed_attention_free(&attention[l]);
    free(attention);
    if (!status)
        status = heed_repeat_check(session);
    return status ? status : heed_prune_check(session);
}

void heed_session_drop(heed_session *session, int64_t l, int64_t sequence, int64_t read)
{
    const heed_session_layer *layer = &session->layer[l];
    heed_past *past = heed_past_of(session, sequence, l);
    for (int64_t g = 0; layer->drops && g < session->model->config.kv_heads; g++) {
        const heed_reach reach = layer->reach[g];
        const int64_t before = read - past->offset - reach.span - SLACK + 1;
        if (!heed_reach_ends(reach) || before <= reach.first)
            continue;
        const int64_t behind = heed_pages_drop(&session->pages, sequence, l, g, reach.first, before);
        past->gone = behind > past->gone ? behind : past->gone;
    }
}
