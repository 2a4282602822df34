/* Searching fragments, and rules that hide them where no model decides. */
#include "base/try.h"
#include "eval/sculptor_parts.h"

#include <ctype.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

typedef struct word {
    const char *text;
    size_t size;
} word;

static bool is_letter(char c)
{
    return isalnum((unsigned char)c) || (unsigned char)c > 127;
}

/* The next word from *at on. */
static bool next_word(const char **at, const char *end, word *found)
{
    while (*at < end && !is_letter(**at))
        (*at)++;
    *found = (word){*at, 0};
    while (*at < end && is_letter(**at)) {
        (*at)++;
        found->size++;
    }
    return found->size > 0;
}

static bool same(word a, word b)
{
    bool equal = a.size == b.size;
    for (size_t i = 0; i < a.size && equal; i++)
        equal = tolower((unsigned char)a.text[i]) == tolower((unsigned char)b.text[i]);
    return equal;
}

static bool holds(const heed_sculptor *s, int id, word wanted)
{
    const char *at = s->text + s->fragment[id].at, *end = at + s->fragment[id].size;
    for (word here; next_word(&at, end, &here);)
        if (same(here, wanted))
            return true;
    return false;
}

/* How many fragments hold a word, of n: it counts for log(1 + n / that). */
static double likeness(const heed_sculptor *s, int id, const char *words)
{
    const char *at = words, *end = words + strlen(words);
    double sum = 0.0;
    for (word wanted; next_word(&at, end, &wanted);) {
        int having = 0;
        if (!holds(s, id, wanted))
            continue;
        for (int i = 0; i < s->fragments; i++)
            having += holds(s, i, wanted);
        sum += log(1.0 + (double)s->fragments / having);
    }
    return sum;
}

static bool holds_exactly(const heed_sculptor *s, int id, const char *words)
{
    const heed_fragment *f = &s->fragment[id];
    const size_t size = strlen(words);
    for (size_t i = 0; size > 0 && i + size <= f->size; i++)
        if (!memcmp(s->text + f->at + i, words, size))
            return true;
    return false;
}

int heed_sculptor_search(const heed_sculptor *s, const char *words, bool exact, int *found, int most)
{
    int count = 0;
    if (exact) {
        for (int i = 0; i < s->fragments && count < most; i++)
            if (holds_exactly(s, i, words))
                found[count++] = i;
        return count;
    }
    for (double last = INFINITY; count < most;) { /* the next best, of equal ones the later first */
        int best = -1, before = count ? found[count - 1] : s->fragments;
        double value = 0.0;
        for (int i = 0; i < s->fragments; i++) {
            const double here = likeness(s, i, words);
            if (here > 0.0 && (here < last || (here == last && i < before)) &&
                (best < 0 || here > value || (here == value && i > best))) {
                best = i;
                value = here;
            }
        }
        if (best < 0)
            break;
        found[count++] = best;
        last = value;
    }
    return count;
}

heed_status heed_sculptor_focus(heed_sculptor *s, const char *question, int keep)
{
    int *found = malloc(((size_t)s->fragments + 1) * sizeof *found);
    if (!found)
        return heed_fail(HEED_NO_MEMORY, "no memory for a search");
    if (keep < 1) {
        free(found);
        return heed_fail(HEED_INVALID, "%d fragments cannot stay, it must be at least 1", keep);
    }
    const int count =
        heed_sculptor_search(s, question, false, found, keep < s->fragments ? keep : s->fragments);
    for (int i = 0; i < s->fragments; i++) {
        bool stays = count == 0;
        for (int n = 0; n < count; n++)
            stays |= found[n] == i;
        s->fragment[i].hidden = !stays;
    }
    free(found);
    return HEED_OK;
}

/* What stands before the first colon of a fragment; size 0 where there is none. */
static word key_of(const heed_sculptor *s, int id)
{
    const heed_fragment *f = &s->fragment[id];
    const char *at = s->text + f->at, *colon = memchr(at, ':', f->size);
    while (colon && at < colon && isspace((unsigned char)*at))
        at++;
    return (word){at, colon ? (size_t)(colon - at) : 0};
}

heed_status heed_sculptor_latest(heed_sculptor *s)
{
    for (int i = 0; i < s->fragments; i++) {
        const word key = key_of(s, i);
        for (int later = i + 1; key.size && later < s->fragments; later++)
            s->fragment[i].hidden |= same(key, key_of(s, later));
    }
    return HEED_OK;
}
