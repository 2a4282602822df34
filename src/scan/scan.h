/* What the plans of recurrences and their loops share. */
#ifndef HEED_SCAN_SCAN_H
#define HEED_SCAN_SCAN_H

#include <heed/scan.h>

#define HEED_SCAN_COLUMNS                                                                                    \
    32                      /* of the state that go together: a piece of work whatever the instruction set   \
                             */
#define HEED_SCAN_TOKENS 64 /* prepared at a time; in the backward run, between states that are kept */

/* Rows that will be read, or written, soon. */
typedef struct heed_scan_soon {
    const char *row;
    int64_t stride, bytes;
} heed_scan_soon;

enum { HEED_SCAN_SOON = 9 };

/* Some tokens of one kv head and HEED_SCAN_COLUMNS columns of its state. */
typedef struct heed_scan_run {
    int count, channels, queries; /* tokens; rows of the state; query heads that read it */
    int64_t apart;                /* tokens from one query head to the next in query, out, dout and dquery */
    bool delta;
    const float *key, *keep, *remove, *probe; /* [count][channels]; the last two where delta */
    const float *query;                       /* [queries][apart][channels] */
    const float *value;                       /* [count][COLUMNS] */
    float *state;                             /* [channels][COLUMNS] before the first token; after the last */
    float *out;                               /* [queries][apart][COLUMNS] */
    int soons;                                /* tensors of which a row is brought near with each token */
    const heed_scan_soon *soon;
} heed_scan_run;

/* The way back. States lie one behind the other: state[t] is before token t. */
typedef struct heed_scan_back {
    const heed_scan_run *run; /* state and out are not read */
    const float *states;      /* [count + 1][channels][COLUMNS] */
    const float *dout;        /* [queries][apart][COLUMNS] */
    float *dstate; /* [channels][COLUMNS] gradient of the state after the last token; before the first */
    float *dkey, *dkeep, *dremove, *dprobe, *dquery; /* as in run, to add to */
    float *dvalue;                                   /* [count][COLUMNS] */
} heed_scan_back;

typedef struct heed_scan_kernels {
    void (*forward)(const heed_scan_run *run);
    /* One column in which every value is 1: state [channels], out [queries][apart]. */
    void (*norm)(const heed_scan_run *run);
    /* states[t] for all tokens: states[0] is given */
    void (*states)(const heed_scan_run *run, float *states);
    void (*backward)(const heed_scan_back *back);
} heed_scan_kernels;

const heed_scan_kernels *heed_scan_kernels_of(heed_isa isa);

/* Tokens of one kv head whose state is a few slots; kernels/slots.c. */
typedef struct heed_slots_run {
    int count, slots, queries;
    int64_t dim, value_dim, apart; /* apart: as in heed_scan_run */
    const float *key, *keep;       /* [count][slots] */
    const float *query;            /* [queries][apart][dim] */
    const float *rows;             /* [count][dim + value_dim] k, then v */
    float *state;                  /* [slots][dim + value_dim] */
    float *out;                    /* [queries][apart][value_dim] */
    float *weight;                 /* [2 slots] scratch */
} heed_slots_run;

typedef struct heed_slots_back {
    const heed_slots_run *run;
    const float *states;                  /* [count + 1][slots][dim + value_dim] */
    const float *dout;                    /* [queries][apart][value_dim] */
    float *dstate;                        /* of the state after the last token; before the first */
    float *dkey, *dkeep, *drows, *dquery; /* as in run, to add to */
} heed_slots_back;

typedef struct heed_slots_kernels {
    void (*forward)(const heed_slots_run *run);
    void (*states)(const heed_slots_run *run, float *states); /* states[0] is given */
    void (*backward)(const heed_slots_back *back);
} heed_slots_kernels;

const heed_slots_kernels *heed_slots_kernels_of(heed_isa isa);

#endif
