/* Inside a plan of a recurrence. */
#ifndef HEED_SCAN_PLAN_H
#define HEED_SCAN_PLAN_H

#include "base/arena.h"
#include "base/try.h"
#include "scan/scan.h"

struct heed_scan_plan {
    heed_scan_problem problem;
    heed_form_state form;
    const heed_scan_rule *rule;
    const heed_scan_kernels *kernels;
    const heed_slots_kernels *slots; /* where the state is slots, else NULL */
    int channels;                    /* rows of the state */
    int group;                       /* query heads of a kv head */
    int64_t columns; /* of the state: value_dim, and one for the norm where the form normalises */
    int64_t blocks;  /* of HEED_SCAN_COLUMNS */
    bool normalises;
    bool together; /* one thread takes all blocks of a kv head, whose rows are made once; else each by itself
                    */
    bool whole;    /* all columns of a kv head go together: slots, or loops of the form's own */
    size_t per_thread;
    char *memory; /* [threads][per_thread] */
    float *norm;  /* [batch, H, tokens] what outputs are divided by */
    float *dnorm; /* its gradient */
};

/* One thread's memory for `tokens` tokens; of the backward run where `dkey` is set. */
typedef struct heed_scan_work {
    heed_scan_rows rows; /* given and made */
    float *given;        /* [tokens][5 dim + 2] */
    float *q;            /* [tokens][dim] */
    float *query;        /* [group][tokens][channels] */
    float *value, *out;  /* [tokens][COLUMNS], [group][tokens][COLUMNS] */
    float *state;        /* [channels][COLUMNS], of each block that goes together */
    float *weight;       /* [2 channels] of slots; work of the form's own loops */
    float *carry;        /* [carried] of the form */
    /* backward */
    float *dkey, *dkeep, *dremove, *dprobe, *dquery, *dgiven, *dvalue, *dout, *dq;
    float *states; /* [tokens of a run + 1][channels][COLUMNS] */
    float *begins; /* [runs][channels][COLUMNS] */
} heed_scan_work;

/* Lays the work of one thread out in `memory`, or measures it where that is NULL. */
size_t heed_scan_lay_out(const heed_scan_plan *plan, char *memory, heed_scan_work *work);

/* Tokens first.. of one head of [batch, heads, N, dim], or numbers of [batch, heads, N] with dim 1, to rows
 * of `width` floats, or back from there; nothing where the tensor is absent. */
void heed_scan_move_rows(const heed_tensor *t, int64_t batch, int64_t head, int64_t first, int64_t count,
                         int64_t dim, float *rows, int64_t width, bool back);

/* Rows first.. of one kv head into work->rows, and what the form makes of them. */
void heed_scan_prepare(const heed_scan_plan *plan, const heed_scan_tensors *t, heed_scan_work *work,
                       int64_t batch, int64_t kv_head, int64_t first, int count);

/* Columns of a block that are values; the one behind them is that of the norm, where the form normalises. */
int heed_scan_real_columns(const heed_scan_plan *plan, int64_t block);

/* value [count][COLUMNS] of column block `block`: ones in the column of the norm, 0 behind the last. */
void heed_scan_load_values(const heed_scan_plan *plan, const heed_tensor *v, int64_t batch, int64_t kv_head,
                           int64_t block, int64_t first, int count, float *to);

heed_scan_run heed_scan_run_of(const heed_scan_plan *plan, const heed_scan_work *work, int count);

/* The way back over `tokens` tokens of a recurrence whose state has `floats`: `states` makes the states
 * behind tokens first.. from states[0], which is given, and `back` the gradients of those tokens, from their
 * states and that of the state behind them, which it makes that of the one in front. */
typedef struct heed_scan_way {
    int64_t tokens, floats;
    void (*states)(const void *context, int64_t first, int count, float *states);
    void (*back)(const void *context, int64_t first, int count, const float *states, float *dstate);
    const void *context;
} heed_scan_way;

/* Both ends of the text have a state, or its gradient, of 0. */
void heed_scan_go_back(const heed_scan_way *way, const heed_scan_work *work);

/* Recurrences with slots: one kv head forward, and back: gradients of k and v, and in `work` those of what
 * enters the recurrence. value, out, state and what follows have rows of other lengths there; slots.c. */
void heed_slots_pass(const heed_scan_plan *plan, const heed_scan_tensors *t, heed_scan_work *work,
                     int64_t item, int64_t tokens);
void heed_slots_back_head(const heed_scan_plan *plan, const heed_scan_tensors *t, const heed_tensor *dout,
                          const heed_scan_tensors *d, heed_scan_work *w, int64_t batch, int64_t kv_head,
                          int64_t tokens);

heed_status heed_scan_check(const heed_scan_plan *plan, const heed_scan_tensors *t, int64_t *tokens);

/* Recurrences of a form's own: one kv head forward, and back. `rows` has the gradients of what was given. */
void heed_own_pass(const heed_scan_plan *plan, const heed_scan_tensors *t, heed_scan_work *work, int64_t item,
                   int64_t tokens);
void heed_own_back(const heed_scan_plan *plan, const heed_scan_tensors *t, const heed_tensor *dout,
                   const heed_scan_tensors *d, heed_scan_work *w, const heed_scan_rows *rows, int64_t batch,
                   int64_t kv_head, int64_t tokens);

/* Entries of a row of the gate. */
static inline int64_t heed_scan_gate_dim(const heed_scan_plan *plan)
{
    return plan->whole ? plan->channels : plan->problem.dim;
}

/* Entries of a query as the recurrence meets it. */
static inline int64_t heed_scan_query_dim(const heed_scan_plan *plan)
{
    return plan->whole ? plan->problem.dim : plan->channels;
}

/* x / norm; 0 where nothing was written or asked for, as of rows that may see nothing. */
static inline float heed_scan_over_norm(float x, float norm)
{
    return norm != 0.0f ? x / norm : 0.0f;
}

static inline size_t heed_scan_bytes_of(int64_t floats)
{
    return (size_t)floats * sizeof(float);
}

/* Entry [b, h, n, 0] of a tensor, which may end at n. */
static inline float *heed_scan_at(const heed_tensor *t, int64_t b, int64_t h, int64_t n)
{
    return (float *)((char *)t->data + b * t->stride[0] + h * t->stride[1] + n * t->stride[2]);
}

#endif
