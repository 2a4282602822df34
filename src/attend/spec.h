/* A parsed spec: clauses by stage, in groups that hold for some layers and heads. */
#ifndef HEED_ATTEND_SPEC_H
#define HEED_ATTEND_SPEC_H

#include <heed/attend.h>

typedef enum heed_node_kind {
    HEED_NODE_FORM,  /* one form with its arguments */
    HEED_NODE_NOT,   /* !left */
    HEED_NODE_AND,   /* left & right */
    HEED_NODE_OR,    /* left | right */
    HEED_NODE_ADD,   /* left + right */
    HEED_NODE_CHAIN, /* left > right: first left, then right */
} heed_node_kind;

typedef struct heed_node {
    heed_node_kind kind;
    const heed_form *form; /* of the portable build, or a user's own */
    heed_value arg[HEED_MAX_ARGS];
    int left, right; /* indices of nodes */
    int column;      /* where it stands in the text, from 1 */
} heed_node;

/* Whole numbers as a list of closed ranges; count 0 means all. */
typedef struct heed_ranges {
    int count;
    int64_t (*range)[2];
} heed_ranges;

enum { HEED_ABSENT = -1, HEED_NONE = -2 };

/* Whether a number is in them. */
static inline bool heed_ranges_hold(const heed_ranges *ranges, int64_t number)
{
    bool found = ranges->count == 0;
    for (int i = 0; i < ranges->count && !found; i++)
        found = number >= ranges->range[i][0] && number <= ranges->range[i][1];
    return found;
}

typedef struct heed_group {
    heed_ranges layers, heads;
    int root[HEED_STAGES];   /* node of each clause, HEED_ABSENT where there is none, HEED_NONE for
                                `position=none` */
    int column[HEED_STAGES]; /* of each clause's stage name */
} heed_group;

typedef struct heed_spec {
    heed_node *node;
    int nodes;
    heed_group *group; /* the first holds for all layers and heads */
    int groups;
} heed_spec;

/* Parses; `forms` are a user's own, ended by NULL, or NULL. The caller frees with heed_spec_free. */
heed_status heed_spec_parse(heed_spec **spec, const char *text, const heed_form *const *forms);
void heed_spec_free(heed_spec *spec);

/* Canonical text; returns the length needed, as snprintf. */
size_t heed_spec_print(const heed_spec *spec, char *text, size_t size);

/* The clauses that hold for one layer and head: later groups override earlier ones. -1 where a stage keeps
 * its default. */
void heed_spec_clauses(const heed_spec *spec, int64_t layer, int64_t head, int root[HEED_STAGES]);

/* The forms of a clause, from the first to the last, where `root` is a form or a chain of them. Returns how
 * many there are, 0 for HEED_ABSENT and HEED_NONE; writes at most `most`. */
int heed_spec_chain(const heed_spec *spec, int root, const heed_node **list, int most);

/* The form of a clause whose pages change as they age, with its arguments; NULL where there is none. */
const heed_node *heed_spec_aging(const heed_spec *spec, int root);

/* What a cache clause says of storage: the types, of new keys where pages change as they age, the types of
 * keys and values, left alone where it says nothing. `policy` receives the first form that keeps part of the
 * past only, or NULL. */
heed_status heed_spec_storage(const heed_spec *spec, int root, heed_type *k, heed_type *v,
                              const heed_form **policy);

#endif
