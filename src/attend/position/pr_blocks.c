/* What where=pr_blocks leaves counts as often as it would have been left out.
 *
 *     s(i, j) -= log p,     p = 1 for b = B and b = 0, else max(pmin, exp(-lam |B - b|))
 *
 * so that with softmax every weight is 1/p times larger, and numerator and denominator are those of all keys
 * in the mean over seeds. The arguments must be those of the `where` that draws.
 */
#include "attend/where/share.h"

static void adjust(const heed_form_state *form, heed_tile *tile)
{
    const double size = heed_share_size(form);
    for (int j = 0, end; j < tile->cols; j = end) {
        const int32_t key = heed_floor_divide(tile->key_pos[j], size);
        for (end = j + 1; end < tile->cols && heed_floor_divide(tile->key_pos[end], size) == key;)
            end++;
        for (int i = 0; i < tile->rows; i++) {
            const int32_t query = heed_floor_divide(tile->query_pos[i], size);
            const float more = (float)-log(heed_share_of(form, query, key));
            float *restrict score = tile->score + i * tile->stride;
            for (int c = j; c < end; c++)
                score[c] += more;
        }
    }
}

static const heed_arg args[] = {HEED_SHARE_ARGS, {0}};

const heed_form HEED_FORM(position_pr_blocks) = {
    .name = "pr_blocks",
    .stage = HEED_POSITION,
    .summary = "weights of the blocks that where=pr_blocks drew, as if it had drawn all",
    .formula = "s - log p, p = 1 for b = B and b = 0, else max(pmin, exp(-lam |B - b|))",
    .source = "PrFlashAttention: row 001.119",
    .row = "001.119",
    .args = args,
    .adjust = adjust,
};
