#include "cache/pages.h"
#include "base/arena.h"

#include <stdlib.h>
#include <sys/mman.h>

static size_t aligned(size_t bytes)
{
    return (bytes + HEED_ALIGNMENT - 1) / HEED_ALIGNMENT * HEED_ALIGNMENT;
}

static heed_status lay_out(heed_pages *pages, const heed_type *type)
{
    for (int64_t l = 0; l < pages->layers; l++) {
        heed_pages_layer *layer = &pages->layer[l];
        const int64_t row = heed_type_bytes(type[l], pages->dim);
        if (row < 1)
            return heed_fail(HEED_INVALID, "a cache cannot hold type %d", (int)type[l]);
        layer->type = type[l];
        layer->row = (size_t)row;
        layer->head = layer->row * HEED_PAGE;
        const size_t each = aligned(layer->head * (size_t)pages->heads);
        layer->key_at = pages->page_bytes;
        layer->value_at = layer->key_at + each;
        pages->page_bytes = layer->value_at + each;
    }
    if (__builtin_mul_overflow(pages->page_bytes, (size_t)pages->pages, &pages->bytes) ||
        pages->bytes > SIZE_MAX / 4)
        return heed_fail(HEED_NO_MEMORY, "no memory for a cache of %lld sequences of %lld tokens",
                         (long long)pages->sequences, (long long)pages->context);
    return HEED_OK;
}

heed_status heed_pages_create(heed_pages *pages, const heed_type *type, int64_t layers, int64_t heads,
                              int64_t dim, int64_t context, int64_t sequences)
{
    *pages = (heed_pages){
        .layers = layers, .heads = heads, .dim = dim, .context = context, .sequences = sequences};
    pages->pages_each = (context + HEED_PAGE - 1) / HEED_PAGE;
    if (__builtin_mul_overflow(pages->pages_each, sequences, &pages->pages) || pages->pages > INT32_MAX)
        return heed_fail(HEED_INVALID, "%lld sequences of %lld tokens are more than a cache can count",
                         (long long)sequences, (long long)context);
    pages->layer = heed_allocate((size_t)layers, sizeof *pages->layer);
    pages->table = heed_allocate((size_t)pages->pages, sizeof *pages->table);
    pages->length = heed_allocate((size_t)sequences, sizeof *pages->length);
    pages->spare = heed_allocate((size_t)pages->pages, sizeof *pages->spare);
    heed_status status = HEED_OK;
    if (!pages->layer || !pages->table || !pages->length || !pages->spare)
        status = heed_fail(HEED_NO_MEMORY, "no memory for the tables of a cache");
    if (!status)
        status = lay_out(pages, type);
    if (!status) {
        pages->memory = mmap(NULL, pages->bytes, PROT_READ | PROT_WRITE,
                             MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
        if (pages->memory == MAP_FAILED) {
            pages->memory = NULL;
            status = heed_fail(HEED_NO_MEMORY, "no memory for a cache of %zu bytes", pages->bytes);
        }
    }
    if (status) {
        heed_pages_free(pages);
        return status;
    }
#ifdef MADV_HUGEPAGE
    madvise(pages->memory, pages->bytes, MADV_HUGEPAGE);
#endif
    for (int64_t p = pages->pages - 1; p >= 0; p--) /* the first ones are given out first */
        pages->spare[pages->spares++] = (int32_t)p;
    return HEED_OK;
}

void heed_pages_free(heed_pages *pages)
{
    if (pages->memory)
        munmap(pages->memory, pages->bytes);
    free(pages->layer);
    free(pages->table);
    free(pages->length);
    free(pages->spare);
    *pages = (heed_pages){.layers = 0};
}

static int64_t pages_for(int64_t length)
{
    return (length + HEED_PAGE - 1) / HEED_PAGE;
}

void heed_pages_resize(heed_pages *pages, int64_t sequence, int64_t length)
{
    int32_t *own = pages->table + sequence * pages->pages_each;
    int64_t have = pages_for(pages->length[sequence]);
    for (; have < pages_for(length); have++)
        own[have] = pages->spare[--pages->spares];
    while (have > pages_for(length))
        pages->spare[pages->spares++] = own[--have];
    pages->length[sequence] = length;
}

static heed_tensor pool(const heed_pages *pages, const heed_pages_layer *layer, size_t at)
{
    return (heed_tensor){.data = pages->memory + at,
                         .type = layer->type,
                         .rank = 4,
                         .shape = {pages->pages, pages->heads, HEED_PAGE, pages->dim},
                         .stride = {(int64_t)pages->page_bytes, (int64_t)layer->head, (int64_t)layer->row,
                                    heed_type_bytes(layer->type, 1)}};
}

heed_tensor heed_pages_keys(const heed_pages *pages, int64_t layer)
{
    return pool(pages, &pages->layer[layer], pages->layer[layer].key_at);
}

heed_tensor heed_pages_values(const heed_pages *pages, int64_t layer)
{
    return pool(pages, &pages->layer[layer], pages->layer[layer].value_at);
}

static char *place(const heed_pages *pages, const heed_pages_layer *layer, size_t at, int64_t sequence,
                   int64_t head, int64_t position)
{
    const int32_t page = pages->table[sequence * pages->pages_each + position / HEED_PAGE];
    return pages->memory + (size_t)page * pages->page_bytes + at + (size_t)head * layer->head +
           (size_t)(position % HEED_PAGE) * layer->row;
}

char *heed_pages_key(const heed_pages *pages, int64_t layer, int64_t sequence, int64_t head, int64_t position)
{
    return place(pages, &pages->layer[layer], pages->layer[layer].key_at, sequence, head, position);
}

char *heed_pages_value(const heed_pages *pages, int64_t layer, int64_t sequence, int64_t head,
                       int64_t position)
{
    return place(pages, &pages->layer[layer], pages->layer[layer].value_at, sequence, head, position);
}

double heed_pages_token_bytes(const heed_pages *pages)
{
    return (double)pages->page_bytes / HEED_PAGE;
}
