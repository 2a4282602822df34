/* Passages that are read apart and spliced: the definition is a dense run in which every passage sees itself
 * only and the last block everything.
 */
#include "model/session.h"
#include "support/small_models.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { PASSAGES = 3, LAST = 37 };
static const int64_t length[PASSAGES] = {150, 41, 203};
enum { BEFORE = 150 + 41 + 203, ALL = BEFORE + LAST };

/* ---- the definition: a form of `where` ---- */

static int passage_of(int32_t place)
{
    int64_t end = 0;
    for (int p = 0; p < PASSAGES; p++) {
        end += length[p];
        if (place < end)
            return p;
    }
    return PASSAGES;
}

static void open_pairs(const heed_form_state *form, const heed_tile *tile, uint8_t *open)
{
    (void)form;
    for (int i = 0; i < tile->rows; i++)
        for (int j = 0; j < tile->cols; j++) {
            const int query = passage_of(tile->query_pos[i]);
            open[i * tile->stride + j] = query == PASSAGES || query == passage_of(tile->key_pos[j]);
        }
}

static const heed_form apart = {.name = "apart",
                                .stage = HEED_WHERE,
                                .summary = "passages see themselves, the end sees all",
                                .mask = open_pairs};
static const heed_form *const forms[] = {&apart, NULL};

/* "layers 0: where=causal & apart; layers 1: where=causal & window(8) & apart; ..." behind `rest`. */
static void masked_spec(const heed_model *model, const char *rest, char *text, size_t size)
{
    heed_model_info info;
    heed_model_get_info(model, &info);
    size_t used = (size_t)snprintf(text, size, "%s%s", rest, *rest ? "; " : "");
    for (int64_t l = 0; l < info.layers; l++) {
        char own[1024], *where;
        must(heed_model_attention(model, l, own, sizeof own));
        where = strstr(own, "where=");
        assert_non_null(where);
        where[strcspn(where, ";")] = 0;
        used += (size_t)snprintf(text + used, size - used, "%slayers %d: %s & apart", l ? "; " : "", (int)l,
                                 where);
    }
    assert_true(used < size);
}

static void make_text(const small_model *small, int32_t *tokens, int64_t count)
{
    for (int64_t t = 0; t < count; t++)
        tokens[t] = small->tokens[(t * 5 + t / 29) % small->count];
}

static float *feed(heed_session *session, int64_t sequence, const int32_t *tokens, int64_t count,
                   int64_t columns)
{
    float *logits = malloc((size_t)(count * columns) * sizeof *logits);
    must(heed_feed(session, &(heed_feed_item){.sequence = sequence, .tokens = tokens, .count = count}, 1,
                   &(heed_feed_wants){.logits = logits, .all_logits = true}));
    return logits;
}

/* Keys and values of two sequences are as good as the same. */
static void compare_keys(const heed_session *a, int64_t of_a, const heed_session *b, int64_t of_b,
                         const char *name)
{
    const heed_config *c = &a->model->config;
    float *x = malloc((size_t)c->head_dim * sizeof *x), *y = malloc((size_t)c->head_dim * sizeof *y);
    int64_t compared = 0;
    for (int64_t l = 0; l < c->layers; l++)
        for (int64_t g = 0; g < c->kv_heads; g++) {
            const heed_kept_keys *in_a = heed_pages_list(&a->pages, of_a, l, g),
                                 *in_b = heed_pages_list(&b->pages, of_b, l, g);
            assert_int_equal(in_a->start + in_a->count, in_b->start + in_b->count);
            for (int64_t i = 0; i < in_a->count; i++) {
                const int64_t j = in_a->start + i - in_b->start;
                if (j < 0)
                    continue;
                heed_pages_load_keys(&a->pages, l, in_a, i, 1, x);
                heed_pages_load_keys(&b->pages, l, in_b, j, 1, y);
                if (farthest(x, y, c->head_dim) > 1e-4)
                    fail_msg("%s: key %d of layer %d is off by %g", name, (int)(in_a->start + i), (int)l,
                             farthest(x, y, c->head_dim));
                compared++;
            }
        }
    assert_true(compared > ALL);
    free(x);
    free(y);
}

static void spliced_passages_equal_the_masked_run(void **state)
{
    (void)state;
    static const struct {
        const char *model, *rest;
    } each[] = {{"llama", ""},
                {"gemma3", ""}, /* its windows are shorter than the passages */
                {"qwen2_window", ""},
                {"llama", "position=alibi"}, /* nothing has to move */
                {"llama", "position=none"}};
    for (size_t n = 0; n < sizeof each / sizeof *each; n++) {
        small_model small;
        open_small(&small, each[n].model, false);
        int32_t tokens[ALL];
        make_text(&small, tokens, ALL);
        char spec[2048] = "";
        masked_spec(small.model, each[n].rest, spec, sizeof spec);
        const heed_session_options dense = {.context = ALL + 8,
                                            .cache = HEED_F32,
                                            .cache_given = true,
                                            .attention = spec,
                                            .forms = forms,
                                            .threads = 1},
                                   options = {.context = ALL + 8,
                                              .sequences = 1 + PASSAGES,
                                              .cache = HEED_F32,
                                              .cache_given = true,
                                              .attention = each[n].rest,
                                              .threads = 1};
        heed_session *masked = new_session(small.model, &dense),
                     *spliced = new_session(small.model, &options);
        float *expected = feed(masked, 0, tokens, ALL, small.columns);
        int64_t at = 0;
        for (int p = 0; p < PASSAGES; p++) {
            free(feed(spliced, 1 + p, tokens + at, length[p], small.columns));
            must(heed_session_splice(spliced, 1 + p, 0));
            at += length[p];
            assert_int_equal(heed_session_length(spliced, 0), at);
        }
        assert_memory_equal(heed_session_tokens(spliced, 0), tokens, BEFORE * sizeof *tokens);
        float *last = feed(spliced, 0, tokens + BEFORE, LAST, small.columns);
        const double off = farthest(expected + BEFORE * small.columns, last, LAST * small.columns);
        if (!(off < 2e-4))
            fail_msg("%s%s: logits are off by %g", each[n].model, each[n].rest, off);
        compare_keys(masked, 0, spliced, 0, each[n].model);
        free(expected);
        free(last);
        heed_session_free(masked);
        heed_session_free(spliced);
        close_small(&small);
    }
}

static void one_passage_is_the_text_itself(void **state)
{
    (void)state;
    small_model small;
    open_small(&small, "gemma3", true);
    int32_t tokens[ALL];
    make_text(&small, tokens, ALL);
    heed_session *session =
        new_session(small.model, &(heed_session_options){.context = 1000, .sequences = 3, .threads = 1});
    free(feed(session, 1, tokens, BEFORE, small.columns));
    heed_session_usage before, after;
    heed_session_get_usage(session, &before);
    must(heed_session_splice(session, 1, 0));
    heed_session_get_usage(session, &after);
    assert_int_equal(before.bytes, after.bytes); /* pages are shared */
    free(feed(session, 2, tokens, BEFORE, small.columns));
    float *a = feed(session, 0, tokens + BEFORE, LAST, small.columns),
          *b = feed(session, 2, tokens + BEFORE, LAST, small.columns);
    assert_memory_equal(a, b, (size_t)(LAST * small.columns) * sizeof *a);
    free(a);
    free(b);
    heed_session_free(session);
    close_small(&small);
}

static void pages_are_shared_where_nothing_moves(void **state)
{
    (void)state;
    small_model small;
    open_small(&small, "llama", true);
    int32_t tokens[ALL];
    make_text(&small, tokens, ALL);
    heed_session *session = new_session(
        small.model, &(heed_session_options){
                         .context = 1000, .sequences = 3, .threads = 1, .attention = "position=alibi"});
    free(feed(session, 1, tokens, 128, small.columns));
    free(feed(session, 2, tokens + 128, 100, small.columns));
    must(heed_session_splice(session, 1, 0));
    heed_session_usage before, after;
    heed_session_get_usage(session, &before);
    must(heed_session_splice(session, 2, 0)); /* at 128, the end of a page */
    heed_session_get_usage(session, &after);
    assert_int_equal(before.bytes, after.bytes);
    free(feed(session, 0, tokens + 228, 10,
              small.columns)); /* the shared page is copied before it is written */
    assert_int_equal(heed_session_length(session, 2), 100);
    must(heed_session_splice(session, 2, 0));
    assert_int_equal(heed_session_length(session, 0), 338);
    heed_session_free(session);
    close_small(&small);
}

static void refused(heed_session *session, int64_t from, int64_t to, const char *words)
{
    const heed_status status = heed_session_splice(session, from, to);
    if (!status || !strstr(heed_message(), words))
        fail_msg("%s instead of `%s`", status ? heed_message() : "spliced", words);
}

static void what_cannot_be_spliced_is_a_sentence(void **state)
{
    (void)state;
    small_model small;
    int32_t tokens[ALL];
    open_small(&small, "llama", true);
    make_text(&small, tokens, ALL);
    heed_session *session =
        new_session(small.model, &(heed_session_options){.context = 300, .sequences = 2, .threads = 1});
    free(feed(session, 0, tokens, 200, small.columns));
    free(feed(session, 1, tokens, 120, small.columns));
    refused(session, 1, 0, "120 tokens after the 200 that are held do not fit");
    refused(session, 1, 1, "behind itself");
    refused(session, 1, 2, "no sequence 2");
    assert_int_equal(heed_session_length(session, 0), 200);
    heed_session_free(session);
    session =
        new_session(small.model,
                    &(heed_session_options){
                        .context = 600, .sequences = 2, .threads = 1, .attention = "cache=knorm(budget=50)"});
    refused(session, 1, 0, "has a cache policy");
    heed_session_free(session);
    close_small(&small);
    open_small(&small, "gpt2", true);
    session = new_session(small.model, &(heed_session_options){.sequences = 2, .threads = 1});
    refused(session, 1, 0, "cannot move to another place");
    heed_session_free(session);
    close_small(&small);
}

/* ---- kept by their tokens ---- */

static void passages_are_found_by_their_tokens(void **state)
{
    (void)state;
    small_model small;
    open_small(&small, "llama", true);
    int32_t tokens[ALL];
    make_text(&small, tokens, ALL);
    char folder[64];
    snprintf(folder, sizeof folder, "/tmp/heed_passages_%d", (int)getpid());
    mkdir(folder, 0700);
    const heed_session_options options = {.context = 1000, .sequences = 5, .threads = 1};
    heed_session *session = new_session(small.model, &options);
    heed_passages *passages;
    must(heed_passages_create(&passages, session, 1, 2, 1 << 30, folder));
    heed_passage_source source;
    heed_passages_usage usage;
    const struct {
        int64_t at, count;
        heed_passage_source from;
    } asked[] = {{0, 100, HEED_PASSAGE_READ}, {100, 60, HEED_PASSAGE_READ},
                 {0, 100, HEED_PASSAGE_KEPT}, {200, 50, HEED_PASSAGE_READ}, /* 100, 60 was used longest ago */
                 {0, 100, HEED_PASSAGE_KEPT}, {100, 60, HEED_PASSAGE_FILE}};
    for (size_t i = 0; i < sizeof asked / sizeof *asked; i++) {
        must(heed_passages_add(passages, 0, tokens + asked[i].at, asked[i].count, &source));
        if (source != asked[i].from)
            fail_msg("request %d came from %d", (int)i, (int)source);
    }
    heed_passages_get_usage(passages, &usage);
    assert_int_equal(usage.kept, 2);
    assert_int_equal(usage.dropped, 2);
    assert_true(usage.source[0] == 3 && usage.source[1] == 2 && usage.source[2] == 1);
    float *a = feed(session, 0, tokens + 300, 9, small.columns);
    /* the same prompt with room for none */
    heed_passages *none;
    must(heed_passages_create(&none, session, 4, 1, 10, NULL));
    for (size_t i = 0; i < sizeof asked / sizeof *asked; i++) {
        must(heed_passages_add(none, 3, tokens + asked[i].at, asked[i].count, &source));
        assert_int_equal(source, HEED_PASSAGE_READ);
    }
    heed_passages_get_usage(none, &usage);
    assert_int_equal(usage.kept, 0);
    assert_int_equal(usage.bytes, 0);
    float *b = feed(session, 3, tokens + 300, 9, small.columns);
    assert_memory_equal(a, b, (size_t)(9 * small.columns) * sizeof *a);
    free(a);
    free(b);
    assert_int_equal(heed_passages_add(passages, 1, tokens, 10, NULL), HEED_INVALID);
    heed_passages_free(passages);
    heed_passages_free(none);
    heed_session_free(session);
    char command[100];
    snprintf(command, sizeof command, "rm -r %s", folder);
    assert_int_equal(system(command), 0);
    close_small(&small);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(spliced_passages_equal_the_masked_run),
        cmocka_unit_test(one_passage_is_the_text_itself),
        cmocka_unit_test(pages_are_shared_where_nothing_moves),
        cmocka_unit_test(what_cannot_be_spliced_is_a_sentence),
        cmocka_unit_test(passages_are_found_by_their_tokens),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
