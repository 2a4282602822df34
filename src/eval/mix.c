#include "eval/mix.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { PARTS = 16384 }; /* of the limit */

/* Parts that a form takes, rounded up; more than all where it does not fit. */
static int64_t parts_of(double bytes, double limit)
{
    const double parts = limit > 0.0 ? ceil(bytes / limit * PARTS - 1e-9) : bytes > 0.0 ? PARTS + 1.0 : 0.0;
    return parts > PARTS ? PARTS + 1 : (int64_t)parts;
}

/* The least loss within 0..PARTS parts of the units so far, and which form of the last one gives it. */
static void add_unit(const double *loss, const double *bytes, int64_t forms, double limit,
                     const double *before, double *best, int16_t *form)
{
    for (int64_t p = 0; p <= PARTS; p++) {
        best[p] = INFINITY;
        form[p] = -1;
    }
    for (int64_t f = 0; f < forms; f++) {
        const int64_t takes = parts_of(bytes[f], limit);
        if (isnan(loss[f]))
            continue;
        for (int64_t p = takes; p <= PARTS; p++)
            if (before[p - takes] + loss[f] < best[p]) {
                best[p] = before[p - takes] + loss[f];
                form[p] = (int16_t)f;
            }
    }
}

heed_status heed_mix_fit(const double *loss, const double *bytes, int64_t units, int64_t forms, double limit,
                         int32_t *choice, bool *fits)
{
    double *best = calloc((size_t)(units + 1) * (PARTS + 1), sizeof *best);
    int16_t *form = calloc((size_t)units * (PARTS + 1), sizeof *form);
    int64_t at = PARTS;
    const bool room = best && form && forms < INT16_MAX;
    for (int64_t u = 0; u < units && room; u++)
        add_unit(loss + u * forms, bytes + u * forms, forms, limit, best + u * (PARTS + 1),
                 best + (u + 1) * (PARTS + 1), form + u * (PARTS + 1));
    *fits = room && (units == 0 || form[(units - 1) * (PARTS + 1) + PARTS] >= 0);
    for (int64_t u = units - 1; u >= 0 && *fits; u--) {
        choice[u] = form[u * (PARTS + 1) + at];
        at -= parts_of(bytes[u * forms + choice[u]], limit);
    }
    free(best);
    free(form);
    return room ? HEED_OK
                : heed_fail(HEED_NO_MEMORY, "no memory to choose among %lld forms", (long long)forms);
}

typedef struct writer {
    char *text;
    size_t size, used;
} writer;

static void HEED_PRINTF(2, 3) put(writer *w, const char *format, ...)
{
    const size_t left = w->used < w->size ? w->size - w->used : 0;
    va_list arguments;
    va_start(arguments, format);
    const int length = vsnprintf(left ? w->text + w->used : NULL, left, format, arguments);
    va_end(arguments);
    w->used += length > 0 ? (size_t)length : 0;
}

/* Whether a layer gives a form to exactly the kv heads that layer `like` gives it to. */
static bool alike(const heed_mix *mix, int64_t layer, int64_t like, int32_t form)
{
    for (int64_t h = 0; h < mix->kv_heads; h++)
        if ((mix->choice[layer * mix->kv_heads + h] == form) !=
            (mix->choice[like * mix->kv_heads + h] == form))
            return false;
    return true;
}

static int64_t heads_with(const heed_mix *mix, int64_t layer, int32_t form)
{
    int64_t count = 0;
    for (int64_t h = 0; h < mix->kv_heads; h++)
        count += mix->choice[layer * mix->kv_heads + h] == form;
    return count;
}

/* "0,2-5" of the numbers for which `in` holds, each standing for `times` numbers in a row. */
static void put_ranges(writer *w, const bool *in, int64_t count, int64_t times)
{
    const char *comma = "";
    for (int64_t i = 0; i < count;) {
        int64_t end = i;
        while (end < count && in[end])
            end++;
        if (end > i) {
            put(w, end * times - i * times > 1 ? "%s%lld-%lld" : "%s%lld", comma, (long long)(i * times),
                (long long)(end * times - 1));
            comma = ",";
        }
        i = end > i ? end : i + 1;
    }
}

/* The clause of a form for all layers that are like this one, when this is the first of them. */
static void put_clause(writer *w, const heed_mix *mix, int64_t layer, int32_t form)
{
    bool layers[1024], heads[1024];
    const bool all = heads_with(mix, layer, form) == mix->kv_heads;
    for (int64_t l = 0; l < mix->layers; l++) {
        layers[l] = alike(mix, l, layer, form);
        if (layers[l] && l < layer)
            return;
    }
    for (int64_t h = 0; h < mix->kv_heads; h++)
        heads[h] = mix->choice[layer * mix->kv_heads + h] == form;
    put(w, "%slayers ", w->used ? "; " : "");
    put_ranges(w, layers, mix->layers, 1);
    put(w, ": heads ");
    if (all)
        put(w, "all");
    else
        put_ranges(w, heads, mix->kv_heads, mix->group);
    put(w, ": cache=%s", mix->policy[form]);
    if (all && mix->type) /* the clause replaces the one that names the type */
        put(w, " > %s", mix->type);
}

size_t heed_mix_write(const heed_mix *mix, char *text, size_t size)
{
    writer w = {text, size, 0};
    int32_t forms = 0;
    if (size)
        *text = 0;
    if (mix->layers > 1024 || mix->kv_heads > 1024)
        return 0;
    if (mix->type)
        put(&w, "cache=%s", mix->type);
    for (int64_t u = 0; u < mix->layers * mix->kv_heads; u++)
        forms = mix->choice[u] >= forms ? mix->choice[u] + 1 : forms;
    for (int32_t f = 0; f < forms; f++) /* those for whole layers first: the later clause counts */
        for (int64_t l = 0; l < mix->layers; l++)
            if (heads_with(mix, l, f) == mix->kv_heads)
                put_clause(&w, mix, l, f);
    for (int32_t f = 0; f < forms; f++)
        for (int64_t l = 0; l < mix->layers; l++)
            if (heads_with(mix, l, f) && heads_with(mix, l, f) < mix->kv_heads)
                put_clause(&w, mix, l, f);
    return w.used;
}
