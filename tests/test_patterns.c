/* The search for each head's sparse pattern: what it says of a pattern is what the weights that a model shows
 * say, and its line can be pasted. */
#include "eval/patterns.h"
#include "support/small_models.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { BLOCK = 4, BLOCKS = 3 };

typedef struct shown {
    int64_t heads;
    double *kept; /* [layers, heads] weight of the blocks that a_shape keeps, all queries */
} shown;

/* The first block, the current one and the one before. */
static void add_weights(void *context, int64_t layer, int64_t sequence, const heed_weights_tile *tile)
{
    const shown *s = context;
    (void)sequence;
    for (int i = 0; i < tile->rows; i++)
        for (int j = 0; j < tile->cols; j++) {
            const int64_t block = (tile->key0 + j) / BLOCK, current = (tile->query0 + i) / BLOCK;
            if (block == 0 || block + 1 >= current)
                s->kept[layer * s->heads + tile->head] += (double)tile->weight[i * tile->stride + j];
        }
}

static heed_pattern_result find(const small_model *small, int64_t blocks, int threads)
{
    heed_pattern_result result;
    must(heed_find_patterns(&(heed_pattern_search){.model = small->model,
                                                   .block = BLOCK,
                                                   .blocks = blocks,
                                                   .window = small->count,
                                                   .threads = threads},
                            small->tokens, small->count, &result));
    return result;
}

static void shares_are_those_of_the_models_weights(void **state)
{
    (void)state;
    small_model small;
    open_small(&small, "llama", false);
    heed_pattern_result result = find(&small, BLOCKS, 1), more = find(&small, BLOCKS, 3);
    assert_string_equal(result.pattern[0], "a_shape(sinks=4, window=4, block=4)");
    assert_string_equal(result.spec, more.spec);
    assert_memory_equal(result.score, more.score,
                        (size_t)(result.layers * result.heads) * HEED_PATTERNS * sizeof *result.score);
    shown seen = {.heads = result.heads,
                  .kept = calloc((size_t)(result.layers * result.heads), sizeof(double))};
    heed_session *session =
        new_session(small.model, &(heed_session_options){.context = small.count, .with = HEED_WITH_WEIGHTS});
    must(heed_feed(session, &(heed_feed_item){.tokens = small.tokens, .count = small.count}, 1,
                   &(heed_feed_wants){.weights = add_weights, .context = &seen}));
    for (int64_t i = 0; i < result.layers * result.heads; i++) {
        const heed_pattern_score *score = result.score + i * HEED_PATTERNS;
        const double kept = seen.kept[i] / (double)small.count;
        if (fabs(score[0].share - kept) > 1e-4)
            fail_msg("head %lld: a_shape keeps %g, the weights say %g", (long long)i, score[0].share, kept);
        for (int p = 0; p < HEED_PATTERNS; p++) {
            assert_true(score[p].share > 0 && score[p].share <= 1 + 1e-5 && score[p].read <= 1);
            if (score[p].read <= score[0].read)
                assert_true(score[p].share <= score[result.best[i]].share);
        }
        assert_true(score[result.best[i]].read <= 1.021 * score[0].read);
    }
    heed_session_free(session);
    session = new_session(small.model, &(heed_session_options){.attention = result.spec});
    heed_session_free(session);
    free(seen.kept);
    heed_pattern_result_free(&result);
    heed_pattern_result_free(&more);
    close_small(&small);
}

static void patterns_of_all_blocks_keep_everything(void **state)
{
    (void)state;
    small_model small;
    open_small(&small, "llama", false);
    heed_pattern_result result = find(&small, small.count, 2);
    for (int64_t i = 0; i < result.layers * result.heads * HEED_PATTERNS; i++)
        if (fabs(result.score[i].share - 1) > 1e-5 || fabs(result.score[i].read - 1) > 1e-6)
            fail_msg("pattern %lld keeps %g and reads %g", (long long)i, result.score[i].share,
                     result.score[i].read);
    char wanted[128];
    snprintf(wanted, sizeof wanted, "select=%s", result.pattern[0]);
    assert_string_equal(result.spec, wanted);
    heed_pattern_result_free(&result);
    close_small(&small);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(shares_are_those_of_the_models_weights),
        cmocka_unit_test(patterns_of_all_blocks_keep_everything),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
