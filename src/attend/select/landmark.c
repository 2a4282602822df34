/* Landmarks choose blocks (row 000.032): the k earlier blocks whose landmark scores highest, and those at
 * hand.
 *
 *     block of a position: p div (n + 1);   p mod (n + 1) = n is its landmark
 *     kept: the query's block, `recent` blocks in front of it, and of the earlier ones the k of largest
 *     s(landmark), of equal ones the first
 *
 * Blocks are kept whole, landmark and tokens; a block whose landmark is not seen goes. Every head chooses for
 * itself. For normalise=landmark, with which a model learns what its landmarks stand for; a k of all blocks
 * is that attention in full. Mohtashami, Jaggi: Landmark Attention, 2023.
 */
#include "attend/landmark.h"
#include "attend/select/cut.h"

enum { BLOCK, MOST, RECENT };

/* Whether a key may go: it lies in an earlier block than those at hand. */
static bool is_far(const heed_form_state *form, const heed_row *row, int j)
{
    const int32_t n = heed_arg_int(form, BLOCK);
    return heed_landmark_block(row->key_pos[j], n) <
           heed_landmark_block(row->pos, n) - heed_arg_int(form, RECENT);
}

/* Whether the landmark of a key's block has a value; it stands behind the key where positions rise. */
static bool is_chosen(const heed_row *row, const float *value, int32_t n, int j, bool rises)
{
    const int64_t block = heed_landmark_block(row->key_pos[j], n);
    for (int i = rises ? j : 0; i < row->cols; i++) {
        const bool here = heed_landmark_block(row->key_pos[i], n) == block;
        if (here && value[i] > -INFINITY)
            return true;
        if (rises && !here)
            break;
    }
    return false;
}

static void choose(const heed_form_state *form, heed_row *row)
{
    const int32_t n = heed_arg_int(form, BLOCK);
    float *value = row->work;
    bool rises = true, chosen = false;
    for (int j = 0; j < row->cols; j++) {
        value[j] = is_far(form, row, j) && heed_landmark_is(row->key_pos[j], n) ? row->score[j] : -INFINITY;
        rises = rises && (j == 0 || row->key_pos[j] >= row->key_pos[j - 1]);
    }
    heed_keep_highest(value, row->cols, heed_arg_int(form, MOST), row->work + row->cols);
    for (int j = 0; j < row->cols; j++) {
        if (!is_far(form, row, j))
            continue;
        if (j == 0 || heed_landmark_block(row->key_pos[j], n) != heed_landmark_block(row->key_pos[j - 1], n))
            chosen = is_chosen(row, value, n, j, rises);
        if (!chosen)
            row->score[j] = -INFINITY;
    }
}

static const heed_arg args[] = {
    [BLOCK] = HEED_LANDMARK_ARG,
    [MOST] = {.name = "k",
              .kind = HEED_ARG_INT,
              .value = 4,
              .least = 1,
              .most = INFINITY,
              .summary = "earlier blocks kept a row"},
    [RECENT] = {.name = "recent",
                .kind = HEED_ARG_INT,
                .value = 1,
                .least = 0,
                .most = INFINITY,
                .summary = "blocks in front of the query's that are kept in any case"},
    {0},
};

const heed_form HEED_FORM(select_landmark) = {
    .name = "landmark",
    .stage = HEED_SELECT,
    .summary = "the blocks whose landmarks score highest, and those at hand",
    .formula = "the k earlier blocks of largest s(landmark), `recent` blocks and the query's",
    .source = "Mohtashami, Jaggi: Landmark Attention, 2023",
    .row = "000.032",
    .args = args,
    .choose = choose,
};
