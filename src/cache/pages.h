/* Keys and values of many sequences in pages, as attention plans read them.
 *
 * A page holds HEED_PAGE keys and values of all layers and kv heads; a sequence owns a list of pages, the
 * same for all layers. Memory is reserved for every sequence's whole context and taken from the system as
 * pages fill.
 */
#ifndef HEED_CACHE_PAGES_H
#define HEED_CACHE_PAGES_H

#include <heed/tensor.h>

enum { HEED_PAGE = 128 };

typedef struct heed_pages_layer {
    heed_type type;
    size_t key_at, value_at; /* bytes from the start of a page */
    size_t row, head;        /* bytes of one key of one head; of a page of one head */
} heed_pages_layer;

typedef struct heed_pages {
    int64_t layers, heads, dim, context, sequences;
    heed_pages_layer *layer;
    char *memory;
    size_t page_bytes, bytes;
    int64_t pages, pages_each; /* of all; a sequence's most */
    int32_t *table;            /* [sequences, pages_each] */
    int64_t *length;           /* [sequences] tokens */
    int32_t *spare;            /* pages that nobody owns */
    int64_t spares;
} heed_pages;

/* `type` [layers]: how each layer's keys and values are stored. */
heed_status heed_pages_create(heed_pages *pages, const heed_type *type, int64_t layers, int64_t heads,
                              int64_t dim, int64_t context, int64_t sequences);
void heed_pages_free(heed_pages *pages);

/* Makes a sequence longer or shorter; new places hold anything. */
void heed_pages_resize(heed_pages *pages, int64_t sequence, int64_t length);

/* The pools of a layer, [pages, heads, HEED_PAGE, dim], and the list of one or all sequences. */
heed_tensor heed_pages_keys(const heed_pages *pages, int64_t layer);
heed_tensor heed_pages_values(const heed_pages *pages, int64_t layer);

/* Where the key and the value of a head at a position are stored. */
char *heed_pages_key(const heed_pages *pages, int64_t layer, int64_t sequence, int64_t head,
                     int64_t position);
char *heed_pages_value(const heed_pages *pages, int64_t layer, int64_t sequence, int64_t head,
                       int64_t position);

double heed_pages_token_bytes(const heed_pages *pages);

#endif
