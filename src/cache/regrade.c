/* Pages that are stored in several ways: reading them as floats, and storing one as another grade does. */
#include "cache/pages.h"
#include "tensor/channel.h"
#include "tensor/packed.h"

#include <string.h>

static void load_rows(heed_type type, const char *from, size_t row, int64_t count, float *to, int64_t dim)
{
    for (int64_t i = 0; i < count; i++)
        heed_load(type, from + (size_t)i * row, to + i * dim, dim);
}

/* Keys of one of a list's pages. */
static void load_page_keys(const heed_pages *pages, int64_t layer, const heed_kept_keys *list, int64_t first,
                           int64_t count, float *to)
{
    const heed_page_layout *l = &pages->layer[layer].layout[heed_page_grade(list, first / HEED_PAGE)];
    size_t bytes;
    if (heed_type_by_channel(l->key_type))
        heed_channel_load(l->key_type,
                          heed_pages_stored(pages, layer, list, first / HEED_PAGE, false, &bytes),
                          first % HEED_PAGE, count, pages->dim, to, pages->dim);
    else if (l->key_type == HEED_PACKED)
        heed_packed_load(heed_pages_stored(pages, layer, list, first / HEED_PAGE, false, &bytes),
                         first % HEED_PAGE, count, pages->dim, to, pages->dim);
    else
        load_rows(l->key_type, heed_pages_key(pages, layer, list, first), l->key_row, count, to, pages->dim);
}

static void load_page_values(const heed_pages *pages, int64_t layer, const heed_kept_keys *list,
                             int64_t first, int64_t count, float *to)
{
    const heed_page_layout *l = &pages->layer[layer].layout[heed_page_grade(list, first / HEED_PAGE)];
    size_t bytes;
    if (l->value_type == HEED_PACKED)
        heed_packed_load(heed_pages_stored(pages, layer, list, first / HEED_PAGE, true, &bytes),
                         first % HEED_PAGE, count, pages->value_dim, to, pages->value_dim);
    else
        load_rows(l->value_type, heed_pages_value(pages, layer, list, first), l->value_row, count, to,
                  pages->value_dim);
}

static int64_t within_page(int64_t first, int64_t count)
{
    const int64_t room = HEED_PAGE - first % HEED_PAGE;
    return count < room ? count : room;
}

void heed_pages_load_keys(const heed_pages *pages, int64_t layer, const heed_kept_keys *list, int64_t first,
                          int64_t count, float *to)
{
    for (int64_t i = 0, n; i < count; i += n) {
        n = within_page(first + i, count - i);
        load_page_keys(pages, layer, list, first + i, n, to + i * pages->dim);
    }
}

void heed_pages_load_values(const heed_pages *pages, int64_t layer, const heed_kept_keys *list, int64_t first,
                            int64_t count, float *to)
{
    for (int64_t i = 0, n; i < count; i += n) {
        n = within_page(first + i, count - i);
        load_page_values(pages, layer, list, first + i, n, to + i * pages->value_dim);
    }
}

static void store_rows(heed_type type, const float *from, int64_t dim, int64_t count, char *to, size_t row)
{
    for (int64_t i = 0; i < count; i++)
        heed_store(type, from + i * dim, to + (size_t)i * row, dim);
}

void heed_pages_regrade(heed_pages *pages, int64_t sequence, int64_t layer, int64_t head, int64_t page,
                        int grade, const heed_page_packer *packer)
{
    heed_kept_keys *list = heed_pages_list(pages, sequence, layer, head);
    const heed_pages_layer *stored = &pages->layer[layer];
    const int64_t first = page * HEED_PAGE, count = within_page(first, list->count - first);
    const size_t summary = (size_t)stored->summary_floats * sizeof(float);
    float *key = pages->room, *value = key + HEED_PAGE * pages->dim;
    const int32_t before = list->page[page];
    heed_pages_load_keys(pages, layer, list, first, count, key);
    heed_pages_load_values(pages, layer, list, first, count, value);
    heed_pool *pool = &pages->pool[stored->layout[before >> HEED_GRADE_SHIFT].pool];
    const int32_t number = before & ((1 << HEED_GRADE_SHIFT) - 1);
    heed_pool_hold(pool, number); /* its summary is still to be copied */
    heed_pages_set_grade(pages, sequence, layer, head, page, grade);
    if (summary > 0)
        memcpy(heed_pages_summary(pages, layer, list, page), heed_pool_side(pool, number), summary);
    heed_pool_release(pool, number);
    const heed_page_layout *l = &stored->layout[grade];
    size_t bytes;
    char *keys = heed_pages_stored(pages, layer, list, page, false, &bytes);
    if (heed_type_by_channel(l->key_type))
        heed_channel_store(l->key_type, key, pages->dim, HEED_PAGE, pages->dim, keys);
    else if (l->key_type == HEED_PACKED)
        packer->pack(packer->context, grade, false, memset(keys, 0, bytes));
    else
        store_rows(l->key_type, key, pages->dim, count, keys, l->key_row);
    char *values = heed_pages_stored(pages, layer, list, page, true, &bytes);
    if (l->value_type == HEED_PACKED)
        packer->pack(packer->context, grade, true, memset(values, 0, bytes));
    else
        store_rows(l->value_type, value, pages->value_dim, count, values, l->value_row);
}
