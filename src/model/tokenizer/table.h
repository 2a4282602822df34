/* Hash tables of the tokenisers: texts to numbers, pairs of tokens to merges, and a trie. Filled once, then
 * read only. */
#ifndef HEED_MODEL_TOKENIZER_TABLE_H
#define HEED_MODEL_TOKENIZER_TABLE_H

#include <heed/base.h>

/* Texts of a vocabulary to their token. The texts themselves stay with the caller: slots hold ids. */
typedef struct heed_text_table {
    struct heed_text_slot {
        const char *text;
        uint32_t size;
        int32_t id; /* -1: the slot is free */
    } * slot;
    size_t mask, count;
    size_t longest; /* bytes of the longest text */
} heed_text_table;

bool heed_text_table_make(heed_text_table *table, size_t entries); /* room for so many; false: no memory */
/* A text that is there already keeps its token. */
void heed_text_table_add(heed_text_table *table, const char *text, size_t size, int32_t id);
int32_t heed_text_table_find(const heed_text_table *table, const char *text, size_t size); /* -1: none */

/* Pairs of neighbouring tokens to the token they become, and how early. */
typedef struct heed_merge {
    int32_t rank, token;
} heed_merge;

typedef struct heed_merge_table {
    struct heed_merge_slot {
        uint64_t pair; /* UINT64_MAX: the slot is free */
        heed_merge merge;
    } * slot;
    size_t mask;
} heed_merge_table;

bool heed_merge_table_make(heed_merge_table *table, size_t entries);
void heed_merge_table_add(heed_merge_table *table, int32_t left, int32_t right, heed_merge merge);
const heed_merge *heed_merge_table_find(const heed_merge_table *table, int32_t left, int32_t right);

/* Texts by their first bytes: from node 0 byte by byte, node -1 when no text goes on so. */
typedef struct heed_trie {
    struct heed_trie_slot {
        uint64_t key; /* node << 8 | byte; UINT64_MAX: free */
        int32_t node;
    } * slot;
    size_t mask, count;
    int32_t *id; /* [nodes] the text that ends at this node, or -1 */
    size_t nodes, capacity;
    int32_t first[256]; /* nodes below the root */
} heed_trie;

bool heed_trie_make(heed_trie *trie);
bool heed_trie_add(heed_trie *trie, const char *text, size_t size, int32_t id); /* false: no memory */
int32_t heed_trie_step(const heed_trie *trie, int32_t node, char byte);
void heed_trie_free(heed_trie *trie);

#endif
