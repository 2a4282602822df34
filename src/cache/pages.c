#include "cache/pages.h"
#include "base/arena.h"
#include "base/try.h"
#include "tensor/channel.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

static size_t aligned(size_t bytes)
{
    return (bytes + HEED_ALIGNMENT - 1) / HEED_ALIGNMENT * HEED_ALIGNMENT;
}

static heed_status lay_out(const heed_pages *pages, const heed_pages_layer *layer, int grade,
                           heed_page_layout *to)
{
    to->key_type = grade ? layer->grade[grade - 1].k : layer->key_type;
    to->value_type = grade ? layer->grade[grade - 1].v : layer->value_type;
    const bool by_channel = heed_type_by_channel(to->key_type);
    const int64_t key = heed_type_bytes(to->key_type, pages->dim),
                  value = heed_type_bytes(to->value_type, pages->value_dim);
    const bool packed_keys = to->key_type == HEED_PACKED, packed_values = to->value_type == HEED_PACKED;
    if (key < 1 || value < 1 || ((by_channel || packed_keys || packed_values) && grade == 0))
        return heed_fail(HEED_INVALID, "a cache cannot hold type %d",
                         (int)(value < 1 ? to->value_type : to->key_type));
    to->key_row = (size_t)key;
    to->value_row = (size_t)value;
    to->key_bytes = by_channel    ? (size_t)heed_channel_bytes(to->key_type, HEED_PAGE, pages->dim)
                    : packed_keys ? layer->packed_keys[grade - 1]
                                  : to->key_row * HEED_PAGE;
    to->value_bytes = packed_values ? layer->packed_values[grade - 1] : to->value_row * HEED_PAGE;
    to->value_at = aligned(to->key_bytes);
    to->page_bytes = to->value_at + aligned(to->value_bytes);
    if (layer->offloaded) { /* whole pages of the system's */
        const size_t unit = (size_t)sysconf(_SC_PAGESIZE);
        to->page_bytes = (to->page_bytes + unit - 1) / unit * unit;
    }
    return HEED_OK;
}

static heed_status lay_out_all(const heed_pages *pages, heed_pages_layer *layer)
{
    layer->pages_each = heed_pages_for(layer->most);
    layer->side_bytes = aligned((size_t)layer->summary_floats * sizeof(float));
    if (layer->grades < 0 || layer->grades > HEED_MOST_GRADES)
        return heed_fail(HEED_INVALID, "a layer of a cache has %d grades of pages more: 0 to %d",
                         layer->grades, HEED_MOST_GRADES);
    if (layer->grades > 0 && layer->offloaded)
        return heed_fail(
            HEED_UNSUPPORTED,
            "pages that are stored otherwise as they age stay in memory: they cannot be offloaded");
    for (int g = 0; g <= layer->grades; g++)
        TRY(lay_out(pages, layer, g, &layer->layout[g]));
    return HEED_OK;
}

/* What is known of a pool before it is made. */
typedef struct pool_plan {
    size_t page_bytes, side_bytes;
    bool offloaded;
    int64_t pages, each; /* of all lists; most of one layer and sequence */
} pool_plan;

/* The pool of a layer's pages of one grade: those that are alike share it. */
static heed_status plan_pool(heed_pages *pages, const heed_pages_layer *layer, heed_page_layout *layout,
                             pool_plan *plan)
{
    const int64_t most = (1 << HEED_GRADE_SHIFT) - 2; /* an entry of a page table has room for so many */
    int p = 0;
    while (p < pages->pools &&
           (plan[p].page_bytes != layout->page_bytes || plan[p].side_bytes != layer->side_bytes ||
            plan[p].offloaded != layer->offloaded))
        p++;
    layout->pool = p;
    if (p == pages->pools)
        plan[pages->pools++] = (pool_plan){.page_bytes = layout->page_bytes,
                                           .side_bytes = layer->side_bytes,
                                           .offloaded = layer->offloaded,
                                           .pages = pages->room != NULL}; /* one on its way */
    int64_t of_layer;
    if (__builtin_mul_overflow(layer->pages_each, pages->heads * pages->sequences, &of_layer) ||
        __builtin_add_overflow(plan[p].pages, of_layer, &plan[p].pages) || plan[p].pages > most)
        return heed_fail(HEED_INVALID, "%lld sequences of %lld keys are more than a cache counts",
                         (long long)pages->sequences, (long long)layer->most);
    return HEED_OK;
}

static heed_status plan_pools(heed_pages *pages, pool_plan *plan)
{
    for (int64_t l = 0; l < pages->layers; l++)
        for (int g = 0; g <= pages->layer[l].grades; g++)
            TRY(plan_pool(pages, &pages->layer[l], &pages->layer[l].layout[g], plan));
    return HEED_OK;
}

/* Pages that every offloaded pool may have in memory: what it needs, and of what is left then a share by its
 * size. */
static heed_status share_out(const heed_pages *pages, const heed_pages_shape *shape, const pool_plan *plan,
                             heed_pool_offload *offload)
{
    double fixed = 0.0, away = 0.0, least = 0.0;
    const int64_t recent = shape->threads * (heed_pages_for(shape->at_once) + 1);
    for (int p = 0; p < pages->pools; p++) {
        const double page = (double)plan[p].page_bytes;
        *(plan[p].offloaded ? &away : &fixed) += (double)plan[p].pages * page;
        least += plan[p].offloaded ? (double)heed_pager_least(recent) * page : 0.0;
    }
    const double rest = (double)shape->resident - fixed - least;
    for (int p = 0; p < pages->pools && rest >= 0.0; p++) {
        if (!plan[p].offloaded)
            continue;
        const double most = (double)heed_pager_least(recent) + rest * (double)plan[p].pages / away;
        offload[p] = (heed_pool_offload){.folder = shape->folder,
                                         .most = most < (double)plan[p].pages ? (int64_t)most : plan[p].pages,
                                         .recent = recent};
    }
    if (rest < 0.0)
        return heed_fail(
            HEED_INVALID,
            "a cache of %.2f MB in memory: layers that keep a bounded number of keys take %.2f MB, and "
            "reading the others %.2f MB, so it must be at least %.2f MB",
            (double)shape->resident * 1e-6, fixed * 1e-6, least * 1e-6, ceil((fixed + least) * 1e-4) * 1e-2);
    return HEED_OK;
}

static int64_t most_pools(const heed_pages *pages)
{
    int64_t pools = 0;
    for (int64_t l = 0; l < pages->layers; l++)
        pools += 1 + pages->layer[l].grades;
    return pools;
}

static heed_status make_pools(heed_pages *pages, const heed_pages_shape *shape)
{
    const size_t most = (size_t)most_pools(pages);
    pool_plan *plan = heed_allocate(most, sizeof *plan);
    heed_pool_offload *offload = heed_allocate(most, sizeof *offload);
    heed_status status =
        plan && offload ? HEED_OK : heed_fail(HEED_NO_MEMORY, "no memory for the tables of a cache");
    if (!status)
        status = plan_pools(pages, plan);
    const int pools = pages->pools;
    if (!status && shape->folder)
        status = share_out(pages, shape, plan, offload);
    for (pages->pools = 0; pages->pools < pools && !status;) {
        const pool_plan *one = &plan[pages->pools];
        status = heed_pool_create(&pages->pool[pages->pools], one->page_bytes, one->side_bytes, one->pages,
                                  one->offloaded ? &offload[pages->pools] : NULL);
        pages->pools += status == HEED_OK;
    }
    free(plan);
    free(offload);
    return status;
}

static void take_list(heed_arena *arena, const heed_pages_layer *layer, heed_kept_keys *list)
{
    const size_t most = (size_t)layer->pages_each * HEED_PAGE;
    list->page = heed_arena_take(arena, (size_t)layer->pages_each, sizeof *list->page);
    if (!layer->placed)
        return;
    list->place = heed_arena_take(arena, most, sizeof *list->place);
    list->position = layer->moved ? heed_arena_take(arena, most, sizeof *list->position) : list->place;
    if (layer->mass)
        list->mass = heed_arena_take(arena, most, sizeof *list->mass);
    if (layer->states)
        list->state = heed_arena_take(arena, most, (size_t)layer->states * sizeof *list->state);
}

/* A layer's lists of one sequence lie one after the other, so that they are one tensor to a plan. */
static void take_lists(const heed_pages *pages, heed_arena *arena)
{
    for (int64_t i = 0; i < pages->sequences * pages->layers; i++) {
        const heed_pages_layer *layer = &pages->layer[i % pages->layers];
        heed_kept_keys *list = &pages->list[i * pages->heads];
        for (int64_t g = 0; g < pages->heads; g++)
            take_list(arena, layer, &list[g]);
    }
}

static heed_status make_lists(heed_pages *pages)
{
    heed_arena arena = {0};
    take_lists(pages, &arena);
    if (!arena.overflow) {
        pages->table_bytes = arena.used;
        pages->tables = mmap(NULL, arena.used, PROT_READ | PROT_WRITE,
                             MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
        pages->tables = pages->tables == MAP_FAILED ? NULL : pages->tables;
    }
    if (!pages->tables)
        return heed_fail(HEED_NO_MEMORY, "no memory for the lists of a cache: %zu bytes", arena.used);
    arena = (heed_arena){.base = pages->tables};
    take_lists(pages, &arena);
    return HEED_OK;
}

/* Room for pools, and for a page on its way from one grade into another. */
static heed_status take_tables(heed_pages *pages)
{
    const int64_t dim = pages->dim > pages->value_dim ? pages->dim : pages->value_dim;
    const bool graded = most_pools(pages) > pages->layers;
    pages->pool = heed_allocate((size_t)most_pools(pages), sizeof *pages->pool);
    if (graded)
        pages->room = heed_allocate(4 * HEED_PAGE, (size_t)dim * sizeof *pages->room);
    if (!pages->pool || (graded && !pages->room))
        return heed_fail(HEED_NO_MEMORY, "no memory for the tables of a cache");
    return HEED_OK;
}

heed_status heed_pages_create(heed_pages *pages, const heed_pages_shape *shape, const heed_pages_layer *layer)
{
    *pages = (heed_pages){.layers = shape->layers,
                          .heads = shape->heads,
                          .dim = shape->dim,
                          .value_dim = shape->value_dim,
                          .sequences = shape->sequences};
    const size_t layers = (size_t)shape->layers, each = layers * (size_t)shape->sequences;
    pages->layer = heed_allocate(layers, sizeof *pages->layer);
    pages->list = heed_allocate(each, (size_t)shape->heads * sizeof *pages->list);
    heed_status status = HEED_OK;
    if (!pages->layer || !pages->list)
        status = heed_fail(HEED_NO_MEMORY, "no memory for the tables of a cache");
    for (int64_t l = 0; l < shape->layers && !status; l++) {
        pages->layer[l] = layer[l];
        status = lay_out_all(pages, &pages->layer[l]);
    }
    status = status ? status : take_tables(pages);
    status = status ? status : make_pools(pages, shape);
    status = status ? status : make_lists(pages);
    if (status)
        heed_pages_free(pages);
    return status;
}

void heed_pages_free(heed_pages *pages)
{
    for (int p = 0; p < pages->pools; p++)
        heed_pool_free(&pages->pool[p]);
    if (pages->tables)
        munmap(pages->tables, pages->table_bytes);
    free(pages->layer);
    free(pages->pool);
    free(pages->list);
    free(pages->room);
    *pages = (heed_pages){.layers = 0};
}

static heed_tensor view(const heed_pages *pages, const heed_page_layout *layout, heed_type type, size_t at,
                        size_t row, int64_t dim)
{
    const heed_pool *pool = &pages->pool[layout->pool];
    return (heed_tensor){.data = pool->memory + at,
                         .type = type,
                         .rank = 4,
                         .shape = {pool->pages, 1, HEED_PAGE, dim},
                         .stride = {(int64_t)pool->page_bytes, (int64_t)(row * HEED_PAGE), (int64_t)row,
                                    heed_type_bytes(type, 1)}};
}

heed_tensor heed_pages_keys(const heed_pages *pages, int64_t layer, int grade)
{
    const heed_page_layout *l = &pages->layer[layer].layout[grade];
    return view(pages, l, l->key_type, 0, l->key_row, pages->dim);
}

heed_tensor heed_pages_values(const heed_pages *pages, int64_t layer, int grade)
{
    const heed_page_layout *l = &pages->layer[layer].layout[grade];
    return view(pages, l, l->value_type, l->value_at, l->value_row, pages->value_dim);
}

heed_tensor heed_pages_summaries(const heed_pages *pages, int64_t layer, int grade)
{
    const heed_page_layout *layout = &pages->layer[layer].layout[grade];
    const heed_pool *pool = &pages->pool[layout->pool];
    const int64_t floats = pages->layer[layer].summary_floats, size = sizeof(float);
    return (heed_tensor){.data = pool->side,
                         .type = HEED_F32,
                         .rank = 3,
                         .shape = {pool->pages, 1, floats},
                         .stride = {(int64_t)pool->side_bytes, floats * size, size}};
}

/* A page of a list, and how it lies. */
static char *page_of(const heed_pages *pages, int64_t layer, const heed_kept_keys *list, int64_t page,
                     const heed_page_layout **layout)
{
    *layout = &pages->layer[layer].layout[heed_page_grade(list, page)];
    return heed_pool_page(&pages->pool[(*layout)->pool], list->page[page] & ((1 << HEED_GRADE_SHIFT) - 1));
}

char *heed_pages_key(const heed_pages *pages, int64_t layer, const heed_kept_keys *list, int64_t i)
{
    const heed_page_layout *l;
    char *page = page_of(pages, layer, list, i / HEED_PAGE, &l);
    return page + (size_t)(i % HEED_PAGE) * l->key_row;
}

char *heed_pages_value(const heed_pages *pages, int64_t layer, const heed_kept_keys *list, int64_t i)
{
    const heed_page_layout *l;
    char *page = page_of(pages, layer, list, i / HEED_PAGE, &l);
    return page + l->value_at + (size_t)(i % HEED_PAGE) * l->value_row;
}

float *heed_pages_summary(const heed_pages *pages, int64_t layer, const heed_kept_keys *list, int64_t page)
{
    const heed_page_layout *l = &pages->layer[layer].layout[heed_page_grade(list, page)];
    return (float *)(void *)heed_pool_side(&pages->pool[l->pool],
                                           list->page[page] & ((1 << HEED_GRADE_SHIFT) - 1));
}

size_t heed_page_bytes(const heed_page_layout *layout, int64_t keys, bool values)
{
    if (values)
        return layout->value_type == HEED_PACKED ? layout->value_bytes : (size_t)keys * layout->value_row;
    return heed_type_by_channel(layout->key_type) || layout->key_type == HEED_PACKED
               ? layout->key_bytes
               : (size_t)keys * layout->key_row;
}

char *heed_pages_stored(const heed_pages *pages, int64_t layer, const heed_kept_keys *list, int64_t page,
                        bool values, size_t *bytes)
{
    const heed_page_layout *l;
    char *data = page_of(pages, layer, list, page, &l);
    const int64_t left = list->count - page * HEED_PAGE;
    *bytes = heed_page_bytes(l, left < HEED_PAGE ? left : HEED_PAGE, values);
    return values ? data + l->value_at : data;
}

double heed_pages_token_bytes(const heed_pages *pages)
{
    double bytes = 0.0;
    for (int64_t l = 0; l < pages->layers; l++) {
        const heed_page_layout *last = &pages->layer[l].layout[pages->layer[l].grades];
        if (!pages->layer[l].empty)
            bytes += (double)pages->heads * (double)(last->key_bytes + last->value_bytes) / HEED_PAGE;
    }
    return bytes;
}

size_t heed_pages_bytes(const heed_pages *pages)
{
    size_t bytes = pages->side_bytes;
    for (int p = 0; p < pages->pools; p++)
        bytes += (size_t)pages->pool[p].used * (pages->pool[p].page_bytes + pages->pool[p].side_bytes);
    return bytes;
}

size_t heed_pages_reserved(const heed_pages *pages)
{
    size_t bytes = pages->table_bytes;
    for (int p = 0; p < pages->pools; p++)
        bytes += pages->pool[p].bytes + (size_t)pages->pool[p].pages * pages->pool[p].side_bytes;
    return bytes;
}

/* Pages that were given up may still be in memory, so this is a lower bound. */
size_t heed_pages_away(const heed_pages *pages)
{
    size_t bytes = 0;
    for (int p = 0; p < pages->pools; p++) {
        const heed_pool *pool = &pages->pool[p];
        if (pool->pager && pool->used > pool->pager->resident)
            bytes += (size_t)(pool->used - pool->pager->resident) * pool->page_bytes;
    }
    return bytes;
}

size_t heed_pages_fetched(const heed_pages *pages)
{
    size_t bytes = 0;
    for (int p = 0; p < pages->pools; p++)
        if (pages->pool[p].pager)
            bytes += pages->pool[p].pager->fetched * pages->pool[p].page_bytes;
    return bytes;
}

void heed_pages_touch(const heed_pages *pages, int64_t layer, const heed_kept_keys *list, int64_t first,
                      int64_t count)
{
    const heed_pool *pool = &pages->pool[pages->layer[layer].layout[0].pool];
    for (int64_t p = first / HEED_PAGE; pool->pager && p < heed_pages_for(first + count); p++)
        heed_pager_touch(pool->pager, list->page[p]);
}
