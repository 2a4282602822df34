/* Merges, most frequent pair first. Each place in the words that is followed by another holds a pair; the
 * places of a pair are a chain, so that a merge touches only where its pair stands. A heap has the pairs by
 * how often they stand there; a pair that has become rarer is put back when it comes up.
 */
#include "model/tokenizer/learn.h"
#include "base/try.h"
#include "model/tokenizer/parts.h"

#include <stdlib.h>
#include <string.h>

typedef struct learn_place {
    int32_t id;
    int32_t before, behind; /* places in the word, -1 at its ends */
    int32_t pair;           /* of this place and the one behind it; -1: there is none */
    int32_t last, next;     /* the pair's other places */
    int32_t word;
} learn_place;

typedef struct learn_pair {
    int32_t left, right;
    int32_t first; /* place; -1: none is left */
    int64_t count;
} learn_pair;

typedef struct learn_entry {
    int64_t count;
    int32_t pair;
} learn_entry;

typedef struct learner {
    const heed_word_counts *counts;
    learn_place *place;
    int32_t places;
    learn_pair *pair;
    size_t pairs, pairs_capacity;
    uint32_t *slot; /* pair + 1 by its tokens; 0: free */
    size_t slots;
    learn_entry *heap;
    size_t entries, heap_capacity;
} learner;

static heed_status no_memory(void)
{
    return heed_fail(HEED_NO_MEMORY, "no memory to learn a vocabulary");
}

static size_t slot_of(const learner *l, int32_t left, int32_t right)
{
    uint64_t hash = ((uint64_t)(uint32_t)left << 32 | (uint32_t)right) * 0x9e3779b97f4a7c15u;
    size_t i = (hash >> 32) & (l->slots - 1);
    while (l->slot[i] && (l->pair[l->slot[i] - 1].left != left || l->pair[l->slot[i] - 1].right != right))
        i = (i + 1) & (l->slots - 1);
    return i;
}

static bool make_slots(learner *l)
{
    if (2 * (l->pairs + 1) <= l->slots)
        return true;
    const size_t slots = l->slots ? 2 * l->slots : 1 << 12;
    uint32_t *slot = calloc(slots, sizeof *slot);
    if (!slot)
        return false;
    free(l->slot);
    l->slot = slot;
    l->slots = slots;
    for (size_t i = 0; i < l->pairs; i++)
        slot[slot_of(l, l->pair[i].left, l->pair[i].right)] = (uint32_t)i + 1;
    return true;
}

static int64_t weight(const learner *l, int32_t at)
{
    return l->counts->word[l->place[at].word].count;
}

/* The place joins the chain of the pair that it makes with the one behind it. */
static heed_status link_place(learner *l, int32_t at)
{
    learn_place *place = &l->place[at];
    const int32_t right = l->place[place->behind].id;
    if (!make_slots(l))
        return no_memory();
    const size_t slot = slot_of(l, place->id, right);
    if (!l->slot[slot]) {
        if (l->pairs >= INT32_MAX / 2 ||
            !heed_grow((void **)&l->pair, &l->pairs_capacity, l->pairs + 1, sizeof *l->pair))
            return no_memory();
        l->pair[l->pairs++] = (learn_pair){place->id, right, -1, 0};
        l->slot[slot] = (uint32_t)l->pairs;
    }
    place->pair = (int32_t)l->slot[slot] - 1;
    learn_pair *pair = &l->pair[place->pair];
    place->last = -1;
    place->next = pair->first;
    if (pair->first >= 0)
        l->place[pair->first].last = at;
    pair->first = at;
    pair->count += weight(l, at);
    return HEED_OK;
}

static void unlink_place(learner *l, int32_t at)
{
    learn_place *place = &l->place[at];
    learn_pair *pair = &l->pair[place->pair];
    if (place->last >= 0)
        l->place[place->last].next = place->next;
    else
        pair->first = place->next;
    if (place->next >= 0)
        l->place[place->next].last = place->last;
    pair->count -= weight(l, at);
    place->pair = -1;
}

static bool comes_before(const learner *l, learn_entry a, learn_entry b)
{
    const learn_pair *x = &l->pair[a.pair], *y = &l->pair[b.pair];
    if (a.count != b.count)
        return a.count > b.count;
    return x->left != y->left ? x->left < y->left : x->right < y->right;
}

static heed_status push(learner *l, int32_t pair)
{
    const learn_entry entry = {l->pair[pair].count, pair};
    if (entry.count < 1)
        return HEED_OK;
    if (!heed_grow((void **)&l->heap, &l->heap_capacity, l->entries + 1, sizeof *l->heap))
        return no_memory();
    size_t i = l->entries++;
    for (; i && comes_before(l, entry, l->heap[(i - 1) / 2]); i = (i - 1) / 2)
        l->heap[i] = l->heap[(i - 1) / 2];
    l->heap[i] = entry;
    return HEED_OK;
}

static learn_entry pop(learner *l)
{
    const learn_entry top = l->heap[0], last = l->heap[--l->entries];
    size_t i = 0;
    for (size_t child = 1; child < l->entries; child = 2 * i + 1) {
        if (child + 1 < l->entries && comes_before(l, l->heap[child + 1], l->heap[child]))
            child++;
        if (!comes_before(l, l->heap[child], last))
            break;
        l->heap[i] = l->heap[child];
        i = child;
    }
    l->heap[i] = last;
    return top;
}

/* The most frequent pair there is; -1: none stands there twice. */
static heed_status most_frequent(learner *l, int32_t *pair)
{
    *pair = -1;
    while (l->entries) {
        const learn_entry top = pop(l);
        const int64_t count = l->pair[top.pair].count;
        if (count == top.count) {
            *pair = count >= 2 ? top.pair : -1;
            return HEED_OK;
        }
        TRY(push(l, top.pair));
    }
    return HEED_OK;
}

/* The place and the one behind it become token `id`. */
static heed_status join(learner *l, int32_t at, int32_t id)
{
    learn_place *place = &l->place[at];
    const int32_t before = place->before, right = place->behind, behind = l->place[right].behind;
    if (before >= 0)
        unlink_place(l, before);
    unlink_place(l, at);
    if (behind >= 0)
        unlink_place(l, right);
    place->id = id;
    place->behind = behind;
    if (behind >= 0)
        l->place[behind].before = at;
    l->places--;
    if (before >= 0)
        TRY(link_place(l, before));
    return behind >= 0 ? link_place(l, at) : HEED_OK;
}

/* Everywhere; in a run of one token, as in "aaa", from its left end on, as texts are encoded. */
static heed_status merge(learner *l, int32_t pair, int32_t id)
{
    const int32_t left = l->pair[pair].left, right = l->pair[pair].right;
    const size_t before = l->pairs;
    while (l->pair[pair].first >= 0) {
        int32_t at = l->pair[pair].first;
        while (left == right && l->place[at].before >= 0 && l->place[l->place[at].before].id == left)
            at = l->place[at].before;
        for (; at >= 0 && l->place[at].pair == pair; at = l->place[at].behind)
            TRY(join(l, at, id));
    }
    for (size_t i = before; i < l->pairs; i++) /* pairs with the new token, which were none before */
        TRY(push(l, (int32_t)i));
    return HEED_OK;
}

static heed_status set_token(heed_learnt_vocabulary *v, const char *left, size_t left_size, const char *right,
                             size_t right_size)
{
    char *text = malloc(left_size + right_size + 1);
    if (!text)
        return no_memory();
    memcpy(text, left, left_size);
    memcpy(text + left_size, right, right_size);
    v->token[v->tokens++] = (heed_learnt_token){text, left_size + right_size, -1, -1};
    return HEED_OK;
}

/* The end of a text, then bytes in the order of the characters that stand for them; byte_id[byte] is each
 * one's token. */
static heed_status first_tokens(heed_learnt_vocabulary *v, int32_t byte_id[256])
{
    static const char end[] = "<|endoftext|>";
    TRY(set_token(v, end, sizeof end - 1, "", 0));
    for (int32_t character = 0; character < 0x200; character++) {
        const int byte = heed_character_byte(character);
        const char text = (char)byte;
        if (byte < 0)
            continue;
        byte_id[byte] = v->tokens;
        TRY(set_token(v, &text, 1, "", 0));
    }
    return HEED_OK;
}

static heed_status first_places(learner *l, const int32_t byte_id[256])
{
    const heed_word_counts *counts = l->counts;
    l->place = malloc((counts->texts.size + 1) * sizeof *l->place);
    if (!l->place)
        return no_memory();
    for (size_t w = 0; w < counts->words; w++) {
        const int32_t start = (int32_t)counts->word[w].start, size = (int32_t)counts->word[w].size;
        for (int32_t i = 0; i < size; i++)
            l->place[start + i] = (learn_place){.id = byte_id[(unsigned char)counts->texts.data[start + i]],
                                                .before = i ? start + i - 1 : -1,
                                                .behind = i + 1 < size ? start + i + 1 : -1,
                                                .pair = -1,
                                                .word = (int32_t)w};
        for (int32_t i = 0; i + 1 < size; i++)
            TRY(link_place(l, start + i));
    }
    for (size_t i = 0; i < l->pairs; i++)
        TRY(push(l, (int32_t)i));
    return HEED_OK;
}

static heed_status learn(learner *l, heed_learnt_vocabulary *v, int32_t most, heed_text_table *known)
{
    int32_t byte_id[256], best;
    TRY(first_tokens(v, byte_id));
    for (int32_t i = 0; i < v->tokens; i++)
        heed_text_table_add(known, v->token[i].text, v->token[i].size, i);
    TRY(first_places(l, byte_id));
    while (v->tokens < most) {
        TRY(most_frequent(l, &best));
        if (best < 0)
            break;
        const learn_pair pair = l->pair[best];
        const heed_learnt_token *left = &v->token[pair.left], *right = &v->token[pair.right];
        TRY(set_token(v, left->text, left->size, right->text, right->size));
        heed_learnt_token *made = &v->token[v->tokens - 1];
        if (heed_text_table_find(known, made->text, made->size) >= 0) { /* other halves gave it before */
            free(made->text);
            v->tokens--;
            continue;
        }
        made->left = pair.left;
        made->right = pair.right;
        heed_text_table_add(known, made->text, made->size, v->tokens - 1);
        TRY(merge(l, best, v->tokens - 1));
    }
    for (size_t w = 0; w < l->counts->words; w++)
        for (int32_t at = (int32_t)l->counts->word[w].start; at >= 0; at = l->place[at].behind)
            v->length += l->counts->word[w].count;
    return HEED_OK;
}

heed_status heed_vocabulary_learn(heed_learnt_vocabulary *vocabulary, const heed_word_counts *counts,
                                  int32_t most)
{
    learner l = {.counts = counts};
    heed_text_table known = {0};
    *vocabulary = (heed_learnt_vocabulary){.token = calloc((size_t)most + 1, sizeof *vocabulary->token)};
    heed_status status =
        vocabulary->token && heed_text_table_make(&known, (size_t)most) ? HEED_OK : no_memory();
    if (!status)
        status = learn(&l, vocabulary, most, &known);
    free(known.slot);
    free(l.place);
    free(l.pair);
    free(l.slot);
    free(l.heap);
    if (status)
        heed_vocabulary_free(vocabulary);
    return status;
}

void heed_vocabulary_free(heed_learnt_vocabulary *vocabulary)
{
    for (int32_t i = 0; i < vocabulary->tokens; i++)
        free(vocabulary->token[i].text);
    free(vocabulary->token);
    *vocabulary = (heed_learnt_vocabulary){.tokens = 0};
}
