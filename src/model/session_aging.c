/* Storage that changes with age: after a piece was attended to, full pages are asked for their grade. */
#include "base/try.h"
#include "model/session.h"

#include <string.h>

/* The last queries are kept, as for policies, and their weights made again. */
static void want_queries(heed_session *session, int window, bool weighs, heed_session_layer *layer,
                         heed_session_kind *kind, heed_pages_layer *stored)
{
    heed_wants_of_policies *all = &session->wants;
    layer->window = window > layer->window ? window : layer->window;
    all->window = layer->window > all->window ? layer->window : all->window;
    all->most = kind->most > all->most ? kind->most : all->most;
    all->observes |= HEED_OBSERVES_QUERIES | (weighs ? HEED_OBSERVES_WEIGHTS : 0u);
    if (!weighs)
        return;
    kind->window = layer->window; /* of all that is shown */
    kind->started = false;
    kind->placed = stored->placed = true;
}

heed_status heed_session_serve_aging(heed_session *session, int64_t l, const heed_form_state *aging,
                                     heed_session_kind *kind, heed_pages_layer *stored)
{
    heed_session_layer *layer = &session->layer[l];
    heed_grade_types grade[1 + HEED_MOST_GRADES];
    if (!aging->form)
        return HEED_OK;
    const char *name = aging->form->name;
    bool merges = false;
    for (int64_t g = 0; layer->chain && g < session->model->config.kv_heads; g++)
        merges |= layer->chain[g].merges;
    if (layer->packed || merges)
        return heed_fail(HEED_UNSUPPORTED,
                         "cache=%s quantises whole pages of keys, so single keys of them cannot be %s", name,
                         merges ? "merged with others" : "turned to packed positions");
    const heed_storage *storage = aging->form->storage;
    layer->aging = *aging;
    layer->aging.sizes = (heed_sizes){.batch = 1,
                                      .heads = session->model->config.heads,
                                      .kv_heads = session->model->config.kv_heads,
                                      .dim = session->model->config.head_dim,
                                      .value_dim = session->model->config.head_dim};
    if (storage->window)
        want_queries(session, storage->window(aging), storage->weighs, layer, kind, stored);
    kind->grades = stored->grades = aging->form->storage->grades(aging, grade) - 1;
    memcpy(kind->grade, grade + 1, (size_t)kind->grades * sizeof *grade);
    memcpy(stored->grade, grade + 1, (size_t)kind->grades * sizeof *grade);
    const int64_t dim = session->model->config.head_dim;
    for (int n = 1; n <= kind->grades; n++) {
        if (grade[n].k == HEED_PACKED)
            stored->packed_keys[n - 1] =
                (storage->page_bytes(&layer->aging, n, false, HEED_PAGE, dim) + 7) / 8 * 8;
        if (grade[n].v == HEED_PACKED)
            stored->packed_values[n - 1] =
                (storage->page_bytes(&layer->aging, n, true, HEED_PAGE, dim) + 7) / 8 * 8;
    }
    return HEED_OK;
}

heed_status heed_session_check_aging(const heed_session *session, int64_t l)
{
    const heed_session_kind *kind = &session->kind[session->layer[l].kind];
    const heed_form *form = session->layer[l].aging.form;
    const int64_t dim = session->model->config.head_dim;
    float row[1] = {0.0f};
    if (!form || !form->storage->window)
        return HEED_OK;
    if (!kind->prepared)
        return heed_fail(
            HEED_UNSUPPORTED,
            "cache=%s looks at keys as they are compared, which `%s` makes anew at each execution",
            form->name, kind->spec);
    return heed_plan_prepare_queries(
        kind->rung[0],
        &(heed_new_keys){.pos = NULL, .k = row, .k_stride = dim, .out = row, .out_stride = dim});
}

/* A page on its way, for forms that pack it. */
typedef struct packing {
    const heed_form_state *form;
    const heed_page_state *page;
} packing;

static void pack(void *context, int grade, bool values, void *to)
{
    const packing *p = context;
    p->form->form->storage->pack(p->form, p->page, grade, values, to);
}

/* What a form sees of page p of kv head g. */
static heed_page_state see(const heed_session *session, int64_t l, const heed_piece *piece, int64_t g,
                           int64_t p, const heed_shown_queries *shown)
{
    const heed_config *c = &session->model->config;
    const heed_kept_keys *list = heed_pages_list(&session->pages, piece->sequence, l, g);
    const int64_t group = c->heads / c->kv_heads;
    heed_page_state page = {.layer = l,
                            .layers = c->layers,
                            .first = heed_key_place(list, p * HEED_PAGE),
                            .last = heed_key_place(list, (p + 1) * HEED_PAGE - 1),
                            .read = piece->first + piece->count,
                            .behind = list->count - (p + 1) * HEED_PAGE,
                            .goes_on = piece->prompt && !piece->ends,
                            .kv_head = (int)g,
                            .kv_heads = (int)c->kv_heads,
                            .group = (int)group,
                            .dim = c->head_dim,
                            .value_dim = c->head_dim,
                            .count = HEED_PAGE,
                            .index = p * HEED_PAGE,
                            .held = list->count,
                            .queries = shown->queries};
    if (shown->queries > 0) {
        page.query = shown->compared + g * group * shown->queries * c->head_dim;
        page.weight = shown->weight ? shown->weight + g * group * shown->queries * session->wants.most : NULL;
    }
    return page;
}

/* A page that is packed stays so; others are asked for their grade. */
static bool age_page(heed_session *session, int64_t l, const heed_piece *piece, int64_t g, int64_t p,
                     const heed_shown_queries *shown)
{
    const heed_form_state *form = &session->layer[l].aging;
    const heed_storage *storage = form->form->storage;
    const heed_kept_keys *list = heed_pages_list(&session->pages, piece->sequence, l, g);
    const int64_t numbers = HEED_PAGE * session->model->config.head_dim;
    const int now = heed_page_grade(list, p);
    heed_page_state page = see(session, l, piece, g, p, shown);
    if (storage->pack && now > 0)
        return false;
    if (storage->pack) {
        float *key = session->pages.room, *value = key + numbers;
        heed_pages_load_keys(&session->pages, l, list, p * HEED_PAGE, HEED_PAGE, key);
        heed_pages_load_values(&session->pages, l, list, p * HEED_PAGE, HEED_PAGE, value);
        page.key = key;
        page.value = value;
        page.work = value + numbers;
    }
    const int grade = storage->grade(form, &page);
    if (grade == now)
        return false;
    packing p_of = {form, &page};
    heed_pages_regrade(&session->pages, piece->sequence, l, g, p, grade, &(heed_page_packer){pack, &p_of});
    return true;
}

/* Whether a page was filled, or may have been: what a policy left has no fixed places; or is to be packed at
 * the end of a prompt. */
static bool fills(const heed_session *session, int64_t l, const heed_piece *piece)
{
    const heed_kept_keys *list = heed_pages_list(&session->pages, piece->sequence, l, 0);
    const int64_t before = list->count - piece->count;
    return list->place || before < 0 || before / HEED_PAGE < list->count / HEED_PAGE ||
           (piece->prompt && piece->ends && session->layer[l].aging.form->storage->pack);
}

/* Some page may be packed now. */
static bool may_pack(const heed_session *session, int64_t l, const heed_piece *piece)
{
    for (int64_t g = 0; g < session->model->config.kv_heads; g++) {
        const heed_kept_keys *list = heed_pages_list(&session->pages, piece->sequence, l, g);
        for (int64_t p = 0; p < list->count / HEED_PAGE; p++)
            if (heed_page_grade(list, p) == 0)
                return true;
    }
    return false;
}

heed_status heed_session_age(heed_session *session, int64_t l, const heed_piece *piece)
{
    heed_past *past = heed_past_of(session, piece->sequence, l);
    const heed_form_state *form = &session->layer[l].aging;
    heed_shown_queries shown = {.queries = 0};
    if (session->kind[session->layer[l].kind].grades == 0 || !fills(session, l, piece))
        return HEED_OK;
    if (session->held_young && piece->prompt && piece->ends)
        return HEED_OK;
    if (form->form->storage->pack && !may_pack(session, l, piece))
        return HEED_OK;
    if (form->form->storage->window)
        TRY(heed_session_show_queries(session, l, piece, form->form->storage->window(form),
                                      form->form->storage->weighs, &shown));
    bool changed = false;
    for (int64_t g = 0; g < session->model->config.kv_heads; g++) {
        const heed_kept_keys *list = heed_pages_list(&session->pages, piece->sequence, l, g);
        for (int64_t p = 0; p < list->count / HEED_PAGE; p++)
            changed |= age_page(session, l, piece, g, p, &shown);
    }
    if (changed)
        past->acted = piece->first + piece->count;
    return HEED_OK;
}
