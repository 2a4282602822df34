/* A context that is worked on: a text in fragments that can be hidden, restored, put shortly and searched.
 *
 * Sequence 0 of a session holds the whole text and never changes; a question is read behind a share of it
 * from which the keys of hidden fragments are taken out, at the positions that the others have anyway. So
 * nothing sees a hidden fragment, and what is restored is what was there, bit for bit. Where a fragment is
 * put shortly, the text is read anew, for what stands behind it moves. Li et al.: Sculptor, 2025. */
#ifndef HEED_EVAL_SCULPTOR_H
#define HEED_EVAL_SCULPTOR_H

#include <heed/model.h>

typedef struct heed_fragment {
    int64_t first, count; /* tokens of the text */
    size_t at, size;      /* bytes */
    bool hidden;
    heed_tokens brief; /* stands for it; none: it stands for itself */
} heed_fragment;

typedef struct heed_sculptor heed_sculptor;

typedef struct heed_sculptor_options {
    const char *text;      /* copied */
    int64_t fragment;      /* tokens of a fragment; 0: lines are fragments */
    int64_t room;          /* tokens for questions and answers */
    const char *attention; /* without the clause cache */
    heed_type cache;
    bool cache_given;
    int threads;
} heed_sculptor_options;

/* Reads the text. */
heed_status heed_sculptor_create(heed_sculptor **sculptor, const heed_model *model,
                                 const heed_sculptor_options *options);
void heed_sculptor_free(heed_sculptor *sculptor);

int heed_sculptor_fragments(const heed_sculptor *sculptor);
const heed_fragment *heed_sculptor_fragment(const heed_sculptor *sculptor, int id);
/* The text of a fragment; freed with free(). NULL without memory or for an id that there is none of. */
char *heed_sculptor_get(const heed_sculptor *sculptor, int id);

/* HEED_INVALID for an id that there is none of. */
heed_status heed_sculptor_hide(heed_sculptor *sculptor, int id);
heed_status heed_sculptor_restore(heed_sculptor *sculptor, int id); /* its brief goes too */
heed_status heed_sculptor_summarise(heed_sculptor *sculptor, int id, const char *brief);

/* Fragments that hold the words as they stand (exact), or the `most` that share most words with them, rarer
 * ones counting for more: best first. Hidden ones are found too. Returns how many. */
int heed_sculptor_search(const heed_sculptor *sculptor, const char *words, bool exact, int *found, int most);

/* Hides all but the `keep` fragments most like the question; of equal ones the later stay. */
heed_status heed_sculptor_focus(heed_sculptor *sculptor, const char *question, int keep);
/* Of fragments that begin with the same words before a colon hides all but the last. */
heed_status heed_sculptor_latest(heed_sculptor *sculptor);

/* One call of a tool, as JSON: {"tool": "hide", "id": 3}, restore, get alike; {"tool": "summarise", "id": 3,
 * "text": "..."}; {"tool": "search", "words": "...", "exact": true}; {"tool": "focus", "question": "...",
 * "keep": 8}; {"tool": "latest"}. What it answers is JSON too, freed with free(). HEED_INVALID, with nothing
 * changed, for a call that is none. */
heed_status heed_sculptor_call(heed_sculptor *sculptor, const char *call, char **answer);

/* Reads a question behind what is visible, in a sequence that afterwards holds both; logits of its last
 * token, [vocabulary]. */
heed_status heed_sculptor_ask(heed_sculptor *sculptor, const int32_t *tokens, int64_t count, float *logits);
/* Where that sequence is, to be read on: sequence 1. */
heed_session *heed_sculptor_session(heed_sculptor *sculptor);
enum { HEED_SCULPTED = 1 };

#endif
