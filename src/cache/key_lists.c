/* What changes lists of keys: new ones at their ends, dropped ones, pages that several lists share. */
#include "base/try.h"
#include "cache/pages.h"

#include <string.h>

/* Bytes that go with one key beside its rows. */
static size_t side_bytes(const heed_pages_layer *layer)
{
    if (!layer->placed)
        return 0;
    return (size_t)(1 + layer->moved + layer->mass + layer->states) * sizeof(float);
}

static void set_count(heed_pages *pages, int64_t layer, heed_kept_keys *list, int64_t count)
{
    const size_t each = side_bytes(&pages->layer[layer]);
    pages->side_bytes += (size_t)count * each;
    pages->side_bytes -= (size_t)list->count * each;
    list->count = count;
    if (list->summed > count) /* a page's summary cannot let go of a key: it is made again */
        list->summed = count / HEED_PAGE * HEED_PAGE;
}

static heed_pool *pool_of(const heed_pages *pages, int64_t layer, int grade)
{
    return &pages->pool[pages->layer[layer].layout[grade].pool];
}

static int32_t number_of(int32_t entry)
{
    return entry & ((1 << HEED_GRADE_SHIFT) - 1);
}

static int32_t take_page(const heed_pages *pages, int64_t layer, int grade)
{
    return heed_pool_take(pool_of(pages, layer, grade)) | grade << HEED_GRADE_SHIFT;
}

static void release_page(const heed_pages *pages, int64_t layer, int32_t entry)
{
    heed_pool_release(pool_of(pages, layer, entry >> HEED_GRADE_SHIFT), number_of(entry));
}

/* Makes page `p` of a list its own. There is always a page for the copy: a pool has as many as all lists may
 * hold, and this one was counted for two of them. */
static void own_page(heed_pages *pages, int64_t layer, heed_kept_keys *list, int64_t p)
{
    const int grade = heed_page_grade(list, p);
    heed_pool *pool = pool_of(pages, layer, grade);
    const int32_t shared = list->page[p];
    if (pool->holders[number_of(shared)] == 1)
        return;
    list->page[p] = take_page(pages, layer, grade);
    const int32_t copy = number_of(list->page[p]);
    memcpy(heed_pool_page(pool, copy), heed_pool_page(pool, number_of(shared)), pool->page_bytes);
    if (pool->side)
        memcpy(heed_pool_side(pool, copy), heed_pool_side(pool, number_of(shared)), pool->side_bytes);
    release_page(pages, layer, shared);
}

void heed_pages_set_grade(heed_pages *pages, int64_t sequence, int64_t layer, int64_t head, int64_t page,
                          int grade)
{
    heed_kept_keys *list = heed_pages_list(pages, sequence, layer, head);
    release_page(pages, layer, list->page[page]);
    list->page[page] = take_page(pages, layer, grade);
}

heed_status heed_pages_append(heed_pages *pages, int64_t sequence, int64_t layer, int64_t head, int64_t place,
                              int64_t position, int64_t count)
{
    heed_kept_keys *list = heed_pages_list(pages, sequence, layer, head);
    const heed_pages_layer *l = &pages->layer[layer];
    heed_pool *pool = pool_of(pages, layer, 0);
    if (count > l->pages_each * HEED_PAGE - list->count)
        return heed_fail(HEED_INVALID, "%lld keys after %lld are more than the %lld that a layer may hold",
                         (long long)count, (long long)list->count, (long long)l->most);
    const int64_t held = heed_pages_for(list->count), wanted = heed_pages_for(list->count + count);
    TRY(heed_pool_promise(pool, wanted - held));
    if (list->count % HEED_PAGE && heed_page_grade(list, list->count / HEED_PAGE) > 0)
        heed_pages_regrade(pages, sequence, layer, head, list->count / HEED_PAGE, 0, NULL);
    if (list->count % HEED_PAGE)
        own_page(pages, layer, list, list->count / HEED_PAGE);
    if (pool->pager && wanted > held) /* those that the last keys filled, if as many came then */
        for (int64_t p = held - count / HEED_PAGE - 1; p < list->count / HEED_PAGE; p++)
            if (p >= 0)
                heed_pager_filled(pool->pager, list->page[p]);
    for (int64_t p = held; p < wanted; p++)
        list->page[p] = take_page(pages, layer, 0);
    if (!list->place && list->count == 0)
        list->start = place;
    for (int64_t i = list->count; list->place && i < list->count + count; i++) {
        list->position[i] = (int32_t)(position + i - list->count);
        list->place[i] = (int32_t)(place + i - list->count);
        if (list->mass)
            list->mass[i] = 1.0f;
    }
    if (list->state)
        memset(list->state + list->count * l->states, 0, (size_t)(count * l->states) * sizeof *list->state);
    set_count(pages, layer, list, list->count + count);
    const size_t bytes = heed_pages_bytes(pages);
    pages->peak_bytes = bytes > pages->peak_bytes ? bytes : pages->peak_bytes;
    return HEED_OK;
}

void heed_pages_truncate(heed_pages *pages, int64_t sequence, int64_t layer, int64_t head, int64_t count)
{
    heed_kept_keys *list = heed_pages_list(pages, sequence, layer, head);
    for (int64_t p = heed_pages_for(list->count); p > heed_pages_for(count); p--)
        release_page(pages, layer, list->page[p - 1]);
    heed_pool_promise(pool_of(pages, layer, 0),
                      heed_pages_for(count) - heed_pages_for(list->count)); /* fewer: cannot fail */
    set_count(pages, layer, list, count);
}

/* Takes pages from..to, all full, out of a list. */
static void take_out(heed_pages *pages, int64_t layer, heed_kept_keys *list, int64_t from, int64_t to)
{
    const int64_t all = heed_pages_for(list->count), states = pages->layer[layer].states;
    for (int64_t p = from; p < to; p++)
        release_page(pages, layer, list->page[p]);
    heed_pool_promise(pool_of(pages, layer, 0), from - to);
    memmove(list->page + from, list->page + to, (size_t)(all - to) * sizeof *list->page);
    const int64_t first = from * HEED_PAGE, next = to * HEED_PAGE;
    const size_t left = (size_t)(list->count - next);
    if (list->place)
        memmove(list->place + first, list->place + next, left * sizeof *list->place);
    else
        list->start += next - first;
    if (list->position != list->place)
        memmove(list->position + first, list->position + next, left * sizeof *list->position);
    if (list->mass)
        memmove(list->mass + first, list->mass + next, left * sizeof *list->mass);
    if (list->state)
        memmove(list->state + first * states, list->state + next * states,
                left * (size_t)states * sizeof *list->state);
    list->summed -= list->summed < next ? list->summed : next - first;
    set_count(pages, layer, list, list->count - (next - first));
}

int64_t heed_pages_drop(heed_pages *pages, int64_t sequence, int64_t layer, int64_t head, int64_t first,
                        int64_t before)
{
    heed_kept_keys *list = heed_pages_list(pages, sequence, layer, head);
    const int64_t full = list->count / HEED_PAGE;
    int64_t from = 0;
    if (list->place)
        while (from < full && list->position[from * HEED_PAGE] < first)
            from++;
    int64_t to = from;
    while (to < full && (list->place ? list->position[(to + 1) * HEED_PAGE - 1]
                                     : list->start + (to + 1) * HEED_PAGE - 1) < before)
        to++;
    if (to == from)
        return 0;
    const int64_t behind = heed_key_place(list, to * HEED_PAGE - 1) + 1;
    take_out(pages, layer, list, from, to);
    return behind;
}

/* What goes with key `from` besides its rows goes with key `to` before it. */
static void move_side(const heed_pages_layer *l, heed_kept_keys *list, int64_t to, int64_t from)
{
    list->place[to] = list->place[from];
    list->position[to] = list->position[from];
    if (list->mass)
        list->mass[to] = list->mass[from];
    if (list->state)
        memcpy(list->state + to * l->states, list->state + from * l->states,
               (size_t)l->states * sizeof *list->state);
}

static void move_rows(const heed_pages *pages, int64_t layer, heed_kept_keys *list, int64_t to, int64_t from)
{
    const heed_page_layout *l = &pages->layer[layer].layout[0];
    memcpy(heed_pages_key(pages, layer, list, to), heed_pages_key(pages, layer, list, from), l->key_row);
    memcpy(heed_pages_value(pages, layer, list, to), heed_pages_value(pages, layer, list, from),
           l->value_row);
}

/* The pages from that of `first` on as pages of grade 0, made from the floats of what each holds: kept keys
 * lie in the page where they go or behind it, so a page is free when its place is filled. Returns how many
 * keys there are. */
static int64_t rebuild(heed_pages *pages, int64_t sequence, int64_t layer, int64_t head, int64_t first,
                       const uint8_t *keep)
{
    heed_kept_keys *list = heed_pages_list(pages, sequence, layer, head);
    const heed_page_layout *l = &pages->layer[layer].layout[0];
    float *key = pages->room, *value = key + HEED_PAGE * pages->dim;
    int64_t to = first / HEED_PAGE * HEED_PAGE, from = to;
    while (from < list->count) {
        const int64_t start = to;
        for (; from < list->count && to < start + HEED_PAGE; from++) {
            if (!keep[from])
                continue;
            heed_pages_load_keys(pages, layer, list, from, 1, key + (to - start) * pages->dim);
            heed_pages_load_values(pages, layer, list, from, 1, value + (to - start) * pages->value_dim);
            move_side(&pages->layer[layer], list, to++, from);
        }
        if (to == start)
            break;
        heed_pages_set_grade(pages, sequence, layer, head, start / HEED_PAGE, 0);
        for (int64_t i = start; i < to; i++) {
            heed_store(l->key_type, key + (i - start) * pages->dim, heed_pages_key(pages, layer, list, i),
                       pages->dim);
            heed_store(l->value_type, value + (i - start) * pages->value_dim,
                       heed_pages_value(pages, layer, list, i), pages->value_dim);
        }
    }
    return to;
}

int64_t heed_pages_keep(heed_pages *pages, int64_t sequence, int64_t layer, int64_t head, const uint8_t *keep)
{
    heed_kept_keys *list = heed_pages_list(pages, sequence, layer, head);
    int64_t first = 0;
    while (first < list->count && keep[first])
        first++;
    if (first == list->count)
        return first;
    if (list->summed > first)
        list->summed = first / HEED_PAGE * HEED_PAGE;
    if (pages->layer[layer].grades > 0) {
        heed_pages_truncate(pages, sequence, layer, head, rebuild(pages, sequence, layer, head, first, keep));
        return first;
    }
    heed_pages_own(pages, sequence, layer, head, first);
    int64_t to = first;
    for (int64_t i = first; i < list->count; i++)
        if (keep[i]) {
            move_rows(pages, layer, list, to, i);
            move_side(&pages->layer[layer], list, to++, i);
        }
    heed_pages_truncate(pages, sequence, layer, head, to);
    return first;
}

void heed_pages_own(heed_pages *pages, int64_t sequence, int64_t layer, int64_t head, int64_t first)
{
    heed_kept_keys *list = heed_pages_list(pages, sequence, layer, head);
    for (int64_t p = first / HEED_PAGE; p < heed_pages_for(list->count); p++)
        own_page(pages, layer, list, p);
}

void heed_pages_clear(heed_pages *pages, int64_t sequence)
{
    for (int64_t l = 0; l < pages->layers; l++)
        for (int64_t g = 0; g < pages->heads; g++)
            heed_pages_truncate(pages, sequence, l, g, 0);
}

static heed_status share_list(heed_pages *pages, int64_t layer, const heed_kept_keys *from,
                              heed_kept_keys *to)
{
    TRY(heed_pool_promise(pool_of(pages, layer, 0), heed_pages_for(from->count)));
    const size_t count = (size_t)from->count, states = (size_t)pages->layer[layer].states;
    for (int64_t p = 0; p < heed_pages_for(from->count); p++) {
        heed_pool_hold(pool_of(pages, layer, heed_page_grade(from, p)), number_of(from->page[p]));
        to->page[p] = from->page[p];
    }
    to->start = from->start;
    to->summed = from->summed;
    if (from->place)
        memcpy(to->place, from->place, count * sizeof *to->place);
    if (from->position != from->place)
        memcpy(to->position, from->position, count * sizeof *to->position);
    if (from->mass)
        memcpy(to->mass, from->mass, count * sizeof *to->mass);
    if (from->state)
        memcpy(to->state, from->state, count * states * sizeof *to->state);
    set_count(pages, layer, to, from->count);
    return HEED_OK;
}

heed_status heed_pages_share(heed_pages *pages, int64_t from, int64_t to)
{
    heed_status status = HEED_OK;
    if (from == to)
        return HEED_OK;
    heed_pages_clear(pages, to);
    for (int64_t l = 0; l < pages->layers && !status; l++)
        for (int64_t g = 0; g < pages->heads && !status; g++)
            status =
                share_list(pages, l, heed_pages_list(pages, from, l, g), heed_pages_list(pages, to, l, g));
    if (status)
        heed_pages_clear(pages, to);
    return status;
}

heed_status heed_pages_share_list(heed_pages *pages, int64_t from, int64_t to, int64_t layer, int64_t head)
{
    if (from == to)
        return HEED_OK;
    heed_pages_truncate(pages, to, layer, head, 0);
    return share_list(pages, layer, heed_pages_list(pages, from, layer, head),
                      heed_pages_list(pages, to, layer, head));
}

heed_status heed_pages_join(heed_pages *pages, int64_t from_sequence, int64_t to_sequence, int64_t layer,
                            int64_t head, int64_t place)
{
    const heed_kept_keys *from = heed_pages_list(pages, from_sequence, layer, head);
    heed_kept_keys *to = heed_pages_list(pages, to_sequence, layer, head);
    const heed_pages_layer *l = &pages->layer[layer];
    heed_pool *pool = pool_of(pages, layer, 0);
    const int64_t held = heed_pages_for(to->count), more = heed_pages_for(from->count);
    if (more > l->pages_each - held)
        return heed_fail(HEED_INVALID, "%lld keys after %lld are more than the %lld that a layer may hold",
                         (long long)from->count, (long long)to->count, (long long)l->most);
    TRY(heed_pool_promise(pool, more));
    for (int64_t p = 0; p < more; p++) {
        heed_pool_hold(pool, from->page[p]);
        to->page[held + p] = from->page[p];
    }
    to->start = to->count ? to->start : place;
    if (to->summed == to->count)
        to->summed += from->summed;
    set_count(pages, layer, to, to->count + from->count);
    return HEED_OK;
}
