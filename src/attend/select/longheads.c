/* LongHeads: each head reads chunks of its choice, moved together so that no distance is longer than a model
 * was trained for.
 *
 *     o = attention of a chunk's queries over all its keys, both turned to positions 0 .. chunk - 1
 *     c = softmax(mean of o · k_j) k_j over the same keys             represents the chunk
 *     a query reads the first chunk, its own, the one before, and of the others those of largest q · c (q not
 *     turned, of equal ones the lower): length / chunk chunks together
 *
 * They stand in order, one behind the other from position 0 on, and the query stands in the last of them at
 * its place. While a text has no more chunks than that, nothing is changed. A chunk is represented once, when
 * its last token is read, and remembered; until then its queries are. After a cut, a chunk whose queries are
 * gone is read again. No parameters. Lu et al.: LongHeads, 2024.
 */
#include "attend/form.h"
#include "attend/select/cut.h"
#include "base/arena.h"
#include "base/vectors.h"

#include <float.h>
#include <heed/gather.h>
#include <heed/recall.h>
#include <string.h>

enum { CHUNK, LENGTH };
enum { ROWS = 128 }; /* queries that choose at a time */

static int64_t chunk_of(const heed_form_state *form)
{
    return heed_arg_int(form, CHUNK);
}

/* Chunks that a query reads. */
static int64_t read_of(const heed_form_state *form)
{
    return heed_arg_int(form, LENGTH) / chunk_of(form);
}

static int64_t chunks_of(const heed_form_state *form, int64_t keys)
{
    return (keys + chunk_of(form) - 1) / chunk_of(form);
}

static heed_status resolve(heed_form_state *form)
{
    if (read_of(form) < 3)
        return heed_fail(
            HEED_INVALID,
            "select=longheads: length is %d, it must hold at least 3 chunks of %d: the first, the one "
            "before and the query's own",
            heed_arg_int(form, LENGTH), heed_arg_int(form, CHUNK));
    if (read_of(form) > UINT16_MAX)
        return heed_fail(HEED_INVALID, "select=longheads: length is %lld chunks, the most is %d",
                         (long long)read_of(form), UINT16_MAX);
    if (form->sizes.dim != form->sizes.value_dim)
        return heed_fail(HEED_INVALID,
                         "select=longheads compares values with keys, which have %lld and %lld entries",
                         (long long)form->sizes.value_dim, (long long)form->sizes.dim);
    return HEED_OK;
}

typedef struct room {
    float *core;           /* [chunks][dim] what represents them: the head's in the memory, or here */
    float *query;          /* [chunk][dim] queries of the chunk that is being read, likewise */
    float *key, *value;    /* [chunk][dim] */
    float *mean, *weight;  /* [chunk] */
    float *summary;        /* [dim] */
    float *plain;          /* [ROWS][dim] queries that are not turned */
    float *score, *work;   /* [chunks] */
    int32_t *pos;          /* [chunk or ROWS, the larger] */
    uint16_t *reads;       /* [N][chunks] 1 + how many chunks that it reads stand before */
    int32_t *list, *place; /* [N] queries that read a chunk, and where they stand */
} room;

static room carve(const heed_form_state *form, void *base, size_t *bytes)
{
    const size_t dim = (size_t)form->sizes.dim, N = (size_t)form->sizes.queries;
    const size_t chunks = (size_t)chunks_of(form, form->sizes.keys), chunk = (size_t)chunk_of(form);
    const size_t held = chunk < (size_t)form->sizes.keys ? chunk : (size_t)form->sizes.keys;
    heed_arena arena = {.base = base};
    room r = {.core = heed_arena_take(&arena, chunks * dim, sizeof(float))};
    float **each[] = {&r.query, &r.key, &r.value};
    for (int i = 0; i < 3; i++)
        *each[i] = heed_arena_take(&arena, held * dim, sizeof(float));
    r.mean = heed_arena_take(&arena, held, sizeof(float));
    r.weight = heed_arena_take(&arena, held, sizeof(float));
    r.summary = heed_arena_take(&arena, dim, sizeof(float));
    r.plain = heed_arena_take(&arena, ROWS * dim, sizeof(float));
    r.score = heed_arena_take(&arena, chunks, sizeof(float));
    r.work = heed_arena_take(&arena, chunks, sizeof(float));
    r.pos = heed_arena_take(&arena, held > ROWS ? held : ROWS, sizeof(int32_t));
    r.reads = heed_arena_take(&arena, N * chunks, sizeof *r.reads);
    r.list = heed_arena_take(&arena, N, sizeof(int32_t));
    r.place = heed_arena_take(&arena, N, sizeof(int32_t));
    *bytes = arena.used;
    return r;
}

static size_t bytes_of(const heed_form_state *form)
{
    size_t bytes;
    carve(form, NULL, &bytes);
    return bytes;
}

/* [H] the chunk that the queries belong to */
static int64_t numbers(const heed_form_state *form, int64_t keys)
{
    (void)keys;
    return form->sizes.heads;
}

/* [H][chunks][dim] chunks, [H][chunk][dim] queries */
static int64_t reals(const heed_form_state *form, int64_t keys)
{
    return form->sizes.heads * (chunks_of(form, keys) + chunk_of(form)) * form->sizes.dim;
}

static bool ready(const heed_form_state *form, const heed_memory *memory, int64_t before)
{
    return before % chunk_of(form) == 0 || memory->number[0] == before / chunk_of(form);
}

static room room_of(const heed_form_state *form, const heed_gathering *at)
{
    size_t bytes;
    room r = carve(form, at->work, &bytes);
    const int64_t chunks = chunks_of(form, form->sizes.keys);
    if (at->memory) {
        r.core = at->memory->real + at->head * chunks * at->dim;
        r.query = at->memory->real + (form->sizes.heads * chunks + at->head * chunk_of(form)) * at->dim;
    }
    return r;
}

/* weight = softmax(scale query · key) */
static void weigh(const room *r, const float *query, float scale, int64_t n, int dim)
{
    float most = -INFINITY, sum = 0;
    for (int64_t j = 0; j < n; j++) {
        r->weight[j] = scale * heed_row_product(query, r->key + j * dim, dim);
        most = r->weight[j] > most ? r->weight[j] : most;
    }
    for (int64_t j = 0; j < n; j++) {
        r->weight[j] = heed_exp(r->weight[j] - most);
        sum += r->weight[j];
    }
    for (int64_t j = 0; j < n; j++)
        r->weight[j] /= sum;
}

/* What represents chunk c, all of whose queries are here. */
static void represent(const heed_form_state *form, const heed_gathering *at, const room *r, int64_t c)
{
    const int64_t l = chunk_of(form);
    const int dim = at->dim;
    float *core = r->core + c * dim;
    for (int64_t j = 0; j < l; j++)
        r->pos[j] = (int32_t)j;
    at->place_keys(at, c * l, l, r->pos, r->key, dim);
    at->load_values(at, c * l, l, r->value, dim);
    memset(r->mean, 0, (size_t)l * sizeof *r->mean);
    for (int64_t i = 0; i < l; i++) {
        weigh(r, r->query + i * dim, 1.0f, l, dim); /* queries have their scale */
        heed_row_add(r->mean, 1.0f / (float)l, r->weight, (int)l);
    }
    memset(r->summary, 0, (size_t)dim * sizeof *r->summary);
    memset(core, 0, (size_t)dim * sizeof *core);
    for (int64_t j = 0; j < l; j++)
        heed_row_add(r->summary, r->mean[j], r->value + j * dim, dim);
    weigh(r, r->summary, (float)at->query_scale, l, dim);
    for (int64_t j = 0; j < l; j++)
        heed_row_add(core, r->weight[j], r->key + j * dim, dim);
}

/* Queries of this execution into their chunks, and the chunks that they complete. */
static void read_chunks(const heed_form_state *form, const heed_gathering *at, const room *r)
{
    const int64_t l = chunk_of(form);
    for (int64_t c = at->before / l; c * l < at->keys; c++) {
        const int64_t first = c * l > at->before ? c * l : at->before;
        const int64_t end = (c + 1) * l < at->keys ? (c + 1) * l : at->keys;
        for (int64_t t = first; t < end; t++)
            r->pos[t - first] = (int32_t)(t - c * l);
        at->place_queries(at, first - at->before, end - first, r->pos, r->query + (first - c * l) * at->dim,
                          at->dim);
        if (at->memory)
            at->memory->number[at->head] = (int32_t)c;
        if (end == (c + 1) * l)
            represent(form, at, r, c);
    }
}

/* The chunks that query i reads, which stands in chunk `own`, beyond the first that are all read. */
static void choose(const heed_form_state *form, const room *r, const float *query, int dim, int64_t own,
                   uint16_t *reads)
{
    const int64_t others = read_of(form) - 3;
    for (int64_t c = 1; c < own - 1; c++) {
        const float value = heed_row_product(query, r->core + c * dim, dim);
        r->score[c - 1] = value > -FLT_MAX ? value : -FLT_MAX;
    }
    heed_keep_highest(r->score, (int)(own - 2), others, r->work);
    uint16_t rank = 0;
    memset(reads, 0, (size_t)chunks_of(form, form->sizes.keys) * sizeof *reads);
    for (int64_t c = 0; c <= own; c++)
        if (c == 0 || c >= own - 1 || r->score[c - 1] != -INFINITY)
            reads[c] = ++rank;
}

static void meet_chunk(const heed_form_state *form, const heed_gathering *at, const room *r, int64_t c,
                       int64_t first, int64_t queries)
{
    const int64_t l = chunk_of(form), chunks = chunks_of(form, form->sizes.keys), most = read_of(form);
    const int64_t end = (c + 1) * l < at->keys ? (c + 1) * l : at->keys;
    int64_t count = 0;
    for (int64_t i = first; i < queries; i++) {
        const int64_t rank = r->reads[i * chunks + c] - 1, own = (at->before + i) / l;
        if (own < c || rank < 0)
            continue;
        r->list[count] = (int32_t)i;
        /* from where its own chunk, the last, stands to where this one does */
        r->place[count++] = (int32_t)(at->query_pos[i] - (own - c) * l + (most - 1 - rank) * l);
    }
    if (count > 0)
        at->meet(at, &(heed_meeting){.query = r->list,
                                     .queries = count,
                                     .query_pos = r->place,
                                     .first_key = c * l,
                                     .keys = end - c * l});
}

static void gather(const heed_form_state *form, const heed_gathering *at)
{
    const int64_t l = chunk_of(form), chunks = chunks_of(form, form->sizes.keys);
    const int64_t own = at->keys - at->before, queries = own < at->queries ? own : at->queries;
    room r = room_of(form, at);
    read_chunks(form, at, &r);
    int64_t whole = read_of(form) * l - at->before; /* queries that read all chunks so far */
    whole = whole < 0 ? 0 : whole > queries ? queries : whole;
    if (whole > 0)
        at->meet(at, &(heed_meeting){.queries = whole, .keys = at->before + whole});
    memset(r.pos, 0, ROWS * sizeof *r.pos);
    for (int64_t i0 = whole; i0 < queries; i0 += ROWS) {
        const int64_t n = queries - i0 < ROWS ? queries - i0 : ROWS;
        at->place_queries(at, i0, n, r.pos, r.plain, at->dim);
        for (int64_t i = 0; i < n; i++)
            choose(form, &r, r.plain + i * at->dim, at->dim, (at->before + i0 + i) / l,
                   r.reads + (i0 + i) * chunks);
    }
    for (int64_t c = 0; c * l < at->keys && whole < queries; c++)
        meet_chunk(form, at, &r, c, whole, queries);
}

static int64_t unit(const heed_form_state *form)
{
    (void)form;
    return 1;
}

static const heed_arg args[] = {
    [CHUNK] = {.name = "chunk",
               .kind = HEED_ARG_INT,
               .value = 256,
               .least = 1,
               .most = 1 << 20,
               .summary = "keys in a chunk"},
    [LENGTH] = {.name = "length",
                .kind = HEED_ARG_INT,
                .value = 2048,
                .least = 1,
                .most = INFINITY,
                .summary = "positions that the model was trained with"},
    {0},
};

static const heed_gather_rule rule = {.places = true, .ready = ready, .bytes = bytes_of, .gather = gather};

static const heed_recall recall = {
    .flags = HEED_RECALL_GATHERS, .unit = unit, .numbers = numbers, .reals = reals};

const heed_form HEED_FORM(select_longheads) = {
    .name = "longheads",
    .stage = HEED_SELECT,
    .summary = "chunks that each head chooses, moved together within the trained length",
    .formula = "first, previous, own and best chunks by q · c, one behind the other",
    .source = "Lu et al.: LongHeads: Multi-Head Attention is Secretly a Long Context Processor, 2024",
    .row = "001.149",
    .flags = HEED_NEEDS_CAUSAL,
    .args = args,
    .resolve = resolve,
    .gathers = &rule,
    .recall = &recall,
};
