/* Keys and values of many sequences in pages, as attention plans read them.
 *
 * A page holds HEED_PAGE keys and values of one kv head of one layer. What a kv head of a layer holds of a
 * sequence is a list of pages with a count of its own; pages may be shared by several lists and are copied
 * before one of them writes. Memory is reserved for the most that every list may hold and taken from the
 * system as pages fill. The store knows no policy: it drops and moves what it is told to.
 */
#ifndef HEED_CACHE_PAGES_H
#define HEED_CACHE_PAGES_H

#include "cache/pool.h"
#include <heed/attend.h>

enum { HEED_PAGE = 128 };

/* How the keys and values of a page lie. Keys of a full page may be quantised by channel; such a page has no
 * rows of its own (key_row is that of its levels). */
typedef struct heed_page_layout {
    heed_type key_type, value_type;
    size_t key_row, value_row; /* bytes of one key, of one value */
    size_t key_bytes;          /* of a full page's keys, */
    size_t value_bytes;        /* and of its values */
    size_t value_at;           /* bytes from the start of a page */
    size_t page_bytes;
    int pool;
} heed_page_layout;

/* How a layer's keys and values are kept. New keys go into pages of grade 0; full pages may become pages of
 * another grade, stored otherwise (heed_pages_regrade). */
typedef struct heed_pages_layer {
    heed_type key_type, value_type;
    int64_t most;           /* keys that one list may hold */
    bool empty;             /* nothing will ever be kept */
    bool placed;            /* every key's place is kept; else they follow one another from `start` */
    bool moved;             /* positions differ from places in the text; only with `placed` */
    bool mass;              /* how many keys each stands for is kept; only with `placed` */
    int64_t states;         /* floats that go with each key; only with `placed` */
    int64_t summary_floats; /* that go with each page, and stay in memory */
    bool offloaded;         /* pages lie in the file that the shape names; only without grades */
    int grades;             /* beside grade 0 */
    heed_grade_types grade[HEED_MOST_GRADES];
    size_t packed_keys[HEED_MOST_GRADES]; /* bytes of a page's packed keys; */
    size_t packed_values[HEED_MOST_GRADES];

    /* filled by heed_pages_create */
    heed_page_layout layout[1 + HEED_MOST_GRADES];
    size_t side_bytes;  /* of a page's summary */
    int64_t pages_each; /* most pages of a list */
} heed_pages_layer;

/* What a kv head of a layer holds of a sequence. */
typedef struct heed_kept_keys {
    int64_t count;             /* keys held; */
    int64_t summed;            /* the first of them that the summaries of their pages have taken in */
    int64_t start;             /* place in the text of the first of them, where places are not kept */
    int32_t *page;             /* [pages_each] grade << HEED_GRADE_SHIFT | number in that grade's pool */
    int32_t *place, *position; /* [most] in the text, rising; as they are compared: the same memory unless
                                  `moved`; NULL unless `placed` */
    float *mass, *state;       /* [most], [most][states]; NULL where they are not kept */
} heed_kept_keys;

typedef struct heed_pages {
    int64_t layers, heads, dim, value_dim, sequences;
    heed_pages_layer *layer; /* [layers] */
    heed_pool *pool;
    int pools;
    heed_kept_keys *list; /* [sequences][layers][heads] */
    char *tables;         /* memory of the lists */
    size_t table_bytes;
    float *room; /* [4][HEED_PAGE][dim or value_dim] a page on its way into another grade, or NULL */
    size_t side_bytes, peak_bytes; /* of places, masses and states in use; of everything, at most so far */
} heed_pages;

typedef struct heed_pages_shape {
    int64_t layers, heads, dim, value_dim, sequences;
    /* where layers are offloaded: */
    const char *folder; /* for the file; must outlive the pages */
    size_t resident;    /* most bytes of pages, of all layers, in memory */
    int threads;        /* that read at once, */
    int64_t at_once;    /* and keys that each has at hand */
} heed_pages_shape;

/* `layer` [layers] says how each is kept; it is copied. Fails too where the file cannot be made, or where
 * what is not offloaded and what is read at once take more than `resident`. */
heed_status heed_pages_create(heed_pages *pages, const heed_pages_shape *shape,
                              const heed_pages_layer *layer);
void heed_pages_free(heed_pages *pages);

static inline heed_kept_keys *heed_pages_list(const heed_pages *pages, int64_t sequence, int64_t layer,
                                              int64_t head)
{
    return &pages->list[(sequence * pages->layers + layer) * pages->heads + head];
}

/* Where key i of a list stands in the text. */
static inline int64_t heed_key_place(const heed_kept_keys *list, int64_t i)
{
    return list->place ? list->place[i] : list->start + i;
}

/* Makes room for `count` keys more, from place `place` of the text on, at positions `position`...; their rows
 * hold anything, their mass is 1 and their states 0. Fails, with nothing changed, where the list may not hold
 * so many. */
heed_status heed_pages_append(heed_pages *pages, int64_t sequence, int64_t layer, int64_t head, int64_t place,
                              int64_t position, int64_t count);
/* Drops all but the first `count` keys. */
void heed_pages_truncate(heed_pages *pages, int64_t sequence, int64_t layer, int64_t head, int64_t count);
/* Drops the pages all of whose keys have positions from `first` to below `before`; without places kept, only
 * from the front. Returns the place in the text behind the last key dropped; 0 when none was. */
int64_t heed_pages_drop(heed_pages *pages, int64_t sequence, int64_t layer, int64_t head, int64_t first,
                        int64_t before);
/* Keeps the keys with keep[i] set and moves them together, with all that goes with them. Summaries of pages
 * that change mean nothing afterwards. Returns the first key that lies elsewhere now. */
int64_t heed_pages_keep(heed_pages *pages, int64_t sequence, int64_t layer, int64_t head,
                        const uint8_t *keep);
/* Makes `to` hold what `from` holds, sharing pages; what it held is forgotten. HEED_IO, and `to` empty, where
 * a disk has no room for the copies that may come of it. */
heed_status heed_pages_share(heed_pages *pages, int64_t from, int64_t to);
/* The same of one kv head of one layer only. */
heed_status heed_pages_share_list(heed_pages *pages, int64_t from, int64_t to, int64_t layer, int64_t head);
/* Puts what `from` holds in a list without places behind what `to` holds there, whose last page is full: the
 * pages are shared. Fails as heed_pages_append does. */
heed_status heed_pages_join(heed_pages *pages, int64_t from, int64_t to, int64_t layer, int64_t head,
                            int64_t place);
void heed_pages_clear(heed_pages *pages, int64_t sequence);

/* Makes the pages of keys first... of a list its own, so that they may be written. */
void heed_pages_own(heed_pages *pages, int64_t sequence, int64_t layer, int64_t head, int64_t first);

/* Keys first... of a list are about to be read, or will be soon. Any thread may say so. */
void heed_pages_touch(const heed_pages *pages, int64_t layer, const heed_kept_keys *list, int64_t first,
                      int64_t count);

static inline int heed_page_grade(const heed_kept_keys *list, int64_t page)
{
    return list->page[page] >> HEED_GRADE_SHIFT;
}

/* The pools of a grade of a layer: [pages, 1, HEED_PAGE, dim or value_dim], and of its summaries [pages, 1,
 * floats]. */
heed_tensor heed_pages_keys(const heed_pages *pages, int64_t layer, int grade);
heed_tensor heed_pages_values(const heed_pages *pages, int64_t layer, int grade);
heed_tensor heed_pages_summaries(const heed_pages *pages, int64_t layer, int grade);

/* Writes the keys or values of pages of type HEED_PACKED. */
typedef struct heed_page_packer {
    void (*pack)(void *context, int grade, bool values, void *to);
    void *context;
} heed_page_packer;

/* Stores a full page of a list as another grade does, from what it holds; a page that other lists share stays
 * theirs. Its summary stays. `packer` may be NULL where the grade is not packed. */
void heed_pages_regrade(heed_pages *pages, int64_t sequence, int64_t layer, int64_t head, int64_t page,
                        int grade, const heed_page_packer *packer);
/* Makes a page of a list one of that grade, whose rows hold anything. */
void heed_pages_set_grade(heed_pages *pages, int64_t sequence, int64_t layer, int64_t head, int64_t page,
                          int grade);
/* Keys and values first... of a list as floats, [count][dim or value_dim]. */
void heed_pages_load_keys(const heed_pages *pages, int64_t layer, const heed_kept_keys *list, int64_t first,
                          int64_t count, float *to);
void heed_pages_load_values(const heed_pages *pages, int64_t layer, const heed_kept_keys *list, int64_t first,
                            int64_t count, float *to);
/* Bytes of the keys, or values, of a page that holds `keys` of them. */
size_t heed_page_bytes(const heed_page_layout *layout, int64_t keys, bool values);
/* Where a page's keys, or values, are stored, and the bytes of those that the list holds. */
char *heed_pages_stored(const heed_pages *pages, int64_t layer, const heed_kept_keys *list, int64_t page,
                        bool values, size_t *bytes);

/* Where a key, a value and the summary of a page of a list are stored; keys of a page of grade 0 lie one
 * after the other. */
char *heed_pages_key(const heed_pages *pages, int64_t layer, const heed_kept_keys *list, int64_t i);
char *heed_pages_value(const heed_pages *pages, int64_t layer, const heed_kept_keys *list, int64_t i);
float *heed_pages_summary(const heed_pages *pages, int64_t layer, const heed_kept_keys *list, int64_t page);

/* Bytes of one token of a sequence, of all layers, in pages of the last grade; of all pages and lists in use;
 * of the address space that is reserved for them, in every grade. */
double heed_pages_token_bytes(const heed_pages *pages);
size_t heed_pages_bytes(const heed_pages *pages);
size_t heed_pages_reserved(const heed_pages *pages);
/* Bytes of offloaded pages in use that are not in memory; of those that came back so far. */
size_t heed_pages_away(const heed_pages *pages);
size_t heed_pages_fetched(const heed_pages *pages);

static inline int64_t heed_pages_for(int64_t keys)
{
    return (keys + HEED_PAGE - 1) / HEED_PAGE;
}

#endif
