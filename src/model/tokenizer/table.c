#include "model/tokenizer/table.h"

#include "model/tokenizer/bytes.h"

#include <stdlib.h>
#include <string.h>

static uint64_t mixed(uint64_t a, uint64_t b)
{
    const unsigned __int128 product =
        (unsigned __int128)(a ^ 0x9e3779b97f4a7c15u) * (b ^ 0xd1b54a32d192ed03u);
    return (uint64_t)product ^ (uint64_t)(product >> 64);
}

static uint64_t text_hash(const char *text, size_t size)
{
    uint64_t hash = size, word = 0;
    for (; size >= 8; size -= 8, text += 8) {
        memcpy(&word, text, 8);
        hash = mixed(hash, word);
    }
    word = 0;
    memcpy(&word, text, size);
    return mixed(hash, word);
}

/* Slots for so many entries: a power of two, at least half of it free; 0 when that is too much. */
static size_t slots_for(size_t entries)
{
    size_t slots = 16;
    while (slots / 2 < entries) {
        if (slots > SIZE_MAX / 4)
            return 0;
        slots *= 2;
    }
    return slots;
}

bool heed_text_table_make(heed_text_table *table, size_t entries)
{
    const size_t slots = slots_for(entries);
    *table = (heed_text_table){.slot = slots ? calloc(slots, sizeof *table->slot) : NULL};
    if (!table->slot)
        return false;
    table->mask = slots - 1;
    for (size_t i = 0; i < slots; i++)
        table->slot[i].id = -1;
    return true;
}

static size_t text_place(const heed_text_table *table, const char *text, size_t size)
{
    size_t i = text_hash(text, size) & table->mask;
    while (table->slot[i].id >= 0 && (table->slot[i].size != size || memcmp(table->slot[i].text, text, size)))
        i = (i + 1) & table->mask;
    return i;
}

void heed_text_table_add(heed_text_table *table, const char *text, size_t size, int32_t id)
{
    const size_t i = text_place(table, text, size);
    if (table->slot[i].id >= 0)
        return;
    table->slot[i].text = text;
    table->slot[i].size = (uint32_t)size;
    table->slot[i].id = id;
    table->count++;
    if (size > table->longest)
        table->longest = size;
}

int32_t heed_text_table_find(const heed_text_table *table, const char *text, size_t size)
{
    if (!table->slot || size > table->longest)
        return -1;
    return table->slot[text_place(table, text, size)].id;
}

bool heed_merge_table_make(heed_merge_table *table, size_t entries)
{
    const size_t slots = slots_for(entries);
    *table = (heed_merge_table){.slot = slots ? calloc(slots, sizeof *table->slot) : NULL};
    if (!table->slot)
        return false;
    table->mask = slots - 1;
    for (size_t i = 0; i < slots; i++)
        table->slot[i].pair = UINT64_MAX;
    return true;
}

static uint64_t pair_of(int32_t left, int32_t right)
{
    return (uint64_t)(uint32_t)left << 32 | (uint32_t)right;
}

static size_t merge_place(const heed_merge_table *table, uint64_t pair)
{
    size_t i = mixed(pair, 0) & table->mask;
    while (table->slot[i].pair != UINT64_MAX && table->slot[i].pair != pair)
        i = (i + 1) & table->mask;
    return i;
}

void heed_merge_table_add(heed_merge_table *table, int32_t left, int32_t right, heed_merge merge)
{
    const uint64_t pair = pair_of(left, right);
    struct heed_merge_slot *slot = &table->slot[merge_place(table, pair)];
    slot->pair = pair;
    slot->merge = merge;
}

const heed_merge *heed_merge_table_find(const heed_merge_table *table, int32_t left, int32_t right)
{
    if (!table->slot || left < 0 || right < 0)
        return NULL;
    const struct heed_merge_slot *slot = &table->slot[merge_place(table, pair_of(left, right))];
    return slot->pair == UINT64_MAX ? NULL : &slot->merge;
}

static struct heed_trie_slot *trie_slots(size_t slots)
{
    struct heed_trie_slot *slot = calloc(slots, sizeof *slot);
    for (size_t i = 0; slot && i < slots; i++)
        slot[i].key = UINT64_MAX;
    return slot;
}

static int32_t new_node(heed_trie *trie)
{
    if (trie->nodes >= INT32_MAX ||
        !heed_grow((void **)&trie->id, &trie->capacity, trie->nodes + 1, sizeof *trie->id))
        return -1;
    trie->id[trie->nodes] = -1;
    return (int32_t)trie->nodes++;
}

bool heed_trie_make(heed_trie *trie)
{
    *trie = (heed_trie){.slot = trie_slots(64), .mask = 63};
    memset(trie->first, 0xff, sizeof trie->first);
    return trie->slot && new_node(trie) == 0;
}

static size_t trie_place(const heed_trie *trie, uint64_t key)
{
    size_t i = mixed(key, 0) & trie->mask;
    while (trie->slot[i].key != UINT64_MAX && trie->slot[i].key != key)
        i = (i + 1) & trie->mask;
    return i;
}

static bool trie_widen(heed_trie *trie)
{
    const size_t slots = trie->mask + 1;
    if (trie->count < slots / 2)
        return true;
    struct heed_trie_slot *old = trie->slot, *wider = slots > SIZE_MAX / 4 ? NULL : trie_slots(slots * 2);
    if (!wider)
        return false;
    trie->slot = wider;
    trie->mask = slots * 2 - 1;
    for (size_t i = 0; i < slots; i++)
        if (old[i].key != UINT64_MAX)
            trie->slot[trie_place(trie, old[i].key)] = old[i];
    free(old);
    return true;
}

static uint64_t step_key(int32_t node, char byte)
{
    return (uint64_t)(uint32_t)node << 8 | (unsigned char)byte;
}

int32_t heed_trie_step(const heed_trie *trie, int32_t node, char byte)
{
    if (node == 0)
        return trie->first[(unsigned char)byte];
    const struct heed_trie_slot *slot = &trie->slot[trie_place(trie, step_key(node, byte))];
    return slot->key == UINT64_MAX ? -1 : slot->node;
}

bool heed_trie_add(heed_trie *trie, const char *text, size_t size, int32_t id)
{
    int32_t node = 0;
    for (size_t i = 0; i < size; i++) {
        int32_t next = heed_trie_step(trie, node, text[i]);
        if (next < 0) {
            if (!trie_widen(trie) || (next = new_node(trie)) < 0)
                return false;
            if (node == 0) {
                trie->first[(unsigned char)text[i]] = next;
            } else {
                trie->slot[trie_place(trie, step_key(node, text[i]))] =
                    (struct heed_trie_slot){step_key(node, text[i]), next};
                trie->count++;
            }
        }
        node = next;
    }
    if (trie->id[node] < 0)
        trie->id[node] = id;
    return true;
}

void heed_trie_free(heed_trie *trie)
{
    free(trie->slot);
    free(trie->id);
    trie->slot = NULL;
    trie->id = NULL;
}
