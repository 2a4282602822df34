/* Steps that split a text into words. */
#include "base/try.h"
#include "model/tokenizer/parts.h"

#include <stdlib.h>
#include <string.h>

static heed_status no_memory(void)
{
    return heed_fail(HEED_NO_MEMORY, "no memory to split a text");
}

/* Parts of one word, matched or not, as they come from left to right; and the words they make. */
typedef struct split_parts {
    heed_split_kind kind;
    bool any, matched; /* the part before, and whether it was a match */
    size_t start, end; /* the word that is not finished yet */
    heed_ranges *words;
} split_parts;

static void finish(split_parts *parting)
{
    if (parting->any)
        heed_ranges_add(parting->words, parting->start, parting->end);
    parting->any = false;
}

static void begin(split_parts *parting, size_t start, size_t end)
{
    finish(parting);
    parting->any = true;
    parting->start = start;
    parting->end = end;
}

static void part(split_parts *parting, size_t start, size_t end, bool matched)
{
    const bool before = parting->any && parting->matched, gap = parting->any && !parting->matched;
    bool joins = false;
    switch (parting->kind) {
    case HEED_SPLIT_REMOVED:
        if (matched)
            finish(parting);
        else
            begin(parting, start, end);
        return;
    case HEED_SPLIT_CONTIGUOUS:
        joins = matched ? before : gap;
        break;
    case HEED_SPLIT_WITH_PREVIOUS:
        joins = matched && gap;
        break;
    case HEED_SPLIT_WITH_NEXT:
        joins = !matched && before;
        break;
    default:
        break;
    }
    if (joins)
        parting->end = end;
    else
        begin(parting, start, end);
    parting->matched = matched;
}

static heed_status split_word(const heed_split_step *step, heed_search *search, const char *text,
                              heed_range word, heed_ranges *words)
{
    split_parts state = {.kind = step->kind, .words = words};
    size_t done = word.start;
    heed_range match;
    bool found;
    heed_search_text(search, text + word.start, word.size);
    for (;;) {
        TRY(heed_search_next(search, &match, &found));
        if (!found)
            break;
        match.start += word.start;
        if (match.start > done)
            part(&state, done, match.start, step->inverted);
        part(&state, match.start, match.start + match.size, !step->inverted);
        done = match.start + match.size;
    }
    if (word.start + word.size > done)
        part(&state, done, word.start + word.size, step->inverted);
    finish(&state);
    return HEED_OK;
}

static heed_status split_by_pattern(const heed_split_step *step, const heed_bytes *text, heed_ranges *words)
{
    heed_ranges made = {0};
    heed_search search;
    TRY(heed_search_start(&search, step->pattern));
    heed_status status = HEED_OK;
    for (size_t i = 0; i < words->count && !status; i++)
        status = split_word(step, &search, text->data, words->range[i], &made);
    heed_search_end(&search);
    const bool failed = made.failed;
    free(words->range);
    *words = made;
    words->failed = false;
    return status ? status : failed ? no_memory() : HEED_OK;
}

/* A word into a new text, spaces as marks and split at each where asked for. */
static void mark_word(const heed_split_step *step, bool prefix, const char *text, heed_range word,
                      heed_bytes *out, heed_ranges *words)
{
    const size_t mark = strlen(step->mark);
    size_t start = out->size;
    const char *at = text + word.start, *end = at + word.size;
    const bool marked = word.size && (*at == ' ' || (word.size >= mark && !memcmp(at, step->mark, mark)));
    if (prefix && !marked)
        heed_bytes_add(out, step->mark, mark);
    while (at < end) {
        const bool space = *at == ' ',
                   here = space || ((size_t)(end - at) >= mark && !memcmp(at, step->mark, mark));
        if (here && step->split) {
            heed_ranges_add(words, start, out->size);
            start = out->size;
        }
        const size_t length = space ? 1 : here ? mark : (size_t)heed_utf8_size(*at);
        heed_bytes_add(out, here ? step->mark : at, here ? mark : length);
        at += length;
    }
    heed_ranges_add(words, start, out->size);
}

static heed_status rewrite(const heed_split_step *step, bool at_start, heed_bytes *text, heed_ranges *words)
{
    heed_bytes out = {0};
    heed_ranges made = {0};
    heed_bytes_reserve(&out, text->size + text->size / 2);
    for (size_t i = 0; i < words->count; i++) {
        const heed_range word = words->range[i];
        if (step->kind == HEED_SPLIT_MARK_SPACES) {
            const bool prefix = step->prefix == HEED_PREFIX_ALWAYS ||
                                (step->prefix == HEED_PREFIX_FIRST && at_start && word.start == 0);
            mark_word(step, prefix, text->data, word, &out, &made);
        } else {
            const size_t start = out.size;
            if (text->data[word.start] != ' ')
                heed_bytes_add(&out, " ", 1);
            heed_bytes_add(&out, text->data + word.start, word.size);
            heed_ranges_add(&made, start, out.size);
        }
    }
    free(text->data);
    free(words->range);
    *text = out;
    *words = made;
    return out.failed || made.failed ? no_memory() : HEED_OK;
}

heed_status heed_split(const heed_split_step *step, bool at_start, heed_bytes *text, heed_ranges *words)
{
    if (step->kind == HEED_SPLIT_PREFIX_SPACE || step->kind == HEED_SPLIT_MARK_SPACES)
        return rewrite(step, at_start, text, words);
    return split_by_pattern(step, text, words);
}

heed_status heed_split_step_add(heed_tokenizer *tokenizer, heed_split_kind kind, const char *pattern,
                                bool inverted)
{
    if (tokenizer->splits == HEED_STEPS)
        return heed_fail(HEED_UNSUPPORTED, "the tokeniser has more than %d splitting steps", HEED_STEPS);
    heed_split_step *step = &tokenizer->split[tokenizer->splits++];
    *step = (heed_split_step){.kind = kind, .inverted = inverted};
    return pattern ? heed_pattern_make(&step->pattern, pattern, strlen(pattern), false) : HEED_OK;
}

heed_status heed_split_bert(heed_tokenizer *tokenizer)
{
    TRY(heed_split_step_add(tokenizer, HEED_SPLIT_REMOVED, "\\s", false));
    return heed_split_step_add(tokenizer, HEED_SPLIT_ISOLATED, HEED_PUNCTUATION, false);
}
