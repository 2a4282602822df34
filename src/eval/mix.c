#include "eval/mix.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

static double cost_of(const double *table, int64_t forms, int64_t unit, int32_t form)
{
    return form < 0 ? 0.0 : table[unit * forms + form];
}

typedef struct step {
    int64_t unit;
    int32_t form;
    double price; /* loss for each byte saved */
} step;

/* The cheapest step that saves more; unit -1 when there is none. */
static step cheapest(const double *loss, const double *saved, int64_t units, int64_t forms,
                     const int32_t *choice)
{
    step best = {.unit = -1};
    for (int64_t u = 0; u < units; u++)
        for (int32_t f = 0; f < forms; f++) {
            const double more = saved[u * forms + f] - cost_of(saved, forms, u, choice[u]);
            const double price = (loss[u * forms + f] - cost_of(loss, forms, u, choice[u])) / more;
            if (more > 0.0 && (best.unit < 0 || price < best.price))
                best = (step){u, f, price};
        }
    return best;
}

/* The unit whose loss is largest among those without whose form enough is saved; -1 when there is none. */
static int64_t dearest(const double *loss, const double *saved, int64_t units, int64_t forms, double spare,
                       const int32_t *choice)
{
    int64_t worst = -1;
    for (int64_t u = 0; u < units; u++)
        if (choice[u] >= 0 && cost_of(saved, forms, u, choice[u]) <= spare &&
            cost_of(loss, forms, u, choice[u]) > 0.0 &&
            (worst < 0 || cost_of(loss, forms, u, choice[u]) > cost_of(loss, forms, worst, choice[worst])))
            worst = u;
    return worst;
}

double heed_mix_choose(const double *loss, const double *saved, int64_t units, int64_t forms, double need,
                       int32_t *choice)
{
    double sum = 0.0;
    for (int64_t u = 0; u < units; u++)
        choice[u] = -1;
    while (sum < need) {
        const step next = cheapest(loss, saved, units, forms, choice);
        if (next.unit < 0)
            break;
        sum += saved[next.unit * forms + next.form] - cost_of(saved, forms, next.unit, choice[next.unit]);
        choice[next.unit] = next.form;
    }
    for (int64_t u; (u = dearest(loss, saved, units, forms, sum - need, choice)) >= 0;) {
        sum -= cost_of(saved, forms, u, choice[u]);
        choice[u] = -1;
    }
    return sum;
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
