/* Ltri-LLM: spans of a text that belong together, found in the triangles of attention maps, and read again
 * when they are asked for.
 *
 *     A_ij = mean over the heads of a layer of softmax over the keys of a chunk up to i, i and j in the chunk
 *     S(a, b) = sum over a <= j <= i <= b of (A_ij - theta)
 *     spans are the stretches of `least` to `most` tokens of largest S above 0, one after the other; what
 * overlaps those chosen by more than `iou` of the union is dropped, else cut to its longest stretch that is
 * free
 *
 * What is in no span, the remainder, goes in stretches of up to `most`, so every token is in one of either.
 * The index of a span is the mean of its keys, by kv head. New tokens read the first `sinks` keys, at least
 * the last `window`, and between them the spans that are elected: every head votes for those of largest mean
 * query · index, as many as the budget holds; those of most votes, of equal ones of largest sum, are read by
 * all heads, as long as they fit into `budget` keys. The queries of a chunk that come together elect
 * together; a token that comes alone reads on with what was elected for up to `persist` tokens.
 *
 * Positions stay what they are. A chunk's spans are found when its last token is read; until then its queries
 * are remembered. After a cut, a chunk whose queries are gone is read again. All heads vote: which of them
 * retrieve is not known. Tang et al.: Ltri-LLM, 2024.
 */
#include "attend/select/ltri.h"

/* [chunk][chunk] sums over the heads of a chunk's map, its queries being in the memory. */
static void add_map(const heed_form_state *form, const heed_gathering *at, const heed_ltri *l, int head,
                    int64_t c)
{
    const int64_t chunk = heed_ltri_chunk(form);
    const float *query = heed_ltri_queries(form, at->memory, head);
    const int64_t kv = head * form->sizes.kv_heads / form->sizes.heads;
    at->load_keys_of(at, (int)kv, c * chunk, chunk, l->key, at->dim);
    for (int64_t i = 0; i < chunk; i++) {
        float most = -INFINITY, sum = 0, *weight = l->weight;
        for (int64_t j = 0; j <= i; j++) {
            weight[j] = heed_ltri_product(query + i * at->dim, l->key + j * at->dim, at->dim);
            most = weight[j] > most ? weight[j] : most;
        }
        for (int64_t j = 0; j <= i; j++)
            sum += weight[j] = heed_exp(weight[j] - most);
        for (int64_t j = 0; j <= i; j++)
            l->map[i * chunk + j] += weight[j] / (sum * (float)form->sizes.heads);
    }
}

/* score[a * most + n]: S of the n + 1 tokens from a on; -inf where there is none. */
static void score_spans(const heed_form_state *form, const heed_ltri *l)
{
    const int64_t chunk = heed_ltri_chunk(form), least = heed_arg_int(form, HEED_LTRI_LEAST);
    const int64_t most = heed_arg_int(form, HEED_LTRI_MOST);
    const double theta = form->arg[HEED_LTRI_THETA].number;
    for (int64_t a = 0; a < chunk; a++) {
        double sum = 0;
        for (int64_t n = 0; n < most; n++) {
            const int64_t b = a + n;
            l->score[a * most + n] = -INFINITY;
            if (b >= chunk)
                continue;
            for (int64_t j = a; j <= b; j++)
                sum += (double)l->map[b * chunk + j] - theta;
            if (n + 1 >= least)
                l->score[a * most + n] = (float)sum;
        }
    }
}

/* The longest stretch of [a, b] that no span holds, into *a and *b; its length. */
static int64_t longest_free(const uint8_t *taken, int64_t *a, int64_t *b)
{
    int64_t best = 0, from = *a, best_from = *a;
    for (int64_t t = *a; t <= *b; t++) {
        from = taken[t] ? t + 1 : from;
        if (t + 1 - from > best) {
            best = t + 1 - from;
            best_from = from;
        }
    }
    *a = best_from;
    *b = best_from + best - 1;
    return best;
}

static bool overlaps(const heed_ltri *l, int64_t first, int64_t chosen, int64_t a, int64_t b, double iou)
{
    for (int64_t s = first; s < chosen; s++) {
        const int64_t from = l->span[s].from > a ? l->span[s].from : a;
        const int64_t until = l->span[s].until < b + 1 ? l->span[s].until : b + 1;
        const int64_t both = until - from, all = l->span[s].until - l->span[s].from + b + 1 - a - both;
        if (both > 0 && (double)both > iou * (double)all)
            return true;
    }
    return false;
}

/* Chooses spans of the map at hand into l->span[0..], chunk-relative; returns how many. */
static int64_t choose_spans(const heed_form_state *form, const heed_ltri *l)
{
    const int64_t chunk = heed_ltri_chunk(form), most = heed_arg_int(form, HEED_LTRI_MOST);
    const int64_t least = heed_arg_int(form, HEED_LTRI_LEAST);
    int64_t count = 0;
    memset(l->taken, 0, (size_t)chunk);
    for (;;) {
        int64_t best = 0;
        for (int64_t n = 1; n < chunk * most; n++)
            best = l->score[n] > l->score[best] ? n : best;
        if (!(l->score[best] > 0))
            return count;
        int64_t a = best / most, b = a + best % most;
        l->score[best] = -INFINITY;
        if (overlaps(l, 0, count, a, b, form->arg[HEED_LTRI_IOU].number) ||
            longest_free(l->taken, &a, &b) < least)
            continue;
        memset(l->taken + a, 1, (size_t)(b + 1 - a));
        l->span[count++] = (heed_ltri_span){(int32_t)a, (int32_t)(b + 1)};
    }
}

/* Stretches of what no span holds. */
static int64_t add_remainder(const heed_form_state *form, const heed_ltri *l, int64_t count)
{
    const int64_t chunk = heed_ltri_chunk(form), most = heed_arg_int(form, HEED_LTRI_MOST);
    for (int64_t a = 0, b; a < chunk; a = b) {
        b = a + 1;
        if (l->taken[a])
            continue;
        while (b < chunk && !l->taken[b] && b - a < most)
            b++;
        l->span[count++] = (heed_ltri_span){(int32_t)a, (int32_t)b};
    }
    return count;
}

/* Spans of chunk c, all of whose queries are in the memory, go behind those of the chunks before. */
static void index_chunk(const heed_form_state *form, const heed_gathering *at, const heed_ltri *l, int64_t c)
{
    const int64_t chunk = heed_ltri_chunk(form), most = heed_ltri_spans(form, form->sizes.keys);
    heed_memory *memory = at->memory;
    memset(l->map, 0, (size_t)(chunk * chunk) * sizeof *l->map);
    for (int h = 0; h < form->sizes.heads; h++)
        add_map(form, at, l, h, c);
    score_spans(form, l);
    const int64_t count = add_remainder(form, l, choose_spans(form, l));
    const int64_t first = c > 0 ? heed_ltri_ends(form, memory)[c - 1] : 0;
    heed_ltri_span *span = heed_ltri_list(form, memory) + first;
    for (int64_t s = 0; s < count; s++)
        span[s] =
            (heed_ltri_span){(int32_t)(c * chunk) + l->span[s].from, (int32_t)(c * chunk) + l->span[s].until};
    heed_ltri_ends(form, memory)[c] = (int32_t)(first + count);
    for (int g = 0; g < form->sizes.kv_heads; g++)
        for (int64_t s = 0; s < count; s++) {
            const int64_t keys = span[s].until - span[s].from;
            float *mean = heed_ltri_index(form, memory) + (g * most + first + s) * at->dim;
            at->load_keys_of(at, g, span[s].from, keys, l->key, at->dim);
            memset(mean, 0, (size_t)at->dim * sizeof *mean);
            for (int64_t j = 0; j < keys; j++)
                for (int d = 0; d < at->dim; d++)
                    mean[d] += l->key[j * at->dim + d] / (float)keys;
        }
}

/* Votes of a head for spans whose beginning lies before `near`. */
static void vote(const heed_form_state *form, const heed_gathering *at, const heed_ltri *l, int head,
                 int64_t spans, int64_t first, int64_t count, int64_t near)
{
    const int64_t most = heed_ltri_spans(form, form->sizes.keys),
                  kv = head * form->sizes.kv_heads / form->sizes.heads;
    const heed_ltri_span *span = heed_ltri_list(form, at->memory);
    const float *index = heed_ltri_index(form, at->memory) + kv * most * at->dim;
    memset(l->mean, 0, (size_t)at->dim * sizeof *l->mean);
    for (int64_t i = first; i < first + count; i++) {
        at->load_queries_of(at, head, i, 1, l->weight, at->dim);
        for (int d = 0; d < at->dim; d++)
            l->mean[d] += l->weight[d] / (float)count;
    }
    for (int64_t s = 0; s < spans; s++) {
        const float value = heed_ltri_product(l->mean, index + s * at->dim, at->dim);
        l->value[s] = span[s].from >= near ? -INFINITY : value == value ? value : 0;
        l->total[s] += span[s].from >= near ? 0 : l->value[s];
    }
    for (int64_t read = 0;;) {
        int64_t best = 0;
        for (int64_t s = 1; s < spans; s++)
            best = l->value[s] > l->value[best] ? s : best;
        read += span[best].until - span[best].from;
        if (l->value[best] == -INFINITY || read > heed_arg_int(form, HEED_LTRI_BUDGET))
            return;
        l->value[best] = -INFINITY;
        l->votes[best]++;
    }
}

/* Elects the spans that the queries first .. of chunk c read, in the order of the text. */
static void elect(const heed_form_state *form, const heed_gathering *at, const heed_ltri *l, int64_t c,
                  int64_t first, int64_t count)
{
    const int64_t spans = c > 0 ? heed_ltri_ends(form, at->memory)[c - 1] : 0;
    /* and what comes to lie before the window while the election holds */
    const int64_t near = heed_ltri_near(form, at->before + first) + heed_arg_int(form, HEED_LTRI_PERSIST) - 1;
    const heed_ltri_span *span = heed_ltri_list(form, at->memory);
    int32_t *elected = heed_ltri_elected(form, at->memory, c), found = 0;
    memset(l->votes, 0, (size_t)spans * sizeof *l->votes);
    memset(l->total, 0, (size_t)spans * sizeof *l->total);
    for (int h = 0; h < form->sizes.heads && spans > 0; h++)
        vote(form, at, l, h, spans, first, count, near);
    memset(l->taken, 0, (size_t)spans);
    for (int64_t read = 0; spans > 0;) {
        int64_t best = -1;
        for (int64_t s = 0; s < spans; s++) {
            const bool more = best < 0 || l->votes[s] > l->votes[best] ||
                              (l->votes[s] == l->votes[best] && l->total[s] > l->total[best]);
            best = !l->taken[s] && l->votes[s] > 0 && more ? s : best;
        }
        if (best < 0)
            break;
        read += span[best].until - span[best].from;
        if (read > heed_arg_int(form, HEED_LTRI_BUDGET))
            break;
        l->taken[best] = 1;
    }
    for (int64_t s = 0; s < spans; s++)
        if (l->taken[s])
            elected[1 + found++] = (int32_t)s;
    elected[0] = found;
    heed_ltri_since(at->memory)[0] = (int32_t)(at->before + first);
}

/* The first head does what all heads share. */
static void survey(const heed_form_state *form, const heed_gathering *at)
{
    const int64_t chunk = heed_ltri_chunk(form);
    if (at->head != 0)
        return;
    const heed_ltri l = heed_ltri_room(form, at->work);
    for (int64_t c = at->before / chunk; c * chunk < at->keys; c++) {
        const int64_t first = c * chunk > at->before ? c * chunk : at->before;
        const int64_t end = (c + 1) * chunk < at->keys ? (c + 1) * chunk : at->keys;
        const int64_t since = first - heed_ltri_since(at->memory)[0];
        const bool goes_on = at->keys - at->before == 1 && first > c * chunk && since > 0 &&
                             since < heed_arg_int(form, HEED_LTRI_PERSIST);
        if (!goes_on)
            elect(form, at, &l, c, first - at->before, end - first);
        for (int h = 0; h < form->sizes.heads; h++)
            at->load_queries_of(at, h, first - at->before, end - first,
                                heed_ltri_queries(form, at->memory, h) + (first - c * chunk) * at->dim,
                                at->dim);
        heed_ltri_since(at->memory)[1] = (int32_t)c;
        if (end == (c + 1) * chunk)
            index_chunk(form, at, &l, c);
    }
}

static int by_number(const void *x, const void *y)
{
    const int32_t a = *(const int32_t *)x, b = *(const int32_t *)y;
    return (a > b) - (a < b);
}

/* Sinks, elected spans and near keys of the queries of one chunk. */
static int64_t list_keys(const heed_form_state *form, const heed_gathering *at, const heed_ltri *l, int64_t c,
                         int64_t first, int64_t end)
{
    const int64_t near = heed_ltri_near(form, first), sinks = heed_arg_int(form, HEED_LTRI_SINKS);
    const heed_ltri_span *span = heed_ltri_list(form, at->memory);
    const int32_t *elected = heed_ltri_elected(form, at->memory, c);
    const int64_t first_few = sinks < near ? sinks : near;
    int64_t count = 0;
    for (int64_t j = 0; j < first_few; j++)
        l->list[count++] = (int32_t)j;
    for (int32_t n = 0; n < elected[0]; n++)
        for (int64_t j = span[elected[1 + n]].from; j < span[elected[1 + n]].until && j < near; j++)
            if (j >= first_few)
                l->list[count++] = (int32_t)j;
    qsort(l->list, (size_t)count, sizeof *l->list, by_number);
    for (int64_t j = near; j < end; j++)
        l->list[count++] = (int32_t)j;
    return count;
}

static void gather(const heed_form_state *form, const heed_gathering *at)
{
    const int64_t chunk = heed_ltri_chunk(form);
    const heed_ltri l = heed_ltri_room(form, at->work);
    for (int64_t c = at->before / chunk; c * chunk < at->keys; c++) {
        const int64_t first = c * chunk > at->before ? c * chunk : at->before;
        const int64_t end = (c + 1) * chunk < at->keys ? (c + 1) * chunk : at->keys;
        const int64_t keys = list_keys(form, at, &l, c, first, end);
        at->meet(at,
                 &(heed_meeting){
                     .first_query = first - at->before, .queries = end - first, .key = l.list, .keys = keys});
    }
}

static const heed_gather_rule rule = {
    .ready = heed_ltri_ready, .bytes = heed_ltri_bytes, .survey = survey, .gather = gather};

static const heed_recall recall = {.flags = HEED_RECALL_GATHERS,
                                   .unit = heed_ltri_unit,
                                   .numbers = heed_ltri_numbers,
                                   .reals = heed_ltri_reals};

#define WHOLE(called, default_is, least_is, says)                                                            \
    {                                                                                                        \
        .name = called, .kind = HEED_ARG_INT, .value = default_is, .least = least_is, .most = INFINITY,      \
        .summary = says                                                                                      \
    }

static const heed_arg args[] = {
    [HEED_LTRI_CHUNK] = WHOLE("chunk", 512, 2, "tokens whose map is looked at together"),
    [HEED_LTRI_WINDOW] = WHOLE("window", 4096, 2, "last keys that are read in any case, a chunk at least"),
    [HEED_LTRI_SINKS] = WHOLE("sinks", 128, 0, "first keys that are read in any case"),
    [HEED_LTRI_LEAST] = WHOLE("least", 8, 1, "tokens of a span at least"),
    [HEED_LTRI_MOST] = WHOLE("most", 128, 1, "tokens of a span at most"),
    [HEED_LTRI_THETA] =
        {.name = "theta", .value = 0.02, .least = 0, .most = 1, .summary = "weight of no interest"},
    [HEED_LTRI_IOU] = {.name = "iou",
                       .value = 0.5,
                       .least = 0,
                       .most = 1,
                       .summary = "overlap, as a share of the union, beyond which a span is dropped"},
    [HEED_LTRI_BUDGET] = WHOLE("budget", 4096, 0, "keys of spans that are read"),
    [HEED_LTRI_PERSIST] = WHOLE("persist", 16, 1, "tokens, one by one, that go on with what was elected"),
    {0},
};

const heed_form HEED_FORM(select_ltri) = {
    .name = "ltri",
    .stage = HEED_SELECT,
    .summary = "first keys, a window, and spans of the text between them that heads elect",
    .formula = "spans of largest sum of A_ij - theta over their triangle; those of largest mean q · mean k",
    .source = "Tang et al.: Ltri-LLM: Streaming Long Context Inference with Training-Free Dynamic Triangular "
              "Attention Pattern, 2024",
    .row = "000.028",
    .flags = HEED_NEEDS_CAUSAL,
    .args = args,
    .resolve = heed_ltri_resolve,
    .gathers = &rule,
    .recall = &recall,
};
