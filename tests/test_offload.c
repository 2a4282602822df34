/* Caches of which a part lies in a file: what is read has the same bits, memory stays within its budget, and
 * a disk without room is a sentence. */
#include "cache/pages.h"
#include "support/random.h"
#include "support/small_models.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

enum { SYSTEM_PAGE = 4096 };
static const char folder[] = "/var/tmp";

/* Bytes of [memory, memory + bytes) that this process has mapped in, from its own smaps. */
static size_t mapped_bytes(const char *memory, size_t bytes)
{
    FILE *file = fopen("/proc/self/smaps", "r");
    char line[512];
    size_t from = 0, to = 0, sum = 0, kilobytes;
    assert_non_null(file);
    while (fgets(line, sizeof line, file)) {
        if (sscanf(line, "%zx-%zx ", &from, &to) == 2)
            continue;
        if (sscanf(line, "Rss: %zu kB", &kilobytes) == 1 && from >= (size_t)memory &&
            to <= (size_t)memory + bytes + SYSTEM_PAGE)
            sum += kilobytes * 1024;
    }
    fclose(file);
    return sum;
}

/* Bytes of it that the system holds in memory for anybody. */
static size_t held_bytes(char *memory, size_t bytes)
{
    const size_t pages = (bytes + SYSTEM_PAGE - 1) / SYSTEM_PAGE;
    unsigned char *in = malloc(pages);
    size_t sum = 0;
    assert_int_equal(mincore(memory, bytes, in), 0);
    for (size_t i = 0; i < pages; i++)
        sum += (in[i] & 1) * (size_t)SYSTEM_PAGE;
    free(in);
    return sum;
}

static size_t most_mapped, most_held;

static void measure(const heed_pager *pager)
{
    const size_t bytes = (size_t)pager->backed * pager->page_bytes;
    const size_t mapped = mapped_bytes(pager->memory, (size_t)pager->pages * pager->page_bytes),
                 held = held_bytes(pager->memory, bytes);
    most_mapped = mapped > most_mapped ? mapped : most_mapped;
    most_held = held > most_held ? held : most_held;
}

static void a_pager_keeps_its_budget_and_its_pages(void **state)
{
    (void)state;
    enum { PAGE_BYTES = 8 * SYSTEM_PAGE, PAGES = 2000, MOST = 100 };
    heed_pager pager;
    test_random seed = {5};
    must(heed_pager_open(&pager, folder, PAGE_BYTES, PAGES, MOST, 4));
    must(heed_pager_back(&pager, PAGES));
    most_mapped = most_held = 0;
    for (int32_t p = 0; p < PAGES; p++) {
        heed_pager_touch(&pager, p);
        memset(pager.memory + (size_t)p * PAGE_BYTES, p % 251, PAGE_BYTES);
        heed_pager_filled(&pager, p);
        if (p % 200 == 0)
            measure(&pager);
    }
    for (int i = 0; i < 3000; i++) {
        const int32_t p = (int32_t)random_whole(&seed, 0, i % 3 ? 60 : PAGES - 1);
        heed_pager_touch(&pager, p);
        const char *page = pager.memory + (size_t)p * PAGE_BYTES;
        for (size_t at = 0; at < PAGE_BYTES; at += 997)
            assert_int_equal((unsigned char)page[at], p % 251);
        if (i % 300 == 0)
            measure(&pager);
    }
    assert_true(pager.resident <= MOST);
    if (most_mapped > (size_t)MOST * PAGE_BYTES || most_mapped == 0)
        fail_msg("%zu bytes mapped, the budget is %d", most_mapped, MOST * PAGE_BYTES);
    if (most_held > (size_t)MOST * PAGE_BYTES * 3 / 2) /* the system lets go a little later */
        fail_msg("%zu bytes in memory, the budget is %d", most_held, MOST * PAGE_BYTES);
    heed_pager_close(&pager);
}

static void what_is_read_again_stays(void **state)
{
    (void)state;
    enum { PAGES = 400, MOST = 100, HOT = 40 };
    heed_pager pager;
    test_random seed = {6};
    must(heed_pager_open(&pager, folder, SYSTEM_PAGE, PAGES, MOST, 4));
    must(heed_pager_back(&pager, PAGES));
    uint64_t before = 0;
    for (int i = 0; i < 20000; i++) {
        const int32_t p =
            (int32_t)(i % 10 ? random_whole(&seed, 0, HOT - 1) : random_whole(&seed, HOT, PAGES - 1));
        heed_pager_touch(&pager, p);
        before = i < 10000 ? pager.fetched : before;
    }
    assert_true(pager.fetched - before < 10000 / 10 + 300); /* nearly all that came back was cold */
    heed_pager_close(&pager);
}

/* ---- sessions ---- */

enum { LONG = 1200, PIECE = 300, ROWS = 20 };

static float *read_all(heed_session *session, const int32_t *tokens, int64_t columns)
{
    float *logits = calloc((size_t)(ROWS * columns), sizeof *logits);
    int row = 0;
    for (int64_t t = 0, n; t < LONG; t += n, row++) {
        n = t < 900 ? PIECE : t < 1195 ? 59 : 1;
        n = t + n > LONG ? LONG - t : n;
        must(heed_feed(session, &(heed_feed_item){.tokens = tokens + t, .count = n}, 1,
                       &(heed_feed_wants){.logits = logits + row * columns}));
        if (t == 900) { /* shared, copied, written, taken back */
            must(heed_session_share(session, 0, 1, 900));
            must(heed_feed(session, &(heed_feed_item){.sequence = 1, .tokens = tokens + t, .count = 50}, 1,
                           &(heed_feed_wants){.logits = logits + (ROWS - 1) * columns}));
        }
    }
    return logits;
}

/* A session with the smallest budget that is allowed. */
static heed_session *tightest(const heed_model *model, heed_session_options options)
{
    heed_session *session = NULL;
    options.offload = folder;
    for (options.resident_bytes = 32 << 10; heed_session_create(&session, model, &options);
         options.resident_bytes += 8 << 10)
        if (options.resident_bytes > 8 << 20)
            fail_msg("%s", heed_message());
    return session;
}

static void an_offloaded_session_reads_the_same_bits(void **state)
{
    (void)state;
    static const struct {
        const char *model, *spec;
    } each[] = {{"llama", NULL},
                {"llama", "select=top_k(40); cache=q8"},
                {"llama", "select=moba(block=64, k=2)"},
                {"gemma3", "select=quest(page=16, budget=96) > top_k(20)"},
                {"gemma3", "cache=tova(budget=1100)"}};
    for (size_t i = 0; i < sizeof each / sizeof *each; i++) {
        small_model small;
        open_small(&small, each[i].model, true);
        int32_t tokens[LONG];
        small_text(&small, tokens, LONG);
        const heed_session_options options = {
            .context = LONG, .sequences = 2, .chunk = 128, .threads = 1, .attention = each[i].spec};
        heed_session *whole = new_session(small.model, &options), *away = tightest(small.model, options);
        float *a = read_all(whole, tokens, small.columns), *b = read_all(away, tokens, small.columns);
        if (memcmp(a, b, (size_t)(ROWS * small.columns) * sizeof *a) != 0)
            fail_msg("%s, %s: other bits", each[i].model, each[i].spec ? each[i].spec : "");
        heed_session_usage usage;
        heed_session_get_usage(away, &usage);
        assert_true(usage.offloaded_bytes > 0 && usage.offloaded_bytes < usage.bytes);
        assert_true(usage.fetched_bytes > usage.offloaded_bytes);
        free(a);
        free(b);
        heed_session_free(whole);
        heed_session_free(away);
        close_small(&small);
    }
}

static void expect(const heed_model *model, heed_session_options options, const char *words)
{
    heed_session *session;
    const heed_status status = heed_session_create(&session, model, &options);
    if (!status || !strstr(heed_message(), words))
        fail_msg("%s instead of `%s`", status ? heed_message() : "made", words);
}

static void what_cannot_be_offloaded_is_a_sentence(void **state)
{
    (void)state;
    small_model small;
    open_small(&small, "llama", true);
    const heed_session_options good = {
        .context = 9000, .threads = 1, .offload = folder, .resident_bytes = 8 << 20};
    heed_session_options wrong = good;
    wrong.offload = "/nowhere/at/all";
    expect(small.model, wrong, "/nowhere/at/all: no file");
    wrong = good;
    wrong.resident_bytes = 0;
    expect(small.model, wrong, "say how many");
    wrong.resident_bytes = 1000;
    expect(small.model, wrong, "so it must be at least");
    wrong = good;
    wrong.offload = "/dev/shm";
    if (access("/dev/shm", W_OK) == 0)
        expect(small.model, wrong, "lies in memory");
    close_small(&small);
}

/* A limit on the size of files stands for a disk that is full. */
static void a_full_disk_is_a_sentence_and_loses_nothing(void **state)
{
    (void)state;
    small_model small;
    open_small(&small, "llama", true);
    int32_t tokens[LONG];
    small_text(&small, tokens, LONG);
    const size_t bytes = (size_t)small.columns * sizeof(float);
    float *a = malloc(bytes), *b = malloc(bytes);
    heed_session_options options = {.context = LONG, .threads = 1, .chunk = 128};
    heed_session *whole = new_session(small.model, &options);
    options.offload = folder;
    options.resident_bytes = 4 << 20;
    heed_session *away = new_session(small.model, &options);
    struct rlimit before, low;
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &before), 0);
    low = before;
    low.rlim_cur = 100000;
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &low), 0);
    must(heed_feed(away, &(heed_feed_item){.tokens = tokens, .count = 128}, 1, NULL));
    const heed_status status =
        heed_feed(away, &(heed_feed_item){.tokens = tokens + 128, .count = 1000}, 1, NULL);
    assert_int_equal(status, HEED_IO);
    assert_non_null(strstr(heed_message(), "/var/tmp: no space for"));
    assert_int_equal(heed_session_length(away, 0), 128);
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &before), 0);
    must(heed_feed(whole, &(heed_feed_item){.tokens = tokens, .count = 128}, 1, NULL));
    must(heed_feed(whole, &(heed_feed_item){.tokens = tokens + 128, .count = 1000}, 1,
                   &(heed_feed_wants){.logits = a}));
    must(heed_feed(away, &(heed_feed_item){.tokens = tokens + 128, .count = 1000}, 1,
                   &(heed_feed_wants){.logits = b}));
    assert_memory_equal(a, b, bytes);
    free(a);
    free(b);
    heed_session_free(whole);
    heed_session_free(away);
    close_small(&small);
}

int main(void)
{
    signal(SIGXFSZ, SIG_DFL); /* the library must not run into it */
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_pager_keeps_its_budget_and_its_pages),
        cmocka_unit_test(what_is_read_again_stays),
        cmocka_unit_test(an_offloaded_session_reads_the_same_bits),
        cmocka_unit_test(what_cannot_be_offloaded_is_a_sentence),
        cmocka_unit_test(a_full_disk_is_a_sentence_and_loses_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
