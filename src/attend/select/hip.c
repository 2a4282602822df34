/* HiP: the keys worth most to a block of queries, found by a search in a tree.
 *
 * The blocks of keys that the queries see, first to last, are cut into 2K chunks as equal as whole blocks
 * allow, K = k / block rounded up. A chunk's value is
 *
 *     g = max over the queries of the block of q · the middle key of its middle block
 *
 * The K chunks of largest g are kept, of equal ones the lower, and halved; again, until a chunk is a block:
 * about log2(n/k) rounds of 2K products. A chunk whose middle block none of the queries sees comes last. The
 * blocks of the first `sinks` keys are open too, and those of the `window` last ones, counted from the
 * earliest of the queries. Keys and queries are those that are multiplied.
 *
 * Queries whose index falls into the same run of `queries` are one block. One that comes alone, in decoding,
 * searches by itself, for every token anew. share=group: the query heads of a kv head search together.
 * Lee et al.: HiP Attention, 2024.
 */
#include "attend/select/block.h"

enum { K, QUERIES, BLOCK, SINKS, WINDOW, SHARE };

static int64_t blocks_of(const heed_form_state *form, int argument)
{
    const int64_t block = heed_arg_int(form, BLOCK);
    return (heed_arg_int(form, argument) + block - 1) / block;
}

/* [blocks][dim]: the middle key; while the block fills, its last key so far. */
static int64_t summary_floats(const heed_form_state *form, int dim, int64_t keys)
{
    const int64_t block = heed_arg_int(form, BLOCK);
    return (keys + block - 1) / block * dim;
}

static void summarise(const heed_form_state *form, const heed_rows *keys, int64_t key0, float *summary)
{
    const int64_t block = heed_arg_int(form, BLOCK);
    for (int i = 0; i < keys->count; i++)
        if ((key0 + i) % block <= block / 2)
            memcpy(summary + (key0 + i) / block * keys->dim, keys->in + i * keys->in_stride,
                   (size_t)keys->dim * sizeof *summary);
}

static void block_query(const heed_form_state *form, int head, const float *query, int dim, float *out)
{
    (void)form, (void)head;
    memcpy(out, query, (size_t)dim * sizeof *out);
}

/* Chunks of blocks first[c] .. end[c]-1, rising, and their values. */
typedef struct chunks {
    int32_t *first, *end;
    float *value, *work;
    int count;
} chunks;

static chunks cut(const heed_block_row *row, int64_t wanted)
{
    const int64_t room = row->blocks;
    chunks all = {.first = (int32_t *)(void *)row->work,
                  .end = (int32_t *)(void *)(row->work + room),
                  .value = row->work + 2 * room,
                  .work = row->work + 3 * room};
    int64_t first = 0;
    while (row->value[first] == -INFINITY)
        first++;
    const int64_t blocks = room - first;
    all.count = (int)(wanted < blocks ? wanted : blocks);
    for (int64_t c = 0; c < all.count; c++) {
        all.first[c] = (int32_t)(first + c * blocks / all.count);
        all.end[c] = (int32_t)(first + (c + 1) * blocks / all.count);
    }
    return all;
}

static int32_t middle(const chunks *all, int c)
{
    return all->first[c] + (all->end[c] - all->first[c]) / 2;
}

static void evaluate(const heed_block_row *row, chunks *all)
{
    int32_t block[128];
    for (int c = 0, count; c < all->count; c += count) {
        for (count = 0; count < 128 && c + count < all->count; count++)
            block[count] = middle(all, c + count);
        row->look(row, block, count, all->value + c);
        for (int i = 0; i < count; i++)
            all->value[c + i] = row->value[block[i]] == -INFINITY ? -FLT_MAX : all->value[c + i];
    }
}

/* Drops the chunks whose value is -inf. */
static void drop(chunks *all)
{
    int count = 0;
    for (int c = 0; c < all->count; c++) {
        all->first[count] = all->first[c];
        all->end[count] = all->end[c];
        count += all->value[c] != -INFINITY;
    }
    all->count = count;
}

/* Halves every chunk of more than one block; false when there was none. From the last to the first, so that
 * none is overwritten before it is read. */
static bool halve(chunks *all)
{
    int more = 0;
    for (int c = 0; c < all->count; c++)
        more += all->end[c] - all->first[c] > 1;
    int to = all->count + more;
    for (int c = all->count - 1; c >= 0; c--) {
        const int32_t first = all->first[c], end = all->end[c], half = middle(all, c);
        if (end - first > 1) {
            all->first[--to] = half;
            all->end[to] = end;
        }
        all->first[--to] = first;
        all->end[to] = end - first > 1 ? half : end;
    }
    all->count += more;
    return more > 0;
}

static void choose_blocks(const heed_form_state *form, heed_block_row *row)
{
    const int64_t wanted = blocks_of(form, K), sinks = blocks_of(form, SINKS);
    const int64_t near = row->earliest - blocks_of(form, WINDOW);
    chunks all = cut(row, 2 * wanted);
    do {
        evaluate(row, &all);
        heed_keep_highest(all.value, all.count, wanted, all.work);
        drop(&all);
    } while (halve(&all));
    for (int b = 0, c = 0; b < row->blocks; b++) {
        const bool found = c < all.count && all.first[c] == b;
        if (!found && b >= sinks && b < near)
            row->value[b] = -INFINITY;
        c += found;
    }
}

static heed_block_rule block_rule(const heed_form_state *form)
{
    return (heed_block_rule){.keys = heed_arg_int(form, BLOCK),
                             .queries = (int)heed_arg_int(form, QUERIES),
                             .by_group = form->arg[SHARE].number == 1,
                             .searches = true};
}

static const heed_arg args[] = {
    [K] = {.name = "k",
           .kind = HEED_ARG_INT,
           .value = 512,
           .least = 1,
           .most = INFINITY,
           .summary = "keys that are searched for, in whole blocks"},
    [QUERIES] = {.name = "queries",
                 .kind = HEED_ARG_INT,
                 .value = 32,
                 .least = 2,
                 .most = 256,
                 .summary = "queries that search together"},
    [BLOCK] = {.name = "block",
               .kind = HEED_ARG_INT,
               .value = 2,
               .least = 2,
               .most = INFINITY,
               .summary = "keys in a block; 32 and more are read fastest"},
    [SINKS] = {.name = "sinks",
               .kind = HEED_ARG_INT,
               .value = 16,
               .least = 0,
               .most = INFINITY,
               .summary = "first keys that all see"},
    [WINDOW] = {.name = "window",
                .kind = HEED_ARG_INT,
                .value = 64,
                .least = 0,
                .most = INFINITY,
                .summary = "last keys that a query sees in any case"},
    [SHARE] = HEED_SHARE_ARG,
    {0},
};

const heed_form HEED_FORM(select_hip) = {
    .name = "hip",
    .stage = HEED_SELECT,
    .summary = "keys found by a search in a tree, first keys and a window",
    .formula = "K best of 2K chunks by q · their middle key, halved until they are blocks",
    .source = "Lee et al.: A Training-free Sub-quadratic Cost Transformer Model Serving Framework with "
              "Hierarchically Pruned Attention (HiP), 2024",
    .row = "001.113",
    .args = args,
    .summary_floats = summary_floats,
    .summarise = summarise,
    .choose = heed_choose_by_blocks,
    .block_rule = block_rule,
    .block_query = block_query,
    .choose_blocks = choose_blocks,
};
