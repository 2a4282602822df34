/* Random blocks: each block of queries sees n blocks of keys, drawn for it alone and always the same for one
 * seed.
 *
 *     open when floor(k_pos(j) / block) is among the first n different values of
 *         hash(seed, B, d) mod ceil(M / block),     d = 0, 1, ...,     B = floor(p(i) / block)
 *     hash = mix(seed 0x9E3779B97F4A7C15 + B 0xBF58476D1CE4E5B9 + d 0x94D049BB133111EB)
 *
 * all modulo 2^64, mix being the finaliser of splitmix64. Zaheer et al.: Big Bird, 2020.
 */
#include "attend/where/where.h"

#define MOST_BLOCKS (1 << 18) /* key blocks; a set of them lies on the stack */
#define MOST_DRAWS 16 /* query blocks in a run of queries beyond which hardly a key block is left to skip */

typedef struct drawing {
    int64_t count, wanted, size; /* ceil(M / block), n, positions in a block */
    uint64_t seed;
    uint64_t set[MOST_BLOCKS / 64]; /* the key blocks drawn, one bit each */
} drawing;

static uint64_t hash(uint64_t seed, uint64_t b, uint64_t d)
{
    uint64_t z = seed * 0x9E3779B97F4A7C15u + b * 0xBF58476D1CE4E5B9u + d * 0x94D049BB133111EBu;
    z = (z ^ z >> 30) * 0xBF58476D1CE4E5B9u;
    z = (z ^ z >> 27) * 0x94D049BB133111EBu;
    return z ^ z >> 31;
}

static void prepare(drawing *draw, const heed_form_state *form, int64_t keys)
{
    draw->wanted = heed_whole(form, 0);
    draw->size = heed_whole(form, 1);
    draw->seed = (uint64_t)(int64_t)form->arg[2].number;
    draw->count = (keys + draw->size - 1) / draw->size;
}

/* Draws for query block b. */
static void draw_for(drawing *draw, int64_t b)
{
    const bool all = draw->wanted >= draw->count;
    memset(draw->set, all ? 0xff : 0, (size_t)(draw->count + 63) / 64 * sizeof *draw->set);
    int64_t found = all ? draw->wanted : 0;
    for (uint64_t d = 0; found < draw->wanted; d++) {
        const uint64_t block = hash(draw->seed, (uint64_t)b, d) % (uint64_t)draw->count;
        const uint64_t bit = UINT64_C(1) << (block & 63);
        found += !(draw->set[block >> 6] & bit);
        draw->set[block >> 6] |= bit;
    }
}

static bool drawn(const drawing *draw, int64_t block)
{
    return block >= 0 && block < draw->count && (draw->set[block >> 6] >> (block & 63) & 1);
}

/* State of the key blocks low .. high, of which those outside 0 .. count-1 are closed. */
static int state_of(const drawing *draw, int64_t low, int64_t high)
{
    const int state = drawn(draw, low) ? HEED_OPEN : HEED_CLOSED;
    const int64_t end = high < draw->count ? high : draw->count;
    for (int64_t block = low < 0 ? 0 : low + 1; block <= end; block++)
        if (drawn(draw, block) != (state == HEED_OPEN))
            return HEED_PARTLY;
    return state;
}

static void blocks(const heed_form_state *form, const heed_query_range *range, const heed_key_blocks *keys,
                   uint8_t *state)
{
    drawing draw;
    prepare(&draw, form, range->inputs->keys);
    const double size = (double)draw.size;
    const int64_t first = heed_floor_divide(range->pos_min, size),
                  last = heed_floor_divide(range->pos_max, size);
    if (last - first >= MOST_DRAWS) {
        memset(state, HEED_PARTLY, (size_t)keys->count);
        return;
    }
    for (int64_t b = first; b <= last; b++) {
        draw_for(&draw, b);
        for (int k = 0; k < keys->count; k++) {
            const int now = state_of(&draw, heed_floor_divide(keys->pos_min[k], size),
                                     heed_floor_divide(keys->pos_max[k], size));
            state[k] = (uint8_t)(b == first || state[k] == now ? now : HEED_PARTLY);
        }
    }
}

static void mask(const heed_form_state *form, const heed_tile *tile, uint8_t *open)
{
    drawing draw;
    prepare(&draw, form, tile->inputs->keys);
    const double size = (double)draw.size;
    int32_t block[HEED_CHUNK];
    for (int col = 0, count; col < tile->cols; col += count) {
        count = tile->cols - col < HEED_CHUNK ? tile->cols - col : HEED_CHUNK;
        for (int j = 0; j < count; j++)
            block[j] = heed_floor_divide(tile->key_pos[col + j], size);
        for (int i = 0; i < tile->rows; i++) {
            uint8_t *row = open + i * tile->stride + col;
            const int32_t b = heed_floor_divide(tile->query_pos[i], size);
            if (i > 0 && b == heed_floor_divide(tile->query_pos[i - 1], size)) {
                memcpy(row, row - tile->stride, (size_t)count);
                continue;
            }
            draw_for(&draw, b);
            for (int j = 0; j < count; j++)
                row[j] = drawn(&draw, block[j]);
        }
    }
}

static heed_status resolve(heed_form_state *form)
{
    const int64_t size = heed_whole(form, 1), count = (form->sizes.keys + size - 1) / size;
    if (count > MOST_BLOCKS)
        return heed_fail(
            HEED_UNSUPPORTED,
            "where=random: %lld keys in blocks of %lld make %lld blocks; draw among at most %d, so take "
            "block=%lld or more",
            (long long)form->sizes.keys, (long long)size, (long long)count, MOST_BLOCKS,
            (long long)((form->sizes.keys + MOST_BLOCKS - 1) / MOST_BLOCKS));
    return HEED_OK;
}

static const heed_arg args[] = {
    {.name = "n", HEED_WHOLE, .required = true, .summary = "key blocks drawn for each query block"},
    {.name = "block", HEED_WHOLE, .value = 64, .summary = "positions in a block"},
    {.name = "seed",
     .kind = HEED_ARG_INT,
     .least = -9007199254740992.0,
     .most = 9007199254740992.0,
     .summary = "another seed, another draw"},
    {0},
};

const heed_form HEED_FORM(where_random) = {
    .name = "random",
    .stage = HEED_WHERE,
    .flags = HEED_SCATTERS,
    .summary = "each block of queries sees n blocks of keys drawn at random",
    .formula = "floor(k_pos(j) / block) is among n blocks drawn by hash(seed, floor(p(i) / block), d)",
    .source = "Zaheer et al.: Big Bird, 2020",
    .args = args,
    .resolve = resolve,
    .blocks = blocks,
    .mask = mask,
};
