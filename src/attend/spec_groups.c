/* Prefixes, `layers 0-3,7: heads 0,2:`, and the groups of clauses that they make. */
#include "attend/spec_reader.h"

#include <stdlib.h>
#include <string.h>

#define LARGEST_INDEX 2147483647 /* of a layer or head */

bool heed_at_prefix(const heed_reader *reader)
{
    return reader->now.kind == HEED_WORD_NAME &&
           (heed_word_is(reader->now, "layers") || heed_word_is(reader->now, "heads")) &&
           !heed_word_is_mark(heed_reader_peek(reader), "=");
}

static heed_status read_index(heed_reader *reader, const char *what, int64_t *index)
{
    const heed_word word = reader->now;
    if (word.kind != HEED_WORD_NUMBER)
        return heed_reader_expected(reader, "numbers of %s, or all", what);
    *index = 0;
    for (int i = 0; i < word.length; i++) {
        if (word.text[i] < '0' || word.text[i] > '9')
            return heed_reader_fail(reader, word.text, "'%s' in %s must be a whole number",
                                    heed_quoted_word(word).text, what);
        *index = 10 * *index + (word.text[i] - '0');
        if (*index > LARGEST_INDEX)
            return heed_reader_fail(reader, word.text, "'%s' in %s must be at most %d",
                                    heed_quoted_word(word).text, what, LARGEST_INDEX);
    }
    heed_reader_next(reader);
    return HEED_OK;
}

/* a or a-b */
static heed_status read_range(heed_reader *reader, const char *what, int64_t range[2])
{
    const char *at = reader->now.text;
    heed_status status = read_index(reader, what, &range[0]);
    range[1] = range[0];
    if (status || !heed_word_is_mark(reader->now, "-"))
        return status;
    heed_reader_next(reader);
    status = read_index(reader, what, &range[1]);
    if (!status && range[1] < range[0])
        return heed_reader_fail(reader, at, "'%s' in %s runs backwards; write the smaller number first",
                                heed_quoted(at, (int)(reader->behind - at)).text, what);
    return status;
}

static heed_status add_range(heed_ranges *ranges, const int64_t range[2])
{
    if ((ranges->count & (ranges->count - 1)) == 0) { /* room is the next power of two */
        const size_t room = ranges->count ? 2 * (size_t)ranges->count : 1;
        int64_t(*grown)[2] = realloc(ranges->range, room * sizeof *grown);
        if (!grown)
            return heed_fail(HEED_NO_MEMORY, "no memory for the layers and heads of a spec");
        ranges->range = grown;
    }
    memcpy(ranges->range[ranges->count++], range, sizeof ranges->range[0]);
    return HEED_OK;
}

static int by_first(const void *a, const void *b)
{
    const int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;
    return (x > y) - (x < y);
}

/* Sorts, and makes one range of those that overlap or touch. */
static void tidy(heed_ranges *ranges)
{
    if (!ranges->count)
        return;
    qsort(ranges->range, (size_t)ranges->count, sizeof ranges->range[0], by_first);
    int last = 0;
    for (int i = 1; i < ranges->count; i++) {
        const int64_t *range = ranges->range[i];
        int64_t *before = ranges->range[last];
        if (range[0] <= before[1] + 1)
            before[1] = range[1] > before[1] ? range[1] : before[1];
        else
            memcpy(ranges->range[++last], range, sizeof ranges->range[0]);
    }
    ranges->count = last + 1;
}

/* all, or ranges with commas; then a colon */
static heed_status read_ranges(heed_reader *reader, const char *what, heed_ranges *ranges)
{
    ranges->count = 0;
    if (reader->now.kind == HEED_WORD_NAME && heed_word_is(reader->now, "all"))
        heed_reader_next(reader);
    else
        for (bool more = true; more;) {
            int64_t range[2];
            heed_status status = read_range(reader, what, range);
            if (!status)
                status = add_range(ranges, range);
            if (status)
                return status;
            more = heed_word_is_mark(reader->now, ",");
            if (more)
                heed_reader_next(reader);
        }
    if (!heed_word_is_mark(reader->now, ":"))
        return heed_reader_expected(reader, "the ':' after %s", what);
    heed_reader_next(reader);
    tidy(ranges);
    return HEED_OK;
}

heed_status heed_read_prefixes(heed_reader *reader, heed_ranges *layers, heed_ranges *heads)
{
    bool layers_given = false, heads_given = false;
    layers->count = heads->count = 0;
    while (heed_at_prefix(reader)) {
        const bool is_layers = heed_word_is(reader->now, "layers");
        const char *what = is_layers ? "layers" : "heads";
        bool *given = is_layers ? &layers_given : &heads_given;
        if (*given)
            return heed_reader_fail(reader, reader->now.text, "'%s' stands twice before one clause", what);
        *given = true;
        heed_reader_next(reader);
        const heed_status status = read_ranges(reader, what, is_layers ? layers : heads);
        if (status)
            return status;
    }
    return HEED_OK;
}

static bool same(const heed_ranges *a, const heed_ranges *b)
{
    return a->count == b->count &&
           (a->count == 0 || !memcmp(a->range, b->range, (size_t)a->count * sizeof a->range[0]));
}

static heed_status copy(heed_ranges *to, const heed_ranges *from)
{
    for (int i = 0; i < from->count; i++) {
        const heed_status status = add_range(to, from->range[i]);
        if (status)
            return status;
    }
    return HEED_OK;
}

static heed_status add_group(heed_spec *spec, const heed_ranges *layers, const heed_ranges *heads)
{
    heed_group *grown = realloc(spec->group, ((size_t)spec->groups + 1) * sizeof *grown);
    if (!grown)
        return heed_fail(HEED_NO_MEMORY, "no memory for the groups of a spec");
    spec->group = grown;
    heed_group *group = &grown[spec->groups++];
    *group = (heed_group){.layers = {0}};
    for (int stage = 0; stage < HEED_STAGES; stage++)
        group->root[stage] = HEED_ABSENT;
    const heed_status status = copy(&group->layers, layers);
    return status ? status : copy(&group->heads, heads);
}

/* A clause joins the first group of its layers and heads that no other group which gives the stage comes
 * after, so that the last clause written is the one that holds; else it begins a group. */
heed_status heed_place_clause(heed_reader *reader, const heed_ranges *layers, const heed_ranges *heads,
                              heed_stage stage, const char *at, int root)
{
    heed_spec *spec = reader->spec;
    int place = -1;
    for (int g = 0; g < spec->groups; g++) {
        heed_group *group = &spec->group[g];
        const bool gives = group->root[stage] != HEED_ABSENT;
        if (!same(&group->layers, layers) || !same(&group->heads, heads)) {
            place = gives ? -1 : place;
            continue;
        }
        if (gives && !(g == 0 && reader->replaceable[stage]))
            return heed_reader_fail(reader, at, "'%s' stands twice; its first clause is at column %d",
                                    heed_stage_name(stage), group->column[stage]);
        group->root[stage] = HEED_ABSENT;
        place = place < 0 ? g : place;
    }
    if (place < 0) {
        const heed_status status = add_group(spec, layers, heads);
        if (status)
            return status;
        place = spec->groups - 1;
    }
    spec->group[place].root[stage] = root;
    spec->group[place].column[stage] = heed_reader_column(reader, at);
    reader->replaceable[stage] =
        reader->replaceable[stage] && spec->group[0].root[stage] != HEED_ABSENT && place > 0;
    return HEED_OK;
}
