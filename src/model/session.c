/* Making a session: plans, a cache, and memory for everything that is written. */
#include "base/cpu.h"
#include "base/try.h"
#include "model/session_params.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { DEFAULT_CHUNK = 512, LARGEST_PIECE = 1024 /* keys that a thread goes through at a time */ };

static int64_t larger(int64_t a, int64_t b)
{
    return a > b ? a : b;
}

static size_t linear_bytes(const heed_session *session)
{
    const heed_model *model = session->model;
    size_t most = heed_linear_scratch(&model->output, session->rows, session->threads);
    for (int64_t l = 0; l < model->config.layers; l++) {
        const heed_layer *layer = &model->layer[l];
        const heed_linear *each[] = {&layer->query_key_value, &layer->attention_output, &layer->up,
                                     &layer->down};
        for (int i = 0; i < 4; i++) {
            const size_t bytes = heed_linear_scratch(each[i], session->rows, session->threads);
            most = bytes > most ? bytes : most;
        }
    }
    return most;
}

static void take_capture(heed_session *session, heed_arena *arena, size_t most)
{
    const size_t heads = (size_t)session->model->config.heads,
                 queries = most > (size_t)session->sequences ? most : (size_t)session->sequences;
    unsigned with = session->with;
    int64_t keys = session->chunk, top = session->top;
    for (int k = 0; k < session->kinds; k++) {
        with |= session->kind[k].with;
        keys = larger(keys, session->cached ? session->kind[k].most : 0);
        top = larger(top, session->kind[k].top);
    }
    const size_t all_keys = (size_t)keys * (size_t)(session->cached ? session->sequences : 1);
    heed_capture *capture = &session->work.capture;
    if (with & HEED_WITH_ENTROPY)
        capture->entropy = heed_arena_take(arena, heads * queries, sizeof(float));
    if (with & HEED_WITH_KEY_SUMS)
        capture->key_sums = heed_arena_take(arena, heads * all_keys, sizeof(float));
    if (with & HEED_WITH_TOP) {
        capture->top_weight = heed_arena_take(arena, heads * queries, (size_t)top * sizeof(float));
        capture->top_key = heed_arena_take(arena, heads * queries, (size_t)top * sizeof(int32_t));
    }
}

/* The last queries that policies want to see, of every layer and sequence. */
static void take_queries(heed_session *session, heed_arena *arena)
{
    const heed_config *c = &session->model->config;
    for (int64_t l = 0; l < c->layers; l++) {
        heed_session_layer *layer = &session->layer[l];
        if (layer->window)
            layer->query = heed_arena_take(arena,
                                           (size_t)session->sequences * (size_t)layer->window +
                                               (session->repeat.each ? (size_t)layer->window : 0),
                                           (size_t)(c->heads * c->head_dim) * sizeof(float));
    }
}

static size_t most_pages(const heed_session *session)
{
    int64_t most = 1;
    for (int64_t l = 0; session->cached && l < session->model->config.layers; l++)
        most = larger(most, session->pages.layer[l].pages_each);
    return (size_t)most;
}

void heed_session_take_work(heed_session *session, heed_arena *arena)
{
    const heed_config *c = &session->model->config;
    heed_work *work = &session->work;
    const size_t rows = (size_t)session->rows, sequences = (size_t)session->sequences,
                 width = (size_t)c->width;
    const size_t most = (size_t)session->queries[session->rungs - 1],
                 beyond = rows + (most > sequences ? most : sequences);
    const size_t heads = (size_t)c->heads * (size_t)c->head_dim,
                 kv = (size_t)c->kv_heads * (size_t)c->head_dim;
    work->x = heed_arena_take(arena, rows, width * sizeof(float));
    work->h = heed_arena_take(arena, rows, width * sizeof(float));
    work->qkv = heed_arena_take(arena, beyond, (heads + 2 * kv) * sizeof(float));
    work->attended = heed_arena_take(arena, beyond, heads * sizeof(float));
    work->up = heed_arena_take(arena, rows, (size_t)c->feed_forward * (c->gated ? 2 : 1) * sizeof(float));
    work->key = heed_arena_take(arena, (size_t)session->threads * 2 * HEED_KEY_ROWS,
                                (size_t)c->head_dim * sizeof(float));
    work->position = heed_arena_take(arena, beyond, sizeof *work->position);
    if (work->position)
        memset(work->position, 0, beyond * sizeof *work->position);
    work->linear = heed_arena_take(arena, linear_bytes(session), 1);
    work->attend = heed_arena_take(arena, session->attend_bytes, 1);
    work->seen = heed_arena_take(arena, sequences * (size_t)c->kv_heads, sizeof *work->seen);
    work->start = heed_arena_take(arena, sequences, sizeof *work->start);
    work->asked = heed_arena_take(arena, sequences, sizeof *work->asked);
    work->table =
        heed_arena_take(arena, sequences * (size_t)c->kv_heads * most_pages(session), sizeof *work->table);
    work->piece = heed_arena_take(arena, rows, sizeof *work->piece);
    work->progress = heed_arena_take(arena, sequences, sizeof *work->progress);
    work->before = heed_arena_take(arena, sequences, sizeof *work->before);
    take_capture(session, arena, most);
    take_queries(session, arena);
    heed_prune_take(session, arena);
    heed_repeat_take(session, arena);
    heed_keep_take_room(session, &work->keep, arena);
}

static heed_status take_memory(heed_session *session)
{
    for (int k = 0; k < session->kinds; k++)
        for (int i = 0; i < session->rungs + 2; i++) {
            const heed_session_kind *kind = &session->kind[k];
            const heed_plan *plan = i < session->rungs    ? kind->rung[i]
                                    : i == session->rungs ? kind->step
                                                          : kind->watch;
            const size_t bytes = plan ? heed_plan_scratch(plan) : 0;
            session->attend_bytes = bytes > session->attend_bytes ? bytes : session->attend_bytes;
        }
    heed_arena arena = {0};
    heed_session_take_work(session, &arena);
    session->work_bytes = arena.used;
    if (!arena.overflow)
        session->memory = aligned_alloc(HEED_ALIGNMENT, arena.used); /* pages are taken as they are touched */
    if (!session->memory)
        return heed_fail(HEED_NO_MEMORY, "no memory for the work of a session: %zu bytes", arena.used);
    arena = (heed_arena){.base = session->memory};
    heed_session_take_work(session, &arena);
    return heed_session_take_memories(session);
}

static heed_status check_options(const heed_model *model, const heed_session_options *options)
{
    const heed_config *c = &model->config;
    const int64_t most = 1 << 28;
    if (options->context < 0 || options->context > most)
        return heed_fail(HEED_INVALID, "the context is %lld, it must be 1 to %lld tokens",
                         (long long)options->context, (long long)most);
    if (c->positions && options->context > c->positions)
        return heed_fail(HEED_INVALID, "the context is %lld, but the model has learnt only %lld positions",
                         (long long)options->context, (long long)c->positions);
    if (options->sequences < 0 || options->sequences > 1 << 16)
        return heed_fail(HEED_INVALID, "a session of %lld sequences: it may hold 1 to 65536",
                         (long long)options->sequences);
    if (options->chunk < 0 || options->chunk > 1 << 16)
        return heed_fail(HEED_INVALID, "the chunk is %lld, it must be 1 to 65536 tokens",
                         (long long)options->chunk);
    if (options->threads < 0 || options->threads > 1024)
        return heed_fail(HEED_INVALID, "threads is %d, it must be 1 to 1024", options->threads);
    if (options->offload && !options->resident_bytes)
        return heed_fail(HEED_INVALID,
                         "pages go to %s, but no bytes of them are to be in memory: say how many",
                         options->offload);
    if (options->offload && !c->causal)
        return heed_fail(HEED_UNSUPPORTED,
                         "this model reads both ways and keeps no cache to put into a file");
    return HEED_OK;
}

static heed_status take_tables(heed_session *session)
{
    const heed_config *c = &session->model->config;
    const size_t layers = (size_t)c->layers, sequences = (size_t)session->sequences;
    session->kind = heed_allocate(layers, sizeof *session->kind);
    session->layer = heed_allocate(layers, sizeof *session->layer);
    session->reach = heed_allocate(layers, (size_t)c->kv_heads * sizeof *session->reach);
    session->chain = heed_allocate(layers, (size_t)c->kv_heads * sizeof *session->chain);
    session->team = heed_allocate(layers, (size_t)c->kv_heads * sizeof *session->team);
    session->past = heed_allocate(sequences + 1, layers * sizeof *session->past);
    session->read = heed_allocate(sequences + 1, sizeof *session->read);
    session->memories = heed_allocate(sequences + 1, (layers + 1) * sizeof *session->memories);
    if (!session->memories || !session->kind || !session->layer || !session->reach || !session->past ||
        !session->read || !session->chain || !session->team)
        return heed_fail(HEED_NO_MEMORY, "no memory for a session");
    for (int64_t l = 0; l < c->layers; l++) {
        session->layer[l].reach = session->reach + l * c->kv_heads;
        session->layer[l].team = session->team + l * c->kv_heads;
    }
    return HEED_OK;
}

static heed_status build(heed_session *session, const heed_session_options *options)
{
    const heed_config *c = &session->model->config;
    TRY(take_tables(session));
    heed_pages_layer *stored = heed_allocate((size_t)c->layers, sizeof *stored);
    heed_status status = stored ? HEED_OK : heed_fail(HEED_NO_MEMORY, "no memory for a session");
    if (!status)
        status = heed_attention_holds(options->attention, options->forms, c->layers, c->heads);
    if (!status)
        status = heed_session_open_params(session, options);
    if (!status)
        status = heed_session_plan(session, options, stored);
    if (!status && session->cached) {
        const int64_t piece = session->chunk > LARGEST_PIECE ? session->chunk : LARGEST_PIECE;
        const heed_pages_shape shape = {.layers = c->layers,
                                        .heads = c->kv_heads,
                                        .dim = c->head_dim,
                                        .value_dim = c->head_dim,
                                        .sequences = session->sequences + (session->repeat.each > 0),
                                        .folder = session->offload,
                                        .resident = options->resident_bytes,
                                        .threads = session->threads,
                                        .at_once = piece};
        status = heed_pages_create(&session->pages, &shape, stored);
    }
    free(stored);
    if (!status)
        status = heed_carry_open(session);
    if (!status && session->wants.observes & HEED_OBSERVES_TOKENS)
        status = heed_session_sort_tokens(session);
    return status ? status : take_memory(session);
}

heed_status heed_session_create(heed_session **out, const heed_model *model,
                                const heed_session_options *options)
{
    static const heed_session_options none = {.context = 0};
    if (!out || !model)
        return heed_fail(HEED_INVALID, "a session and a model are needed");
    *out = NULL;
    options = options ? options : &none;
    TRY(check_options(model, options));
    heed_session *session = calloc(1, sizeof *session);
    if (!session)
        return heed_fail(HEED_NO_MEMORY, "no memory for a session");
    session->model = model;
    session->cached = model->config.causal;
    session->context = options->context ? options->context : model->config.context;
    session->sequences = options->sequences ? options->sequences : 1;
    session->chunk = options->chunk ? options->chunk : DEFAULT_CHUNK;
    if (session->chunk > session->context || !session->cached)
        session->chunk = session->context; /* what looks both ways is read at once */
    session->threads = options->threads ? options->threads : heed_cpu_physical_cores();
    session->with = options->with;
    session->top = options->top;
    if (options->offload && !(session->offload = strdup(options->offload))) {
        free(session);
        return heed_fail(HEED_NO_MEMORY, "no memory for a session");
    }
    const heed_status status = build(session, options);
    if (status) {
        heed_session_free(session);
        return status;
    }
    *out = session;
    return HEED_OK;
}

void heed_session_free(heed_session *session)
{
    if (!session)
        return;
    for (int k = 0; k < session->kinds; k++) {
        heed_session_kind *kind = &session->kind[k];
        for (int i = 0; i < HEED_RUNGS; i++)
            heed_plan_free(kind->rung[i]);
        heed_plan_free(kind->step);
        heed_plan_free(kind->watch);
        free(kind->spec);
        free(kind->prompt);
    }
    free(session->kind);
    heed_repeat_free(&session->repeat);
    heed_carry_close(session);
    for (int64_t s = 0; session->read && s <= session->sequences; s++)
        free(session->read[s].token);
    for (int64_t l = 0; session->layer && l < session->model->config.layers; l++) {
        free(session->layer[l].text);
        free(session->layer[l].param);
    }
    free(session->read);
    free(session->memories);
    free(session->memory_room);
    free(session->layer);
    free(session->reach);
    free(session->past);
    free(session->chain);
    free(session->team);
    free(session->token_kind);
    heed_pages_free(&session->pages);
    free(session->offload);
    free(session->memory);
    heed_params_free(session->params);
    free(session);
}

/* How far keys lie behind their queries. */
static int64_t farthest(const heed_session *session)
{
    int64_t most = 0;
    for (int64_t l = 0; l < session->model->config.layers; l++)
        for (int64_t g = 0; g < session->model->config.kv_heads; g++) {
            const heed_reach reach = session->layer[l].reach[g];
            const int64_t here = session->layer[l].packed ? session->kind[session->layer[l].kind].most
                                 : heed_reach_ends(reach) && reach.first == 0 ? reach.span
                                                                              : session->limit;
            most = larger(most, here);
        }
    return most < session->limit ? most : session->limit;
}

void heed_session_get_info(const heed_session *session, heed_session_info *info)
{
    *info = (heed_session_info){.context = session->context,
                                .limit = session->limit,
                                .distance = farthest(session),
                                .sequences = session->sequences,
                                .chunk = session->chunk,
                                .threads = session->threads,
                                .cache_token_bytes =
                                    session->cached ? heed_pages_token_bytes(&session->pages) : 0.0,
                                .work_bytes = session->work_bytes,
                                .state_layers = heed_carry_layers(session, HEED_CARRIES_STATE),
                                .again_layers = heed_carry_layers(session, HEED_CARRIES_INPUTS),
                                .whole_prompts = session->prune.form != NULL};
}

/* What is kept of a layer's keys and values, as a line of its own. */
static void describe_keeping(const heed_session *session, int64_t layer, char *text, size_t size)
{
    const heed_pages_layer *stored = &session->pages.layer[layer];
    const char *key = heed_type_name(stored->key_type), *value = heed_type_name(stored->value_type);
    char types[64];
    const bool away = stored->offloaded;
    snprintf(types, sizeof types, stored->key_type == stored->value_type ? "cache=%s" : "keys %s, values %s",
             key, value);
    snprintf(text, size, "%s: %s, at most %lld keys a kv head%s\n", types,
             session->layer[layer].chain   ? "policies choose what is kept"
             : session->layer[layer].drops ? "pages behind the window are dropped"
                                           : "everything is kept",
             (long long)stored->most, away ? ", in pages that may lie in a file" : "");
}

size_t heed_session_describe(const heed_session *session, int64_t layer, int64_t queries, char *text,
                             size_t size)
{
    if (layer < 0 || layer >= session->model->config.layers) {
        if (size)
            *text = 0;
        return 0;
    }
    if (session->model->carries[layer] != HEED_CARRIES_NOTHING)
        return (size_t)heed_carry_describe(session, layer, text, size);
    const heed_session_kind *kind = &session->kind[session->layer[layer].kind];
    int i = 0;
    while (i + 1 < session->rungs && session->queries[i] < queries)
        i++;
    size_t length = heed_plan_describe(queries == 1 && kind->step ? kind->step : kind->rung[i], text, size);
    if (session->cached) {
        char kept[192];
        describe_keeping(session, layer, kept, sizeof kept);
        if (length < size)
            snprintf(text + length, size - length, "%s", kept);
        length += strlen(kept);
    }
    return length;
}
