/* One piece of a cache: tile by tile, scores, forms, online normaliser,
 * weighted values.
 *
 * A tile is one key block of HEED_KEYS keys or the part of it that somebody
 * sees. Rows of all query heads of the kv head go through it together; hooks
 * that look at the head get the rows of one head at a time.
 */
#include "attend/kernels/capture.h"
#include "attend/kernels/decode_tile.h"
#include "attend/kernels/pairs.h"
#include <string.h>

static int64_t block_of(const heed_part *at)
{
    return at->key0 / HEED_KEYS;
}

/* The columns of block b that somebody sees. */
static heed_part look(const heed_passing *p, int64_t b, uint8_t *partly, heed_key_run *runs)
{
    const heed_decode_group *group = p->group;
    heed_part at = {.key0 = b * HEED_KEYS, .partly = partly};
    const int keys = heed_smaller(group->keys - at.key0, HEED_KEYS),
              cols = (int)heed_round_up(keys, HEED_SUB);
    int low = cols / HEED_SUB, high = 0;
    for (int h = 0; h < (p->group->alike ? 1 : group->heads); h++) {
        const uint8_t state = group->state[h * p->sizes->blocks + b];
        partly[h] = state != HEED_OPEN;
        if (state == HEED_OPEN) {
            low = 0;
            high = cols / HEED_SUB;
        }
        if (state != HEED_PARTLY)
            continue;
        const heed_query_range range = heed_range_of(p->run, &group->query[h], 0, group->queries);
        const uint8_t *sub = heed_sub_states(p->run, p->pipeline, &range, at.key0, cols, &p->work->sight);
        for (int s = 0; s < cols / HEED_SUB; s++)
            if (sub[s] != HEED_CLOSED) {
                low = s < low ? s : low;
                high = s + 1 > high ? s + 1 : high;
            }
    }
    at.first = low * HEED_SUB;
    at.count = high > low ? (high - low) * HEED_SUB : 0;
    at.real = heed_smaller(keys - at.first, at.count);
    at.runs = runs;
    at.run_count = at.real > 0;
    runs[0] = (heed_key_run){at.key0 + at.first, at.real};
    return at;
}

/* `rows` rows of head h from query i on. */
static heed_tile tile_of(const heed_passing *p, const heed_part *at, int h, int i, int rows)
{
    const heed_decode_group *group = p->group;
    const heed_query_block *query = &group->query[h];
    const int64_t row0 = (int64_t)h * group->queries + i;
    return (heed_tile){.rows = rows,
                       .cols = at->count,
                       .batch = group->batch,
                       .head = query->head,
                       .kv_head = group->group,
                       .query0 = group->query0 + i,
                       .key0 = at->key0 + at->first,
                       .query_pos = query->pos + i,
                       .key_pos = p->work->pos,
                       .contiguous = query->contiguous && at->contiguous,
                       .score = p->work->score + row0 * HEED_KEYS,
                       .stride = HEED_KEYS,
                       .query = group->prepared + row0 * p->sizes->stride,
                       .query_stride = p->sizes->stride,
                       .dim = p->pipeline->row_dim,
                       .inputs = heed_inputs_of(p->run, group->group)};
}

static void place_keys(const heed_passing *p, heed_part *at)
{
    const int32_t *pos = heed_key_positions(p->run, p->group->batch, p->group->group);
    int32_t *to = p->work->pos;
    for (int n = 0; n < at->run_count; to += at->runs[n++].count)
        memcpy(to, pos + at->runs[n].first, (size_t)at->runs[n].count * sizeof *pos);
    for (int j = at->real; j < at->count; j++)
        p->work->pos[j] = p->work->pos[j - 1] + (p->work->pos[j - 1] < HEED_POSITION_LIMIT);
    at->contiguous =
        (p->run->default_positions && at->run_count == 1) || heed_runs_by_one(p->work->pos, at->count);
}

/* What `where` leaves of a run of a list, of which some row sees a part. col: its first column. */
static void close_partly(const heed_passing *p, const heed_key_run *keys, int col)
{
    const heed_decode_group *group = p->group;
    const heed_choice *choice = &group->reads->choice;
    const int cols = (int)heed_round_up(keys->count, 16);
    int32_t pos[HEED_KEYS];
    memcpy(pos, p->work->pos + col, (size_t)keys->count * sizeof *pos);
    for (int j = keys->count; j < cols; j++)
        pos[j] = pos[j - 1] + (pos[j - 1] < HEED_POSITION_LIMIT);
    const heed_part at = {.key0 = keys->first, .count = cols, .contiguous = heed_runs_by_one(pos, cols)};
    for (int r = 0; r < group->rows; r++) {
        if (choice->state[r * choice->stride + keys->first / choice->unit] != HEED_SEEN_PARTLY)
            continue;
        heed_tile tile = tile_of(p, &at, r / group->queries, r % group->queries, 1);
        tile.key_pos = pos;
        const uint8_t *open = heed_mask_tile(p->run, p->pipeline, &tile, &p->work->sight);
        float *score = p->work->score + r * HEED_KEYS + col;
        for (int j = 0; j < keys->count; j++)
            score[j] = open[j] ? score[j] : -INFINITY;
    }
}

/* Of a list's keys those that a row does not see, or did not choose. */
static void close_listed(const heed_passing *p, const heed_part *at)
{
    const heed_choice *choice = &p->group->reads->choice;
    for (int n = 0, col = 0; n < at->run_count; col += at->runs[n++].count) {
        const int64_t block = at->runs[n].first / choice->unit;
        bool partly = false;
        for (int r = 0; r < p->group->rows; r++) {
            const uint8_t state = choice->state[r * choice->stride + block];
            float *score = p->work->score + r * HEED_KEYS + col;
            for (int j = 0; !(state & HEED_SEEN) && j < at->runs[n].count; j++)
                score[j] = -INFINITY;
            partly |= state == HEED_SEEN_PARTLY;
        }
        if (partly)
            close_partly(p, &at->runs[n], col);
    }
    for (int r = 0; r < p->group->rows; r++)
        for (int j = at->real; j < at->count; j++)
            p->work->score[r * HEED_KEYS + j] = -INFINITY;
}

static void close_pairs(const heed_passing *p, const heed_part *at)
{
    const heed_decode_group *group = p->group;
    if (group->reads) {
        close_listed(p, at);
        return;
    }
    for (int h = 0; h < group->heads; h += p->group->alike ? group->heads : 1) {
        if (!at->partly[h] && at->real == at->count)
            continue;
        for (int i = 0; i < group->queries; i += HEED_STRIP) {
            heed_tile tile = tile_of(p, at, h, i, heed_smaller(group->queries - i, HEED_STRIP));
            const uint8_t *open =
                at->partly[h] ? heed_mask_tile(p->run, p->pipeline, &tile, &p->work->sight) : NULL;
            for (int other = h; other < (p->group->alike ? group->heads : h + 1); other++) {
                heed_tile same = tile;
                same.score = p->work->score + ((int64_t)other * group->queries + i) * HEED_KEYS;
                heed_close(&same, open, HEED_KEYS, at->real);
            }
        }
    }
}

/* Notes which pairs are open, if some are not: beyond a closed pair even a
 * value that is no number must not be seen. */
static bool note_closed(const heed_passing *p, const heed_part *at)
{
    int closed = 0;
    for (int r = 0; r < p->group->rows; r++) {
        const float *score = p->work->score + r * HEED_KEYS;
#pragma omp simd reduction(| : closed)
        for (int j = 0; j < at->count; j++)
            closed |= score[j] == -INFINITY;
    }
    for (int r = 0; closed && r < p->group->rows; r++)
        for (int j = 0; j < at->count; j++)
            p->work->was_open[r * HEED_KEYS + j] = p->work->score[r * HEED_KEYS + j] != -INFINITY;
    return closed;
}

/* Counts the pairs of a list's tile that are read. */
static void note_read(const heed_passing *p, const heed_part *at)
{
    int64_t open = 0;
    for (int r = 0; p->run->extra->capture.pairs && r < p->group->rows; r++)
        for (int j = 0; j < at->real; j++)
            open += p->work->score[r * HEED_KEYS + j] != -INFINITY;
    heed_note_read(p->run, open);
}

/* Logits to weights, which are no exponentials yet under the maximum of the
 * whole row. */
static void weigh(const heed_passing *p, const heed_part *at)
{
    const heed_form_state *normalise = &p->pipeline->form[p->pipeline->normalise];
    heed_row_sums sums = p->sums;
    for (int h = 0; p->pipeline->modifies > 0 && h < p->group->heads; h++) {
        heed_tile mine = tile_of(p, at, h, 0, p->group->queries);
        heed_adjust(p->pipeline, p->pipeline->modify, p->pipeline->modifies, &mine, &p->group->query[h], 0,
                    (heed_kept){0});
    }
    heed_tile tile = tile_of(p, at, 0, 0, p->group->rows);
    for (int n = 0, col = 0; n < at->run_count; col += at->runs[n++].count) {
        heed_tile run = tile;
        run.key0 = at->runs[n].first;
        run.cols = at->runs[n].count;
        run.score += col;
        heed_add_mass(p->run, &run);
    }
    if (normalise->form->flags & HEED_COUNTS_OPEN)
        for (int r = 0; r < tile.rows; r++) {
            float count = 0.0f;
            for (int j = 0; j < tile.cols; j++)
                count += tile.score[r * HEED_KEYS + j] != -INFINITY;
            sums.count[r] += count;
        }
    normalise->form->online(normalise, &tile, &sums);
    const int64_t stride = p->sizes->value_stride;
    for (int r = 0; r < tile.rows; r++) {
        const float factor = sums.rescale[r];
        if (factor != 1.0f)
            for (int64_t e = 0; e < stride; e++)
                p->out[r * stride + e] *= factor;
    }
}

/* Value by value, only where the pair is open. */
static void add_where_open(const heed_passing *p, const heed_part *at)
{
    const int64_t stride = p->sizes->value_stride;
    heed_load_runs(p, &p->run->v, at, p->work->value, stride);
    for (int r = 0; r < p->group->rows; r++)
        for (int j = 0; j < at->real; j++) {
            if (!p->work->was_open[r * HEED_KEYS + j])
                continue;
            const float weight = p->work->score[r * HEED_KEYS + j];
            for (int64_t e = 0; e < p->run->plan->problem.value_dim; e++)
                p->out[r * stride + e] += weight * p->work->value[j * stride + e];
        }
}

/* Closed pairs weigh 0, so values that are numbers need no care; the others
 * show in what comes out. */
static void add_values(const heed_passing *p, const heed_part *at, bool closed, const char **row)
{
    const int64_t stride = p->sizes->value_stride, floats = p->group->rows * stride;
    const heed_tensor *pool = heed_pool_of_part(p, at, &p->run->v);
    heed_decode_rows values = heed_rows_of_part(p, at, pool, row);
    if (!heed_is_readable(pool))
        heed_unpack_part(p, at, &p->run->v, p->work->value, stride, &values, row);
    if (closed)
        memcpy(p->work->before, p->out, (size_t)floats * sizeof(float));
    heed_decode_values(&values, p->group->rows, p->work->score, p->work->scaled, p->out, stride);
    if (!closed || heed_rows_finite(p->out, stride, p->group->rows, stride))
        return;
    memcpy(p->out, p->work->before, (size_t)floats * sizeof(float));
    add_where_open(p, at);
}

/* tile: its number among those of the piece, in a list. */
static void keep_weights(const heed_passing *p, const heed_part *at, bool closed, int64_t tile)
{
    const heed_decode_group *group = p->group;
    const int64_t blocks = p->sizes->blocks, b = block_of(at);
    const int count = group->reads ? at->real : at->count;
    const bool whole = group->reads || count == HEED_KEYS; /* nothing of the block is left out */
    for (int r = 0; r < group->rows; r++) {
        float *to = group->kept + r * blocks * HEED_KEYS;
        to += group->reads ? at->place : b * HEED_KEYS;
        for (int j = 0; !whole && j < HEED_KEYS; j++)
            to[j] = HEED_CLOSED_WEIGHT;
        to += at->first;
        memcpy(to, p->work->score + r * HEED_KEYS, (size_t)count * sizeof(float));
        for (int j = 0; closed && j < count; j++)
            to[j] = p->work->was_open[r * HEED_KEYS + j] ? to[j] : HEED_CLOSED_WEIGHT;
        group->later[r * p->sizes->tiles + (group->reads ? tile : b)] = p->sums.rescale[r];
    }
}

/* Scores of keys by channel, where a part lies in one page; else false. */
static bool score_channels(const heed_passing *p, const heed_part *at, const heed_tensor *pool)
{
    if (!pool || pool->type != HEED_CHANNEL_Q4 || at->run_count != 1)
        return false;
    const int64_t page = p->run->plan->problem.page, first = at->runs[0].first % page;
    if (first % HEED_SUB != 0 || first + at->count > page)
        return false;
    const heed_channel_keys keys = {.page = heed_page_of_key(p, pool, at->runs[0].first),
                                    .first = (int)first,
                                    .count = at->count,
                                    .dim = (int)pool->shape[3],
                                    .whole = p->pipeline->fast_products && heed_whole_serves(HEED_Q4)};
    heed_channel_scores(&keys, p->group->rows, p->group->compared, p->sizes->stride, p->work->channel,
                        p->work->score);
    return true;
}

/* A scale that is not finite asks for the entries one by one, as does a query
 * that is no whole number. */
static void make_scores(const heed_passing *p, const heed_part *at, const char **row)
{
    const heed_decode_group *group = p->group;
    const heed_tensor *pool = heed_pool_of_part(p, at, &p->run->k);
    heed_decode_rows keys = heed_rows_of_part(p, at, pool, row);
#if HEED_WIDTH == 16
    if (group->is_whole && keys.whole && heed_whole_scores(&keys, group->rows, group->whole, p->work->score))
        return;
#endif
    if (score_channels(p, at, pool))
        return;
    if (heed_is_readable(pool) &&
        heed_decode_scores(&keys, group->rows, group->compared, p->sizes->stride, p->work->score))
        return;
    heed_unpack_part(p, at, &p->run->k, p->work->key, p->sizes->stride, &keys, row);
    heed_decode_scores(&keys, group->rows, group->compared, p->sizes->stride, p->work->score);
}

/* Whether somebody asks where the keys of a part lie. */
static bool needs_positions(const heed_passing *p, const heed_part *at)
{
    const size_t heads = p->group->alike ? 1 : (size_t)p->group->heads;
    return p->group->reads || p->pipeline->adjusts + p->pipeline->modifies > 0 ||
           memchr(at->partly, 1, heads);
}

/* Scores of a tile as the selectors, or the normaliser, shall see them. */
static void score_tile(const heed_passing *p, heed_part *at, const char **row)
{
    heed_decode_group *group = p->group;
    if (needs_positions(p, at))
        place_keys(p, at);
    make_scores(p, at, row);
    if (p->pipeline->adjusts > 0)
        for (int h = 0; h < group->heads; h++) {
            heed_tile tile = tile_of(p, at, h, 0, group->queries);
            heed_adjust(p->pipeline, p->pipeline->adjust, p->pipeline->adjusts, &tile, &group->query[h], 0,
                        (heed_kept){0});
        }
    close_pairs(p, at);
}

/* row: addresses of this tile's keys and values, and of keys of the tile after
 * it. */
static void meet(const heed_passing *p, heed_part *at, int64_t tile, const char **row)
{
    heed_decode_group *group = p->group;
    score_tile(p, at, row);
    const bool closed = note_closed(p, at);
    if (p->sizes->selects)
        note_read(p, at);
    weigh(p, at);
    if (group->kept)
        keep_weights(p, at, closed, tile);
    add_values(p, at, closed, row + at->count);
}

/* The next keys of a list from `place` on, counted over the keys of its blocks. */
static heed_part next_listed(const heed_passing *p, int64_t *place, int64_t end, heed_key_run *runs)
{
    heed_part at = {.runs = runs, .place = *place};
    const int64_t upto = *place + HEED_KEYS < end ? *place + HEED_KEYS : end;
    for (;;) {
        const heed_key_run here = heed_list_run(p->group->reads, *place, upto, p->group->keys);
        if (here.count == 0)
            break;
        runs[at.run_count++] = here;
        at.real += here.count;
        *place += here.count;
    }
    at.key0 = at.run_count > 0 ? runs[0].first : 0;
    at.count = (int)heed_round_up(at.real, HEED_SUB);
    return at;
}

/* The first block from b on of which something is seen. Blocks of which nothing
 * is seen after all are closed.
 */
static heed_part next_part(const heed_passing *p, int64_t *b, int64_t end, int turn)
{
    uint8_t *partly = p->work->partly[turn % 2];
    heed_key_run *runs = p->work->runs[turn % 2];
    if (p->group->reads)
        return next_listed(p, b, end, runs);
    while (*b < end) {
        const int64_t here = (*b)++;
        if (!heed_decode_seen(p->sizes, p->group, here))
            continue;
        const heed_part at = look(p, here, partly, runs);
        if (at.count > 0)
            return at;
        for (int h = 0; h < (p->group->alike ? 1 : p->group->heads); h++)
            p->group->state[h * p->sizes->blocks + here] = HEED_CLOSED;
    }
    return (heed_part){0};
}

/* From rescalings of each block, or tile of a list, to the products of those that came after it. */
static void gather_later(const heed_passing *p, int64_t first, int64_t end)
{
    for (int r = 0; r < p->group->rows; r++) {
        float factor = 1.0f;
        for (int64_t b = end - 1; b >= first; b--) {
            if (!p->group->reads && !heed_decode_seen(p->sizes, p->group, b))
                continue;
            float *later = p->group->later + r * p->sizes->tiles + b;
            const float here = *later;
            *later = factor;
            factor *= here;
        }
    }
}

/* Blocks of a piece; of a list the places of its keys. */
static void limits(const heed_decode_group *group, int64_t piece, int64_t *first, int64_t *end)
{
    if (group->reads) {
        *first = heed_list_piece(group->reads, piece) * group->reads->choice.unit;
        *end = heed_list_piece(group->reads, piece + 1) * group->reads->choice.unit;
        return;
    }
    const int64_t all = (group->keys + HEED_KEYS - 1) / HEED_KEYS;
    *first = piece * (HEED_PIECE / HEED_KEYS);
    *end = *first + HEED_PIECE / HEED_KEYS < all ? *first + HEED_PIECE / HEED_KEYS : all;
}

void heed_decode_scored(const heed_run *run, const heed_pipeline *pipeline, const heed_decode_sizes *sizes,
                        heed_decode_group *group, int64_t piece, heed_decode_work *work)
{
    const heed_passing p = {.run = run, .pipeline = pipeline, .sizes = sizes, .group = group, .work = work};
    int64_t place, end;
    limits(group, piece, &place, &end);
    int64_t to = place;
    heed_part at = next_part(&p, &place, group->rows > 0 ? end : place, 0);
    for (int turn = 1; at.count > 0; turn++) {
        const heed_part next = next_part(&p, &place, end, turn);
        heed_list_rows(&p, &at, &next, false, work->row);
        score_tile(&p, &at, work->row);
        to = group->reads ? to : at.key0 + at.first;
        for (int r = 0; r < group->rows; r++)
            memcpy(group->score + r * sizes->score_stride + to, work->score + r * HEED_KEYS,
                   (size_t)at.real * sizeof(float));
        to += at.real;
        at = next;
    }
}

void heed_decode_piece(const heed_run *run, const heed_pipeline *pipeline, const heed_decode_sizes *sizes,
                       heed_decode_group *group, int64_t piece, heed_decode_work *work)
{
    heed_passing p = {.run = run, .pipeline = pipeline, .sizes = sizes, .group = group, .work = work};
    p.sums = (heed_row_sums){.max = heed_decode_sums(sizes, group, piece, HEED_SUM_MAX),
                             .sum = heed_decode_sums(sizes, group, piece, HEED_SUM_SUM),
                             .count = heed_decode_sums(sizes, group, piece, HEED_SUM_COUNT),
                             .rescale = work->rescale};
    float *moment = heed_decode_sums(sizes, group, piece, HEED_SUM_MOMENT);
    p.sums.moment = run->extra->capture.entropy ? moment : NULL;
    p.out = heed_decode_out(sizes, group, piece);
    int64_t first, end;
    limits(group, piece, &first, &end);
    int64_t place = first;
    heed_part at = next_part(&p, &place, end, 0);
    group->begun[piece] = at.count > 0;
    if (at.count == 0)
        return;
    for (int r = 0; r < group->rows; r++) {
        p.sums.max[r] = -INFINITY;
        p.sums.sum[r] = p.sums.count[r] = moment[r] = 0.0f;
    }
    memset(p.out, 0, (size_t)(group->rows * sizes->value_stride) * sizeof(float));
    const int64_t tile0 = piece * sizes->piece_tiles;
    int64_t tile = tile0;
    for (int turn = 1; at.count > 0; turn++) {
        const heed_part next = next_part(&p, &place, end, turn);
        heed_list_rows(&p, &at, &next, true, work->row);
        meet(&p, &at, tile++, work->row);
        at = next;
    }
    if (group->kept)
        gather_later(&p, group->reads ? tile0 : first, group->reads ? tile : end);
}
