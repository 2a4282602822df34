/* RetrievalAttention: nearest keys out of a graph that was made with the queries of the prompt.
 *
 * Always read are the first `sinks` keys, the newest `recent` and those newer than the index. Of the others
 * each query head takes the k of largest product that a beam search finds from key to linked key; a kv head
 * reads what any of its query heads takes. One softmax over all that is read is what merging partial ones
 * gives.
 *
 * Queries and keys lie apart in space, so links come from queries: for each of the last `queries` queries of
 * the kv head's query heads its `links` keys of largest product, in order, are linked with one another,
 * nearest ranks first, up to `degree` links a key, newest queries first (RoarGraph's projection). One link of
 * each key goes to the key after it, so that all can be reached. The search begins at the best keys of the
 * newest queries, keeps the `beam` best keys seen and ends when all of them were followed.
 *
 * index=keys links by products of keys with keys, to compare with; index=flat compares the query with every
 * key. While generating only; prompts are read in full.
 */
#include "attend/select/index.h"

enum { K, SINKS, RECENT, QUERIES, LINKS, DEGREE, BEAM, INDEX, FRESH };
enum { GRAPH, KEYS, FLAT };
enum { ENTRIES = 8 };

static bool is_flat(const heed_form_state *form)
{
    return heed_arg_int(form, INDEX) == FLAT;
}

static int beam_of(const heed_form_state *form, int64_t keys)
{
    const int64_t beam =
        heed_arg_int(form, BEAM) > heed_arg_int(form, K) ? heed_arg_int(form, BEAM) : heed_arg_int(form, K);
    return (int)(beam < keys ? beam : keys);
}

/* Numbers of one kv head: entries, then [keys][degree] links, -1 for none. */
static int64_t each(const heed_form_state *form)
{
    return is_flat(form) ? 0 : ENTRIES + form->sizes.keys * heed_arg_int(form, DEGREE);
}

static int64_t numbers(const heed_form_state *form, int64_t keys)
{
    (void)keys; /* the plan's */
    return 1 + form->sizes.kv_heads * each(form);
}

static int64_t shown(const heed_form_state *form)
{
    return heed_arg_int(form, INDEX) == GRAPH ? heed_arg_int(form, QUERIES) : 0;
}

static int64_t work(const heed_form_state *form, int64_t keys)
{
    const int64_t rows =
        heed_arg_int(form, QUERIES) > HEED_INDEX_ROWS ? heed_arg_int(form, QUERIES) : HEED_INDEX_ROWS;
    return 2 * rows * form->sizes.dim + heed_arg_int(form, LINKS) + 3 * (int64_t)beam_of(form, keys);
}

static bool renews(const heed_form_state *form, const heed_recalled *now)
{
    return heed_index_renews(form, now, FRESH);
}

/* score [keys] */
static void score_keys(const heed_recalled *now, int g, const float *query, int64_t keys, float *rows,
                       float *score)
{
    for (int64_t j = 0; j < keys; j += HEED_INDEX_ROWS) {
        const int n = keys - j < HEED_INDEX_ROWS ? (int)(keys - j) : HEED_INDEX_ROWS;
        now->load(now->context, g, j, n, rows, now->dim);
        for (int i = 0; i < n; i++)
            score[j + i] = heed_row_product(query, rows + (int64_t)i * now->dim, now->dim);
    }
}

static void link_keys(int32_t *link, int degree, int32_t from, int32_t to)
{
    int32_t *of = link + (int64_t)from * degree;
    int n = 0;
    while (n < degree && of[n] >= 0 && of[n] != to)
        n++;
    if (n < degree)
        of[n] = to;
}

/* The `most` best keys of a row of scores, which is changed, the best first; returns how many. */
static int best_of(float *score, int64_t keys, int most, float *copy, int32_t *best)
{
    int count = 0;
    memcpy(copy, score, (size_t)keys * sizeof *copy);
    heed_keep_highest(score, (int)keys, most, copy);
    for (int64_t j = 0; j < keys; j++) {
        if (score[j] == -INFINITY)
            continue;
        int at = count++;
        for (; at > 0 && score[best[at - 1]] < score[j]; at--)
            best[at] = best[at - 1];
        best[at] = (int32_t)j;
    }
    return count;
}

/* Links the best keys of one query, ranks that lie near each other first. */
static void project(int32_t *link, int degree, const int32_t *best, int count)
{
    for (int apart = 1; apart < count; apart++)
        for (int a = 0; a + apart < count; a++) {
            link_keys(link, degree, best[a], best[a + apart]);
            link_keys(link, degree, best[a + apart], best[a]);
        }
}

/* The queries that make the graph, of query head h: those that are shown, or keys that stand evenly apart. */
static int64_t take_queries(const heed_form_state *form, const heed_recalled *now, int h, int g, float *query)
{
    const heed_memory *memory = now->memory;
    int64_t count = 0;
    if (heed_arg_int(form, INDEX) == GRAPH && memory->show)
        count = memory->show(memory->show_context, h, query);
    if (count > 0)
        return count;
    count = heed_arg_int(form, QUERIES) < now->keys ? heed_arg_int(form, QUERIES) : now->keys;
    for (int64_t i = 0; i < count; i++)
        now->load(now->context, g, now->keys * i / count, 1, query + i * now->dim, now->dim);
    return count;
}

static void make_graph(const heed_form_state *form, const heed_recalled *now, int g)
{
    const int group = now->heads / now->kv_heads, degree = heed_arg_int(form, DEGREE);
    const int64_t most =
        heed_arg_int(form, QUERIES) > HEED_INDEX_ROWS ? heed_arg_int(form, QUERIES) : HEED_INDEX_ROWS;
    int32_t *entry = now->memory->number + 1 + g * each(form), *link = entry + ENTRIES;
    float *score = now->work, *copy = score + now->keys, *rows = copy + now->keys,
          *query = rows + most * now->dim;
    int32_t *best = (int32_t *)(void *)(query + most * now->dim);
    for (int64_t i = 0; i < now->keys * degree; i++)
        link[i] = i % degree ? -1 : (int32_t)((i / degree + 1) % now->keys);
    for (int i = 0; i < ENTRIES; i++)
        entry[i] = 0;
    for (int h = g * group; h < (g + 1) * group; h++) {
        const int64_t count = take_queries(form, now, h, g, query);
        for (int64_t i = count - 1; i >= 0; i--) {
            score_keys(now, g, query + i * now->dim, now->keys, rows, score);
            const int found = best_of(score, now->keys, heed_arg_int(form, LINKS), copy, best);
            project(link, degree, best, found);
            const int64_t place = (count - 1 - i) * group + h - g * group;
            if (found > 0 && place < ENTRIES)
                entry[place] = best[0];
        }
    }
}

static void remember(const heed_form_state *form, const heed_recalled *now)
{
    now->memory->number[0] = 0;
    for (int g = 0; g < now->kv_heads; g++) {
        now->memory->number[0] |= !heed_index_finite(now, g, now->work + 2 * now->keys);
        if (!is_flat(form))
            make_graph(form, now, g);
    }
}

/* Keys seen so far that are best, the best first. */
typedef struct beam {
    int size, most;
    float *score;
    int32_t *key, *followed;
} beam;

static void offer(beam *b, int32_t key, float score)
{
    if (b->size == b->most && !(score > b->score[b->size - 1]))
        return;
    int at = b->size < b->most ? b->size++ : b->size - 1;
    for (; at > 0 && b->score[at - 1] < score; at--) {
        b->score[at] = b->score[at - 1];
        b->key[at] = b->key[at - 1];
        b->followed[at] = b->followed[at - 1];
    }
    b->score[at] = score;
    b->key[at] = key;
    b->followed[at] = 0;
}

static void search(const heed_form_state *form, const heed_recalled *now, int g, const float *query)
{
    const int degree = heed_arg_int(form, DEGREE);
    const int32_t *entry = now->memory->number + 1 + g * each(form), *link = entry + ENTRIES;
    const int64_t keys = now->memory->keys;
    float *seen = now->work, *row = now->work + 2 * now->keys;
    beam b = {.most = beam_of(form, keys), .score = row + now->dim};
    b.key = (int32_t *)(void *)(b.score + b.most);
    b.followed = b.key + b.most;
    memset(seen, 0, (size_t)keys * sizeof *seen);
    const int32_t *next = entry;
    for (int n = ENTRIES; n > 0;) {
        for (int i = 0; i < n; i++) {
            const int32_t key = next[i];
            if (key < 0 || key >= keys || seen[key] != 0)
                continue;
            seen[key] = 1;
            now->load(now->context, g, key, 1, row, now->dim);
            offer(&b, key, heed_row_product(query, row, now->dim));
            now->memory->scanned++;
        }
        int at = 0;
        while (at < b.size && b.followed[at])
            at++;
        n = at < b.size ? degree : 0;
        if (n > 0) {
            b.followed[at] = 1;
            next = link + (int64_t)b.key[at] * degree;
        }
    }
    for (int i = 0; i < b.size && i < heed_arg_int(form, K); i++)
        now->keep[g][b.key[i]] = 1;
}

static void scan(const heed_form_state *form, const heed_recalled *now, int g, const float *query)
{
    const int64_t keys = now->memory->keys;
    float *score = now->work, *copy = score + now->keys, *rows = copy + now->keys;
    score_keys(now, g, query, keys, rows, score);
    heed_index_mark_best(score, keys, heed_arg_int(form, K), now->keep[g], copy);
    now->memory->scanned += keys;
}

static void recall_keys(const heed_form_state *form, const heed_recalled *now)
{
    const int group = now->heads / now->kv_heads;
    for (int h = 0; h < now->heads; h++)
        (is_flat(form) ? scan : search)(form, now, h / group, now->query[h]);
    for (int g = 0; g < now->kv_heads; g++)
        for (int64_t j = 0; j < now->keys; j++)
            now->keep[g][j] |= j < heed_arg_int(form, SINKS) || j >= now->keys - heed_arg_int(form, RECENT);
}

static const heed_option indexes[] = {{"graph", NULL}, {"keys", NULL}, {"flat", NULL}, {NULL, NULL}};

#define COUNT(word, default_value, least_value, most_value, words)                                           \
    {                                                                                                        \
        .name = word, .kind = HEED_ARG_INT, .value = default_value, .least = least_value,                    \
        .most = most_value, .summary = words                                                                 \
    }

static const heed_arg args[] = {
    COUNT("k", 100, 1, INFINITY, "keys that a query head finds"),
    COUNT("sinks", 128, 0, INFINITY, "first keys, always read"),
    COUNT("recent", 512, 0, INFINITY, "newest keys, always read"),
    COUNT("queries", 128, 1, 4096, "last queries of the prompt that make links"),
    COUNT("links", 32, 1, 256, "keys of such a query that are linked"),
    COUNT("degree", 32, 2, 256, "most links of a key"),
    COUNT("beam", 100, 1, 65536, "keys that a search keeps, at least k"),
    {.name = "index",
     .kind = HEED_ARG_CHOICE,
     .options = indexes,
     .summary = "a graph by queries, one by keys alone, or all keys"},
    HEED_FRESH_ARG,
    {0},
};

static const heed_recall recall = {.flags = HEED_RECALL_AT_ONCE,
                                   .unit = heed_index_unit,
                                   .numbers = numbers,
                                   .work = work,
                                   .shown = shown,
                                   .renews = renews,
                                   .remember = remember,
                                   .recall = recall_keys};

const heed_form HEED_FORM(select_retrieval) = {
    .name = "retrieval",
    .stage = HEED_SELECT,
    .summary =
        "while generating: keys that a graph made with the prompt's queries leads to, first and newest ones",
    .formula = "sinks, recent, and k keys of largest q · k_j found by beam search in the query-aware graph",
    .source = "Liu et al.: RetrievalAttention, 2024",
    .row = "001.151",
    .args = args,
    .recall = &recall,
};
