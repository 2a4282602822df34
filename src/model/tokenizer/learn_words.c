/* Words of texts, counted. */
#include "base/try.h"
#include "model/tokenizer/learn.h"
#include "model/tokenizer/parts.h"

#include <stdlib.h>
#include <string.h>

static heed_status no_memory(void)
{
    return heed_fail(HEED_NO_MEMORY, "no memory for the words of a text");
}

void heed_words_free(heed_word_counts *counts)
{
    free(counts->texts.data);
    free(counts->word);
    free(counts->slot);
    *counts = (heed_word_counts){.total = 0};
}

/* Fowler, Noll and Vo's, its high bits mixed down. */
static uint64_t hash_of(const char *text, size_t size)
{
    uint64_t hash = 0xcbf29ce484222325u;
    for (size_t i = 0; i < size; i++)
        hash = (hash ^ (unsigned char)text[i]) * 0x100000001b3u;
    return hash ^ hash >> 29;
}

/* The slot of a word, or the free one where it belongs. */
static size_t slot_of(const heed_word_counts *counts, const char *text, size_t size)
{
    size_t i = hash_of(text, size) & (counts->slots - 1);
    for (; counts->slot[i]; i = (i + 1) & (counts->slots - 1)) {
        const struct heed_counted_word *word = &counts->word[counts->slot[i] - 1];
        if (word->size == size && !memcmp(counts->texts.data + word->start, text, size))
            break;
    }
    return i;
}

/* Half of the slots stay free. */
static bool make_slots(heed_word_counts *counts)
{
    if (2 * (counts->words + 1) <= counts->slots)
        return true;
    const size_t slots = counts->slots ? 2 * counts->slots : 1 << 12;
    uint32_t *slot = calloc(slots, sizeof *slot);
    if (!slot)
        return false;
    free(counts->slot);
    counts->slot = slot;
    counts->slots = slots;
    for (size_t i = 0; i < counts->words; i++)
        slot[slot_of(counts, counts->texts.data + counts->word[i].start, counts->word[i].size)] =
            (uint32_t)i + 1;
    return true;
}

static heed_status count_word(heed_word_counts *counts, const char *text, size_t size)
{
    if (!make_slots(counts))
        return no_memory();
    const size_t slot = slot_of(counts, text, size);
    counts->total++;
    if (counts->slot[slot]) {
        counts->word[counts->slot[slot] - 1].count++;
        return HEED_OK;
    }
    if (counts->texts.size + size > INT32_MAX / 2)
        return heed_fail(HEED_INVALID, "the different words of the texts have more than %d bytes",
                         INT32_MAX / 2);
    if (!heed_grow((void **)&counts->word, &counts->capacity, counts->words + 1, sizeof *counts->word))
        return no_memory();
    counts->word[counts->words++] =
        (struct heed_counted_word){.start = counts->texts.size, .size = (uint32_t)size, .count = 1};
    counts->slot[slot] = (uint32_t)counts->words;
    heed_bytes_add(&counts->texts, text, size);
    return counts->texts.failed ? no_memory() : HEED_OK;
}

static heed_status check_text(const char *text, size_t size)
{
    int32_t character;
    for (size_t i = 0; i < size;) {
        int bad = 0;
        const int length = heed_utf8_read(text + i, size - i, &character, &bad);
        if (!length)
            return heed_fail(HEED_INVALID, "byte %zu of the text is no UTF-8", i);
        i += (size_t)length;
    }
    return HEED_OK;
}

heed_status heed_words_count(heed_word_counts *counts, const char *text, size_t size)
{
    TRY(check_text(text, size));
    heed_tokenizer *rules = calloc(1, sizeof *rules); /* nothing of it but the rule for splitting */
    heed_bytes copy = {0};
    heed_ranges words = {0};
    heed_status status = rules ? heed_split_named(rules, "gpt-2") : no_memory();
    heed_bytes_add(&copy, text, size);
    heed_ranges_add(&words, 0, size);
    if (!status && (copy.failed || words.failed))
        status = no_memory();
    for (int i = 0; !status && i < rules->splits; i++)
        status = heed_split(&rules->split[i], true, &copy, &words);
    for (size_t i = 0; !status && i < words.count; i++)
        status = count_word(counts, copy.data + words.range[i].start, words.range[i].size);
    free(copy.data);
    free(words.range);
    heed_tokenizer_free(rules);
    return status;
}
