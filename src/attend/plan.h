/* A plan from the inside: what planner and kernels share. */
#ifndef HEED_ATTEND_PLAN_H
#define HEED_ATTEND_PLAN_H

#include <heed/attend.h>
#include <stdatomic.h>

#define HEED_MAX_FORMS 24                   /* forms in one pipeline */
#define HEED_MAX_WHERE 64                   /* nodes in a `where` expression */
#define HEED_MAX_HOOKS 8                    /* forms with the same hook in one pipeline */
#define HEED_POSITION_LIMIT ((1 << 30) - 1) /* so that distances fit into 32 bits */
#define HEED_KEYS 128                       /* keys packed at a time */
#define HEED_KEY_STRIDE                                                                                      \
    144 /* floats from row to row of transposed keys: an odd number of cache lines, so that rows spread      \
           over the sets of a cache */
#define HEED_SUB 32 /* keys whose visibility is decided at a time inside a partly open block */

/* A node of the `where` expression, children before parents. */
typedef struct heed_where_node {
    enum { HEED_WHERE_LEAF, HEED_WHERE_NOT, HEED_WHERE_AND, HEED_WHERE_OR } kind;
    int form;        /* leaf: index into pipeline->form */
    int left, right; /* indices of nodes */
} heed_where_node;

/* The forms that some of the heads run through, in the order in which kernels use them. */
typedef struct heed_pipeline {
    heed_form_state form[HEED_MAX_FORMS];
    int forms;

    /* indices into `form`; -1 where there is none */
    int score, pair, normalise, heads, read;
    int prepare[HEED_MAX_HOOKS], prepares; /* forms that prepare rows, in order: position, then score */
    int adjust[HEED_MAX_HOOKS],
        adjusts; /* position forms with bias or adjust; those that read raw scores first */
    int select[HEED_MAX_HOOKS], selects;
    int modify[HEED_MAX_HOOKS], modifies; /* changes of logits inside normalise (soft cap) */
    heed_where_node where[HEED_MAX_WHERE];
    int wheres;                     /* 0: all pairs are open */
    int aux[HEED_MAX_HOOKS], auxes; /* forms with query_aux */
    int aux_at[HEED_MAX_FORMS];     /* floats a row before this form's, over the same rows */
    int aux_floats;                 /* a query row, all forms together */
    /* planes of scores that backward keeps for each form's adjust_backward: what it was given, and what it
     * put out; -1 for none */
    int kept_before[HEED_MAX_FORMS], kept_after[HEED_MAX_FORMS];
    int kept_planes;

    float scale;       /* factor on the product (or on the pair hook's sum) */
    int row_dim;       /* entries of a prepared row */
    bool plain_query;  /* preparing queries is no more than scaling */
    bool plain_key;    /* keys are used as they are */
    bool keys_by_head; /* keys are prepared anew for each query head */
    bool keys_ready;   /* keys come prepared: nothing is done to them */
    bool whole_rows;   /* some form works on whole rows: for the rows kernel, unless only_selects */
    bool only_selects; /* no form but selectors asks for whole rows, and the normaliser goes online */
    int by_blocks;     /* the first selector, if it decides by blocks of keys; else -1 */
    bool many_blocks;  /* a selector behind the first decides by blocks as well */
    bool by_group;     /* some selector takes one choice for all query heads of a kv head */
    int recalls;       /* the selector, if its choice outlives executions; else -1 */
    int votes;         /* the selector that has votes; else -1 */
    int gathers;       /* the selector, if it gathers by lists; else -1 */
    bool causal;       /* see heed_sizes.causal */
    heed_kernel kernel;
    const char *why; /* the reason for that kernel */

    short slot[HEED_MAX_FORMS][HEED_MAX_PARAMS]; /* index of each parameter among the plan's */
    int query_block;                             /* queries of one head in a piece of work */
    int segments; /* forward: pieces of query blocks whose key sums are kept apart; 0: every query block by
                     itself */
    bool fast_products; /* 16-bit products of q k and w v */
    int *head;          /* [heads_here] query heads, rising */
    int heads_here;
    int *group_first; /* [kv_heads + 1] where each kv head's query heads begin in `head` */
} heed_pipeline;

/* One learnable tensor of the plan. */
typedef struct heed_plan_slot {
    heed_plan_param_info info;
    int pipeline, form, param; /* its first use */
    float *initial;            /* dense; NULL when required */
    int64_t floats;
    int64_t at; /* floats before it in a list of all parameters */
} heed_plan_slot;

/* Where things lie in the scratch; offsets in bytes. */
typedef struct heed_layout {
    size_t shared;     /* bytes shared by all threads */
    size_t per_thread; /* bytes a thread */
    size_t total;
} heed_layout;

struct heed_plan {
    heed_problem problem;
    char *spec; /* canonical */
    heed_pipeline *pipeline;
    int pipelines;
    heed_plan_slot *slot;
    int slots;
    int64_t slot_floats; /* of all parameters together */
    heed_isa isa;
    const struct heed_kernel_table *kernels;
    heed_layout forward, backward;
    size_t tables; /* bytes of scratch before what the layouts say */

    void *scratch; /* the plan's own */
    atomic_flag *busy;
};

/* An execution: the plan, its tensors, and pipelines with parameters bound. Lives in scratch. */
typedef struct heed_run {
    const heed_plan *plan;
    heed_pipeline *pipeline; /* copies with parameters bound */
    heed_tensor q, k, v, out;
    heed_inputs *inputs; /* [G where kv heads hold different keys, else 1] */
    const heed_extra *extra;
    const heed_gradients *gradients;      /* NULL forward */
    const int32_t *query_pos;             /* [batch][N] */
    const int32_t *key_pos;               /* [lists][M], see heed_key_list */
    bool list_by_batch, list_by_head;     /* whose key positions differ; the tables below follow it */
    bool default_positions;               /* contiguous without looking */
    bool summaries_paged;                 /* extra->summaries is [pages, G, floats a page] */
    const int32_t *sub_min, *sub_max;     /* [lists][subs] positions of runs of HEED_SUB keys */
    const int32_t *block_min, *block_max; /* [lists][blocks] and of HEED_KEYS keys */
    int64_t subs, blocks;
    const int32_t *query_count; /* [batch] those that exist */
    const int32_t *key_count;   /* [G or 1][batch], see heed_key_count */
    const char *page_table;     /* i32; the bytes from one batch entry, kv head and page to the next */
    int64_t page_step[3];
    heed_grade grade[HEED_MOST_GRADES]; /* pools of the grades beside the first */
    const char *mass; /* f32, or NULL; the bytes from one batch entry and kv head to the next */
    int64_t mass_step[2];
    float *row_state;       /* [batch, H, N, 2]: norm and lse; NULL when not kept */
    char *shared, *threads; /* scratch after the run's own tables */
    size_t per_thread;
} heed_run;

static inline bool heed_keys_by_kv_head(const heed_plan *plan)
{
    return plan->problem.with & HEED_WITH_KEYS_BY_HEAD;
}

static inline int64_t heed_kv_head_of(const heed_plan *plan, int64_t head)
{
    return head * plan->problem.kv_heads / plan->problem.heads;
}

/* The pool that an entry of a page table points into, and its page there. base: &run->k or &run->v. */
static inline const heed_tensor *heed_pool_of(const heed_run *run, const heed_tensor *base, int32_t entry,
                                              int64_t *page)
{
    const int grade = entry >> HEED_GRADE_SHIFT;
    *page = entry & ((1 << HEED_GRADE_SHIFT) - 1);
    if (grade == 0)
        return base;
    return base == &run->v ? &run->grade[grade - 1].v : &run->grade[grade - 1].k;
}

/* What forms see of the inputs, for a kv head. */
static inline const heed_inputs *heed_inputs_of(const heed_run *run, int64_t kv_head)
{
    return run->inputs + (heed_keys_by_kv_head(run->plan) ? kv_head : 0);
}

/* Keys of a kv head that exist. */
static inline int32_t heed_key_count(const heed_run *run, int64_t batch, int64_t kv_head)
{
    return run->key_count[batch + (heed_keys_by_kv_head(run->plan) ? kv_head * run->plan->problem.batch : 0)];
}

/* Which list holds the positions of its keys. */
static inline int64_t heed_key_list(const heed_run *run, int64_t batch, int64_t kv_head)
{
    return (run->list_by_batch ? batch : 0) + (run->list_by_head ? kv_head * run->plan->problem.batch : 0);
}

/* The positions of its keys. */
static inline const int32_t *heed_key_positions(const heed_run *run, int64_t batch, int64_t kv_head)
{
    return run->key_pos + heed_key_list(run, batch, kv_head) * run->plan->problem.keys;
}

/* The masses of its keys; only where run->mass is not NULL. */
static inline const float *heed_masses(const heed_run *run, int64_t batch, int64_t kv_head)
{
    return (const float *)(const void *)(run->mass + batch * run->mass_step[0] + kv_head * run->mass_step[1]);
}

/* The kernels in the build for one instruction set. */
typedef struct heed_kernel_table {
    int rows, width; /* rows of a strip; floats in a vector */
    const heed_form *const *const *forms;
    /* Picks block sizes and fills the layouts of a plan whose kernel has been chosen. */
    void (*layout)(heed_plan *plan);
    heed_status (*forward)(const heed_run *run);
    heed_status (*backward)(const heed_run *run);
    /* Pairs of one head and batch entry that are open under `where`, at default positions; -1 without memory.
     */
    double (*open_pairs)(const heed_plan *plan, const heed_pipeline *pipeline);
    /* The best kernel class for a pipeline, with the reason; or whether the one asked for can run it. */
    heed_status (*choose)(const heed_plan *plan, heed_pipeline *pipeline);
} heed_kernel_table;

#endif
