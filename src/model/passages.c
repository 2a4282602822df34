/* Passages by their tokens: each lies in a sequence of its own of the session, read from position 0 on. */
#include "base/try.h"
#include "model/session.h"
#include "model/session_file.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

typedef struct passage {
    uint64_t name; /* of its tokens */
    int64_t used;  /* when it was last asked for; 0: the sequence is empty */
    size_t bytes;
} passage;

struct heed_passages {
    heed_session *session;
    int64_t first, count, now;
    size_t most, bytes;
    char *folder;
    passage *passage; /* [count] */
    heed_passages_usage usage;
};

heed_status heed_passages_create(heed_passages **out, heed_session *session, int64_t first, int64_t count,
                                 size_t most_bytes, const char *folder)
{
    if (!out || !session)
        return heed_fail(HEED_INVALID, "passages and a session are needed");
    *out = NULL;
    if (heed_carry_any(session))
        return heed_fail(HEED_UNSUPPORTED,
                         "layers of this model carry a state along or keep inputs of all tokens: "
                         "passages that were read apart cannot be put together");
    if (first < 0 || count < 1 || count > session->sequences - first)
        return heed_fail(HEED_INVALID, "sequences %lld to %lld for passages: the session has %lld",
                         (long long)first, (long long)(first + count - 1), (long long)session->sequences);
    heed_passages *passages = calloc(1, sizeof *passages);
    if (passages) {
        *passages = (heed_passages){.session = session, .first = first, .count = count, .most = most_bytes};
        passages->passage = calloc((size_t)count, sizeof *passages->passage);
        passages->folder = folder ? strdup(folder) : NULL;
    }
    if (!passages || !passages->passage || (folder && !passages->folder)) {
        heed_passages_free(passages);
        return heed_fail(HEED_NO_MEMORY, "no memory for a list of passages");
    }
    *out = passages;
    return HEED_OK;
}

void heed_passages_free(heed_passages *passages)
{
    if (!passages)
        return;
    for (int64_t i = 0; passages->passage && i < passages->count; i++)
        heed_session_cut(passages->session, passages->first + i, 0);
    free(passages->passage);
    free(passages->folder);
    free(passages);
}

static bool holds(const heed_passages *p, int64_t i, uint64_t name, const int32_t *tokens, int64_t count)
{
    const int64_t sequence = p->first + i;
    return p->passage[i].used && p->passage[i].name == name &&
           heed_session_length(p->session, sequence) == count &&
           !memcmp(heed_session_tokens(p->session, sequence), tokens, (size_t)count * sizeof *tokens);
}

static size_t bytes_of(const heed_session *session, int64_t sequence)
{
    const heed_pages *pages = &session->pages;
    size_t bytes = 0;
    for (int64_t l = 0; l < pages->layers; l++)
        for (int64_t g = 0; g < pages->heads; g++)
            bytes += (size_t)heed_pages_for(heed_pages_list(pages, sequence, l, g)->count) *
                     pages->layer[l].layout[0].page_bytes;
    return bytes;
}

static void forget(heed_passages *p, int64_t i)
{
    p->bytes -= p->passage[i].bytes;
    p->passage[i] = (passage){.used = 0};
    heed_session_cut(p->session, p->first + i, 0); /* to nothing: cannot fail */
}

/* The passage used longest ago, not `but`; -1 where none is held. */
static int64_t oldest(const heed_passages *p, int64_t but)
{
    int64_t found = -1;
    for (int64_t i = 0; i < p->count; i++)
        if (i != but && p->passage[i].used && (found < 0 || p->passage[i].used < p->passage[found].used))
            found = i;
    return found;
}

static int64_t free_place(heed_passages *p)
{
    for (int64_t i = 0; i < p->count; i++)
        if (!p->passage[i].used)
            return i;
    const int64_t i = oldest(p, -1);
    forget(p, i);
    p->usage.dropped++;
    return i;
}

/* "FOLDER/0123456789abcdef.passage"; freed by the caller. */
static char *file_of(const heed_passages *p, uint64_t name)
{
    const size_t size = strlen(p->folder) + 40;
    char *path = malloc(size);
    if (path)
        snprintf(path, size, "%s/%016llx.passage", p->folder, (unsigned long long)name);
    return path;
}

/* A file that is of something else, or of other tokens with the same name, is written anew. */
static bool load(const heed_passages *p, int64_t sequence, const char *path, const int32_t *tokens,
                 int64_t count)
{
    if (access(path, F_OK) != 0 || heed_session_load(p->session, sequence, path))
        return false;
    if (heed_session_length(p->session, sequence) == count &&
        !memcmp(heed_session_tokens(p->session, sequence), tokens, (size_t)count * sizeof *tokens))
        return true;
    heed_session_cut(p->session, sequence, 0);
    return false;
}

static heed_status bring(heed_passages *p, int64_t i, uint64_t name, const int32_t *tokens, int64_t count,
                         heed_passage_source *source)
{
    const int64_t sequence = p->first + i;
    const heed_feed_item item = {
        .sequence = sequence, .tokens = tokens, .count = count, .reading = HEED_READ_PROMPT_END};
    char *path = p->folder ? file_of(p, name) : NULL;
    if (p->folder && !path)
        return heed_fail(HEED_NO_MEMORY, "no memory for the path of a passage");
    *source = path && load(p, sequence, path, tokens, count) ? HEED_PASSAGE_FILE : HEED_PASSAGE_READ;
    heed_status status = HEED_OK;
    if (*source == HEED_PASSAGE_READ) {
        status = heed_feed(p->session, &item, 1, NULL);
        if (!status && path)
            status = heed_session_save(p->session, sequence, path);
    }
    free(path);
    if (status) {
        heed_session_cut(p->session, sequence, 0);
        return status;
    }
    p->passage[i] = (passage){.name = name, .used = ++p->now, .bytes = bytes_of(p->session, sequence)};
    p->bytes += p->passage[i].bytes;
    return HEED_OK;
}

heed_status heed_passages_add(heed_passages *p, int64_t to, const int32_t *tokens, int64_t count,
                              heed_passage_source *source)
{
    heed_passage_source own;
    source = source ? source : &own;
    if (!p || !tokens || count < 1)
        return heed_fail(HEED_INVALID, "passages, and a passage of at least one token, are needed");
    if (to >= p->first && to < p->first + p->count)
        return heed_fail(HEED_INVALID, "sequence %lld holds passages, it cannot take one in", (long long)to);
    const uint64_t name = heed_sum(HEED_SUM_START, tokens, (size_t)count * sizeof *tokens);
    int64_t i = 0;
    while (i < p->count && !holds(p, i, name, tokens, count))
        i++;
    *source = HEED_PASSAGE_KEPT;
    if (i < p->count) {
        p->passage[i].used = ++p->now;
    } else {
        i = free_place(p);
        TRY(bring(p, i, name, tokens, count, source));
    }
    const heed_status status = heed_session_splice(p->session, p->first + i, to);
    p->usage.source[*source] += !status;
    for (int64_t old; p->bytes > p->most && (old = oldest(p, i)) >= 0; p->usage.dropped++)
        forget(p, old);
    if (p->bytes > p->most) { /* it alone is more */
        forget(p, i);
        p->usage.dropped++;
    }
    return status;
}

void heed_passages_get_usage(const heed_passages *p, heed_passages_usage *usage)
{
    *usage = p->usage;
    usage->bytes = p->bytes;
    for (int64_t i = 0; i < p->count; i++)
        usage->kept += p->passage[i].used != 0;
}
