/* Storage that changes with age: after a piece was attended to, full pages are asked for their grade. */
#include "model/session.h"

#include <string.h>

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
    layer->aging = *aging;
    kind->grades = stored->grades = aging->form->storage->grades(aging, grade) - 1;
    memcpy(kind->grade, grade + 1, (size_t)kind->grades * sizeof *grade);
    memcpy(stored->grade, grade + 1, (size_t)kind->grades * sizeof *grade);
    return HEED_OK;
}

static bool age_list(heed_session *session, int64_t l, const heed_piece *piece, int64_t g)
{
    const heed_form_state *form = &session->layer[l].aging;
    const heed_kept_keys *list = heed_pages_list(&session->pages, piece->sequence, l, g);
    bool changed = false;
    for (int64_t p = 0; p < list->count / HEED_PAGE; p++) {
        const heed_page_state page = {.layer = l,
                                      .layers = session->model->config.layers,
                                      .first = heed_key_place(list, p * HEED_PAGE),
                                      .last = heed_key_place(list, (p + 1) * HEED_PAGE - 1),
                                      .read = piece->first + piece->count,
                                      .behind = list->count - (p + 1) * HEED_PAGE};
        const int grade = form->form->storage->grade(form, &page);
        if (grade == heed_page_grade(list, p))
            continue;
        heed_pages_regrade(&session->pages, piece->sequence, l, g, p, grade);
        changed = true;
    }
    return changed;
}

/* Whether a page was filled, or may have been: what a policy left has no fixed places. */
static bool fills(const heed_session *session, int64_t l, const heed_piece *piece)
{
    const heed_kept_keys *list = heed_pages_list(&session->pages, piece->sequence, l, 0);
    const int64_t before = list->count - piece->count;
    return list->place || before < 0 || before / HEED_PAGE < list->count / HEED_PAGE;
}

void heed_session_age(heed_session *session, int64_t l, const heed_piece *piece)
{
    heed_past *past = heed_past_of(session, piece->sequence, l);
    if (session->kind[session->layer[l].kind].grades == 0 || !fills(session, l, piece))
        return;
    bool changed = false;
    for (int64_t g = 0; g < session->model->config.kv_heads; g++)
        changed |= age_list(session, l, piece, g);
    if (changed)
        past->acted = piece->first + piece->count;
}
