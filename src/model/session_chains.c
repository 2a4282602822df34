/* What policies ask of a session, found when it is made. */
#include "base/try.h"
#include "model/session.h"

#include <ctype.h>
#include <string.h>

heed_status heed_session_chains(heed_session *session, int64_t l, const heed_spec *spec)
{
    const heed_config *c = &session->model->config;
    const heed_sizes sizes = {.batch = 1,
                              .heads = c->heads,
                              .kv_heads = c->kv_heads,
                              .queries = 1,
                              .keys = session->context,
                              .dim = c->head_dim,
                              .value_dim = c->head_dim};
    heed_chain *chain = session->chain + l * c->kv_heads, other;
    const int64_t group = c->heads / c->kv_heads;
    for (int64_t h = 0; h < c->heads; h++) {
        int root[HEED_STAGES];
        const int64_t g = h / group;
        heed_spec_clauses(spec, l, h, root);
        heed_chain *to = h % group ? &other : &chain[g];
        TRY(heed_chain_of_spec(to, spec, root[HEED_CACHE], session->model->isa, &sizes, l, c->layers));
        if (h % group && !heed_chain_is_same(to, &chain[g]))
            return heed_fail(HEED_UNSUPPORTED,
                             "query heads %lld and %lld of layer %lld share the keys of kv head %lld, so "
                             "their policies must be the same",
                             (long long)(g * group), (long long)h, (long long)l, (long long)g);
        session->layer[l].team[g] = (int)g;
        for (int64_t before = g - 1; before >= 0; before--)
            if (heed_chain_is_same(&chain[before], &chain[g]))
                session->layer[l].team[g] = (int)before;
        if (chain[g].forms > 0)
            session->layer[l].chain = chain;
        if (chain[g].chunked > 0 && chain[g].chunked < session->chunk)
            session->chunk = chain[g].chunked;
    }
    return HEED_OK;
}

static heed_status check_alike(const heed_session *session, int64_t l)
{
    const heed_session_layer *layer = &session->layer[l];
    for (int64_t g = 1; g < session->model->config.kv_heads; g++)
        if (layer->chain[g].packed != layer->chain[0].packed)
            return heed_fail(
                HEED_UNSUPPORTED,
                "cache=packed for some heads of layer %lld only: its queries stand at one position",
                (long long)l);
    return HEED_OK;
}

heed_status heed_session_serve_chains(heed_session *session, int64_t l, heed_session_kind *kind,
                                      heed_pages_layer *stored)
{
    heed_session_layer *layer = &session->layer[l];
    if (!layer->chain)
        return HEED_OK;
    TRY(check_alike(session, l));
    heed_wants_of_policies *all = &session->wants;
    layer->packed = layer->chain[0].packed;
    for (int64_t g = 0; g < session->model->config.kv_heads; g++) {
        const heed_chain *chain = &layer->chain[g];
        kind->mass |= chain->merges;
        kind->with |= chain->observes & HEED_OBSERVES_SUMS ? HEED_WITH_KEY_SUMS : 0u;
        kind->with |= chain->observes & HEED_OBSERVES_TOP ? HEED_WITH_TOP : 0u;
        kind->with |= chain->repeats && !heed_reach_ends(layer->reach[g]) ? HEED_WITH_WEIGHTS : 0u;
        kind->top = chain->top > kind->top ? chain->top : kind->top;
        layer->window = chain->window > layer->window ? chain->window : layer->window;
        if (chain->observes & HEED_OBSERVES_WEIGHTS && chain->window > kind->window)
            kind->window = chain->window;
        stored->states = chain->state_floats > stored->states ? chain->state_floats : stored->states;
        all->observes |= chain->observes;
        all->merges |= chain->merges;
    }
    if (kind->window) /* those of all that is shown */
        kind->window = layer->window;
    for (int64_t g = 0; g < session->model->config.kv_heads; g++)
        layer->chain[g].state_floats = (int)stored->states; /* rows of all kv heads have one length */
    if (kind->with & session->with & HEED_WITH_TOP && kind->top > session->top)
        return heed_fail(HEED_INVALID, "a policy looks at %d links of each query: capture as many, not %d",
                         kind->top, session->top);
    kind->top = session->top > kind->top ? session->top : kind->top;
    kind->started = false;
    kind->placed = stored->placed = true;
    stored->mass = kind->mass;
    stored->moved = layer->packed;
    all->packed |= layer->packed;
    all->window = layer->window > all->window ? layer->window : all->window;
    all->top = kind->top > all->top ? kind->top : all->top;
    all->most = kind->most > all->most ? kind->most : all->most;
    return HEED_OK;
}

bool heed_session_chains_end(const heed_session *session, int64_t l)
{
    const heed_session_layer *layer = &session->layer[l];
    bool ends = layer->chain != NULL;
    for (int64_t g = 0; ends && g < session->model->config.kv_heads; g++) {
        const heed_chain *chain = &layer->chain[g];
        const int64_t every = heed_chain_every(chain, HEED_FAR),
                      more = chain->chunked && session->chunk > every ? session->chunk : every;
        ends = chain->forms > 0 && !chain->prompt_only &&
               heed_chain_budget(chain, HEED_FAR) + more < session->context;
    }
    return ends;
}

int64_t heed_session_room(const heed_session *session, int64_t sequence)
{
    const int64_t kv_heads = session->model->config.kv_heads;
    int64_t room = session->limit - heed_session_length(session, sequence);
    if (session->limit == session->context)
        return room;
    for (int64_t l = 0; l < session->model->config.layers; l++) {
        const heed_session_layer *layer = &session->layer[l];
        for (int64_t g = 0; layer->chain && g < kv_heads; g++) {
            const int64_t left =
                session->kind[layer->kind].most - heed_pages_list(&session->pages, sequence, l, g)->count;
            if (!layer->chain[g].chunked && !heed_reach_ends(layer->reach[g]) && left < room)
                room = left;
        }
    }
    return room;
}

heed_status heed_session_check_chains(const heed_session *session, int64_t l)
{
    const heed_session_layer *layer = &session->layer[l];
    const heed_session_kind *kind = &session->kind[layer->kind];
    if (!layer->chain)
        return HEED_OK;
    unsigned observes = 0;
    for (int64_t g = 0; g < session->model->config.kv_heads; g++)
        observes |= layer->chain[g].observes;
    const unsigned prepared = HEED_OBSERVES_KEYS | HEED_OBSERVES_BARE | HEED_OBSERVES_QUERIES;
    if (!kind->prepared && (observes & prepared || layer->packed))
        return heed_fail(
            HEED_UNSUPPORTED,
            "a policy of layer %lld looks at keys as they are compared, which `%s` makes anew at "
            "each execution",
            (long long)l, kind->spec);
    float row[1] = {0.0f};
    const heed_new_keys none = {.pos = NULL,
                                .k = row,
                                .k_stride = session->model->config.head_dim,
                                .out = row,
                                .out_stride = session->model->config.head_dim};
    if (layer->packed || observes & HEED_OBSERVES_BARE)
        TRY(heed_plan_move_keys(kind->rung[0], &none));
    if (observes & HEED_OBSERVES_QUERIES)
        TRY(heed_plan_prepare_queries(kind->rung[0], &none));
    return HEED_OK;
}

/* Punctuation and line ends, and nothing else. */
static bool is_punctuation(const char *text, size_t size)
{
    bool some = false;
    for (size_t i = 0; i < size; i++) {
        const unsigned char c = (unsigned char)text[i];
        if (c > 127 || isalnum(c))
            return false;
        some |= ispunct(c) || c == '\n' || c == '\r';
    }
    return some;
}

heed_status heed_session_sort_tokens(heed_session *session)
{
    const heed_tokenizer *tokenizer = session->model->tokenizer;
    const int64_t vocabulary = session->model->config.vocabulary;
    session->token_kind = heed_allocate((size_t)vocabulary, 1);
    if (!session->token_kind)
        return heed_fail(HEED_NO_MEMORY, "no memory for the kinds of tokens");
    if (!tokenizer)
        return heed_fail(HEED_UNSUPPORTED, "a policy asks what tokens are, but the model has no tokeniser");
    for (int32_t id = 0; id < vocabulary && id < heed_tokenizer_size(tokenizer); id++) {
        char text[64];
        heed_detokenizer one = {.tokenizer = tokenizer, .tokens = 1};
        const size_t size = heed_detokenize(&one, id, text, sizeof text);
        if (heed_token_is_control(tokenizer, id))
            session->token_kind[id] = HEED_TOKEN_SPECIAL;
        else if (size > 0 && size < sizeof text && is_punctuation(text, size))
            session->token_kind[id] = HEED_TOKEN_PUNCTUATION;
    }
    return HEED_OK;
}

size_t heed_keep_chain_bytes(const heed_session *session, const heed_chain *chains)
{
    const heed_config *c = &session->model->config;
    const heed_held largest = {.layers = c->layers,
                               .kv_heads = (int)c->kv_heads,
                               .group = (int)(c->heads / c->kv_heads),
                               .dim = c->head_dim,
                               .value_dim = c->head_dim,
                               .count = heed_pages_for(session->wants.most) * HEED_PAGE,
                               .queries = session->wants.window};
    size_t bytes = 0;
    for (int64_t i = 0; i < c->layers * c->kv_heads; i++) {
        const size_t here =
            chains[i].forms ? heed_keep_work_bytes(&chains[i], (int)c->kv_heads, &largest) : 0;
        bytes = here > bytes ? here : bytes;
    }
    return bytes;
}

void heed_keep_take_room(const heed_session *session, heed_keep_room *room, heed_arena *arena)
{
    const heed_config *c = &session->model->config;
    const heed_wants_of_policies *wants = &session->wants;
    const size_t most = (size_t)heed_pages_for(wants->most) * HEED_PAGE, window = (size_t)wants->window,
                 heads = (size_t)c->heads, kv_heads = (size_t)c->kv_heads, group = heads / kv_heads,
                 dim = (size_t)c->head_dim * sizeof(float), top = (size_t)wants->top * sizeof(float);
    const bool keys = wants->observes & HEED_OBSERVES_KEYS, values = wants->observes & HEED_OBSERVES_VALUES,
               tokens = wants->observes & HEED_OBSERVES_TOKENS;
    if (most == 0)
        return;
    room->key = keys ? heed_arena_take(arena, kv_heads * most, dim) : NULL;
    room->bare = wants->observes & HEED_OBSERVES_BARE ? heed_arena_take(arena, kv_heads * most, dim) : NULL;
    room->value = values ? heed_arena_take(arena, kv_heads * most, dim) : NULL;
    room->token = tokens ? heed_arena_take(arena, kv_heads * most, sizeof *room->token) : NULL;
    room->token_kind = tokens ? heed_arena_take(arena, kv_heads * most, 1) : NULL;
    room->query = heed_arena_take(arena, heads * window, dim);
    room->compared = heed_arena_take(arena, heads * window, dim);
    room->attended = heed_arena_take(arena, heads * window, dim);
    room->place = heed_arena_take(arena, window, sizeof *room->place);
    room->pos = heed_arena_take(arena, window, sizeof *room->pos);
    if (wants->observes & HEED_OBSERVES_WEIGHTS)
        room->weight = heed_arena_take(arena, heads * window, most * sizeof(float));
    room->sum = heed_arena_take(arena, most, sizeof(float));
    room->top_weight = heed_arena_take(arena, group * (size_t)session->chunk, top);
    room->top_key = heed_arena_take(arena, group * (size_t)session->chunk, top);
    room->ones = heed_arena_take(arena, most, sizeof *room->ones);
    room->keep = heed_arena_take(arena, kv_heads, most);
    room->held = heed_arena_take(arena, kv_heads, sizeof *room->held);
    room->chain = heed_arena_take(arena, kv_heads, sizeof *room->chain);
    room->keys = heed_arena_take(arena, kv_heads, sizeof *room->keys);
    room->values = heed_arena_take(arena, kv_heads, sizeof *room->values);
    room->masses = heed_arena_take(arena, kv_heads, sizeof *room->masses);
    room->keeps = heed_arena_take(arena, kv_heads, sizeof *room->keeps);
    room->changed = heed_arena_take(arena, kv_heads, sizeof *room->changed);
    room->moves = heed_arena_take(arena, HEED_KEY_ROWS, sizeof *room->moves);
    room->rows = heed_arena_take(arena, 3 * HEED_KEY_ROWS, dim);
    room->work = heed_arena_take(arena, heed_keep_chain_bytes(session, session->chain), 1);
    for (size_t i = 0; room->ones && i < most; i++)
        room->ones[i] = 1.0f;
}
