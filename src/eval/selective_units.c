/* Units of a text: phrases are cut by punctuation and in front of function words, which open the next one. */
#include "eval/selective.h"

#include <ctype.h>
#include <stdlib.h>
#include <string.h>

static const char *const openers[] = {
    "a",     "about", "after", "against", "all",   "an",  "and",   "as",   "at",    "because", "before",
    "but",   "by",    "for",   "from",    "he",    "her", "his",   "how",  "i",     "if",      "in",
    "into",  "is",    "it",    "its",     "my",    "nor", "not",   "of",   "on",    "or",      "our",
    "over",  "she",   "so",    "than",    "that",  "the", "their", "then", "there", "these",   "they",
    "this",  "those", "to",    "under",   "until", "was", "we",    "were", "what",  "when",    "where",
    "which", "while", "who",   "why",     "with",  "you", "your",
};

static int compare_words(const void *a, const void *b)
{
    return strcmp(a, *(const char *const *)b);
}

static bool is_letter(char c)
{
    return isalnum((unsigned char)c) || (unsigned char)c > 127 || c == '\'';
}

/* The word that begins in a text, in lower case; false where none does, or a long one. */
static bool is_opener(const char *text, const char *end)
{
    char word[12];
    size_t size = 0;
    while (text + size < end && is_letter(text[size])) {
        if (size + 1 == sizeof word)
            return false;
        word[size] = (char)tolower((unsigned char)text[size]);
        size++;
    }
    word[size] = 0;
    return size > 0 &&
           bsearch(word, openers, sizeof openers / sizeof *openers, sizeof *openers, compare_words) != NULL;
}

static bool ends_sentence(char c)
{
    return c == '.' || c == '!' || c == '?';
}

/* The last byte before `at` that is no white space, and whether a line ended since. */
static char before(const char *text, size_t at, bool *line)
{
    *line = false;
    while (at > 0 && isspace((unsigned char)text[at - 1]))
        *line |= text[--at] == '\n';
    return at > 0 ? text[at - 1] : 0;
}

void heed_cut_units(heed_unit_kind kind, const char *text, const size_t *at, int64_t count, uint8_t *start)
{
    const char *end = text + at[count];
    bool was_opener = false;
    for (int64_t t = 0; t < count; t++) {
        size_t word = at[t]; /* behind the white space that tokens begin with */
        bool line;
        while (word < at[t + 1] && isspace((unsigned char)text[word]))
            word++;
        const char last = before(text, word, &line);
        const bool new_word =
            word < at[t + 1] && is_letter(text[word]) && (word == 0 || !is_letter(text[word - 1]));
        const bool opener = new_word && is_opener(text + word, end), spaced = word > at[t] || line;
        start[t] = t == 0 || kind == HEED_UNIT_TOKEN;
        if (t > 0 && kind == HEED_UNIT_SENTENCE)
            start[t] = new_word && (line || (spaced && ends_sentence(last)));
        if (t > 0 && kind == HEED_UNIT_PHRASE)
            start[t] =
                new_word && (line || (spaced && last && ispunct((unsigned char)last) && last != '\'') ||
                             (opener && !was_opener));
        was_opener = new_word ? opener : was_opener;
    }
}
