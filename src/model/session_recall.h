/* What selectors carry from step to step and from layer to layer, of every sequence. */
#ifndef HEED_MODEL_SESSION_RECALL_H
#define HEED_MODEL_SESSION_RECALL_H

#include "base/arena.h"
#include <heed/attend.h>
#include <heed/recall.h>

struct heed_piece;

enum { HEED_SHOWN_DIM = 1024 }; /* most entries of a query that is shown */

/* Whose queries a memory shows. */
typedef struct heed_showing {
    const struct heed_session *session;
    int64_t layer, sequence;
} heed_showing;

/* How large a memory is. */
typedef struct heed_memory_size {
    int64_t numbers, reals;
} heed_memory_size;

/* Whether the layer's selector keeps a memory of its own, from step to step. */
bool heed_session_remembers(const struct heed_session *session, int64_t layer);
heed_memory_size heed_session_memory_size(const struct heed_session *session, int64_t layer);
heed_memory *heed_session_memory(const struct heed_session *session, int64_t sequence, int64_t layer);

/* Refuses a layer that drops keys, and one that reads what no layer before it chose. */
heed_status heed_session_check_recall(struct heed_session *session, int64_t layer);

/* Memory of the memories, all 0; taken from the system as it is touched. */
heed_status heed_session_take_memories(struct heed_session *session);
/* Queries of each head that the layer's selector wants to see. */
int64_t heed_session_shows(const struct heed_session *session, int64_t layer);

/* The memories of pieces of one token, as an execution takes them; a prompt's are NULL. */
heed_memory *const *heed_session_recalled(struct heed_session *session, int64_t layer,
                                          const struct heed_piece *piece, int64_t pieces, int64_t batch);
/* A prompt makes what was remembered before it void. */
void heed_session_read_prompt(struct heed_session *session, int64_t layer, const struct heed_piece *piece);

/* What was remembered of tokens from place `length` on is void. */
void heed_session_unlearn(struct heed_session *session, int64_t sequence, int64_t length);
void heed_session_share_memories(struct heed_session *session, int64_t from, int64_t to);

#endif
