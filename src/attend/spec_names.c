/* The known name that is nearest to a wrong one. */
#include "attend/spec_reader.h"

#include <limits.h>
#include <stdio.h>
#include <string.h>

#define LONGEST 40 /* characters of a name that are compared */

static char lower(char c)
{
    return c >= 'A' && c <= 'Z' ? (char)(c - 'A' + 'a') : c;
}

static int least(int a, int b)
{
    return a < b ? a : b;
}

/* Letters to insert, delete, change or swap with their neighbour, whatever their case
 * (optimal string alignment; Damerau 1964). */
static int edit_distance(const char *a, int a_length, const char *b, int b_length)
{
    int row[3][LONGEST + 1];
    for (int j = 0; j <= b_length; j++)
        row[0][j] = j;
    for (int i = 1; i <= a_length; i++) {
        int *now = row[i % 3];
        const int *before = row[(i + 2) % 3], *two_before = row[(i + 1) % 3];
        now[0] = i;
        for (int j = 1; j <= b_length; j++) {
            const char x = lower(a[i - 1]), y = lower(b[j - 1]);
            now[j] = least(least(before[j], now[j - 1]) + 1, before[j - 1] + (x != y));
            if (i > 1 && j > 1 && x == lower(b[j - 2]) && y == lower(a[i - 2]))
                now[j] = least(now[j], two_before[j - 2] + 1);
        }
    }
    return row[a_length % 3][b_length];
}

/* Three letters that a name begins with are as good as one wrong letter. */
static bool begins(const char *name, heed_word word)
{
    int i = 0;
    while (i < word.length && lower(name[i]) == lower(word.text[i]))
        i++;
    return i == word.length && i >= 3;
}

void heed_names_start(heed_names *names, heed_word word)
{
    names->word = word;
    names->nearest = NULL;
    names->distance = INT_MAX;
    names->list[0] = 0;
    names->full = false;
}

void heed_names_add(heed_names *names, const char *name)
{
    const heed_word word = names->word;
    const int edits =
        edit_distance(word.text, least(word.length, LONGEST), name, (int)strnlen(name, LONGEST));
    const int distance = begins(name, word) ? least(edits, 1) : edits;
    if (distance < names->distance) {
        names->distance = distance;
        names->nearest = name;
    }
    if (names->full)
        return;
    const size_t length = strlen(names->list), room = sizeof names->list - length;
    names->full = room < strlen(name) + sizeof ", , ...";
    snprintf(names->list + length, room, "%s%s", length ? ", " : "", names->full ? "..." : name);
}

heed_hint heed_names_hint(const heed_names *names)
{
    heed_hint hint = {""};
    if (!names->nearest)
        return hint;
    const heed_quote nearest = heed_quoted(names->nearest, (int)strnlen(names->nearest, LONGEST + 1));
    const bool near = names->distance <= 1 || 3 * names->distance <= names->word.length ||
                      !strcmp(names->list, names->nearest);
    snprintf(hint.text, sizeof hint.text, "; the nearest is '%s'%s%s%s", nearest.text, near ? "" : " (of ",
             near ? "" : names->list, near ? "" : ")");
    return hint;
}
