/* What a session carries along for layers that do not attend to keys that are kept. */
#ifndef HEED_MODEL_SESSION_CARRY_H
#define HEED_MODEL_SESSION_CARRY_H

#include "model/carried.h"

struct heed_session;
struct heed_step;

enum { HEED_CARRY_RUNS = 4 };

typedef struct heed_carry {
    heed_carries carries;
    heed_carried run[HEED_CARRY_RUNS]; /* the longest first; of kept inputs one, for the whole context */
    int runs;
    int64_t floats; /* of a sequence, at most */
    float *held;    /* [sequences + 1][floats] */
} heed_carry;

/* Graphs and memory of all layers that carry something. */
heed_status heed_carry_open(struct heed_session *session);
void heed_carry_close(struct heed_session *session);
/* Layers that carry this. */
int64_t heed_carry_layers(const struct heed_session *session, heed_carries carries);
bool heed_carry_any(const struct heed_session *session);
/* As heed_carry_any, but only states, which cannot go back. */
bool heed_carry_is_state(const struct heed_session *session, int64_t layer);

/* The layer's part of work->x, of rows that were normed. */
heed_status heed_carry_read(struct heed_session *session, int64_t layer, const struct heed_step *step,
                            const float *input);

/* An empty sequence has states of 0. */
void heed_carry_empty(struct heed_session *session, int64_t sequence);
void heed_carry_copy(struct heed_session *session, int64_t from, int64_t to, int64_t length);

/* What a sequence of `length` tokens holds at a layer. */
float *heed_carry_held(const struct heed_session *session, int64_t layer, int64_t sequence);
int64_t heed_carry_floats(const struct heed_session *session, int64_t layer, int64_t length);
size_t heed_carry_bytes(const struct heed_session *session);
/* A line on how the layer is read, as snprintf. */
int heed_carry_describe(const struct heed_session *session, int64_t layer, char *text, size_t size);

#endif
