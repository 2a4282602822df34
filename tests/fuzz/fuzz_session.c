/* Any bytes as a saved session, with checksums that are right: it is refused with a sentence and the sequence
 * stays empty, or it can be read on, cut and saved again.
 */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE /* memfd_create */
#endif
#include "model/session_file.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { CONTEXT = 96 };

/* The corpus has a saved session of each. */
static const struct {
    const char *model, *spec;
} each[] = {{"llama", NULL},
            {"gemma3", "cache=q8"},
            {"llama", "cache=h2o(budget=20) > mean > packed > q4"},
            {"llama", "cache=snapkv(budget=24, window=4) > by_head"},
            {"llama", "where=causal & (window(9) | first(3))"},
            {"llama", "select=recycled(every=4, k=16)"}};
enum { SESSIONS = sizeof each / sizeof *each };

static heed_session *session[SESSIONS];

static void must(heed_status status)
{
    if (status) {
        fprintf(stderr, "%s\n", heed_message());
        abort();
    }
}

static void open_all(void)
{
    for (int i = 0; i < SESSIONS; i++) {
        heed_model *model;
        char path[512];
        snprintf(path, sizeof path, "%s/%s", HEED_FUZZ_MODELS, each[i].model);
        must(heed_model_open(&model, path, &(heed_model_options){.threads = 1}));
        must(heed_session_create(
            &session[i], model,
            &(heed_session_options){
                .context = CONTEXT, .chunk = 16, .threads = 1, .attention = each[i].spec}));
    }
}

/* Sums are what they would be if these bytes had been written. */
static void mend_sums(uint8_t *data, size_t size)
{
    for (size_t at = 16; size >= 24 && at <= size - 24;) {
        int64_t bytes;
        memcpy(&bytes, data + at + 8, sizeof bytes);
        if (bytes < 0 || (uint64_t)bytes > size - at - 24)
            return;
        const uint64_t sum = heed_sum(HEED_SUM_START, data + at, (size_t)bytes + 16);
        memcpy(data + at + 16 + bytes, &sum, sizeof sum);
        at += (size_t)bytes + 24;
    }
}

static void use(heed_session *one)
{
    const int32_t tokens[] = {1, 2, 3};
    const int64_t held = heed_session_length(one, 0);
    char again[64];
    const int file = memfd_create("again", 0);
    snprintf(again, sizeof again, "/proc/self/fd/%d", file);
    if (heed_session_save(one, 0, again) == HEED_OK && heed_session_length(one, 0) != held)
        abort();
    close(file);
    for (int i = 0; i < 3; i++)
        heed_feed(one, &(heed_feed_item){.tokens = tokens + i, .count = 1}, 1, NULL); /* it may be full */
    heed_session_cut(one, 0, held / 2);
    heed_feed(one, &(heed_feed_item){.tokens = tokens, .count = 3}, 1, NULL);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (!session[0])
        open_all();
    uint8_t *copy = malloc(size + 1);
    const int file = memfd_create("saved", 0);
    if (!copy || file < 0)
        abort();
    memcpy(copy, data, size);
    mend_sums(copy, size);
    char path[64];
    snprintf(path, sizeof path, "/proc/self/fd/%d", file);
    if (write(file, copy, size) != (ssize_t)size)
        abort();
    for (int i = 0; i < SESSIONS; i++) {
        if (heed_session_load(session[i], 0, path) == HEED_OK)
            use(session[i]);
        else if (heed_session_length(session[i], 0) != 0 || heed_pages_bytes(&session[i]->pages) != 0)
            abort();
        must(heed_session_cut(session[i], 0, 0));
        if (heed_pages_bytes(&session[i]->pages) != 0)
            abort();
    }
    close(file);
    free(copy);
    return 0;
}
