/* A spec as the oracle reads it. */
#ifndef HEED_TEST_ORACLE_SPEC_H
#define HEED_TEST_ORACLE_SPEC_H

#include <stdbool.h>

enum oracle_stage { SCORE, POSITION, WHERE, SELECT, NORMALISE, HEADS, READ, STAGES };

typedef struct oracle_arg {
    char name[24]; /* "": by place */
    double number;
    char word[24];          /* a name instead of a number */
    struct oracle_arg *sub; /* [subs] arguments of the word */
    int subs;
} oracle_arg;

typedef struct oracle_form {
    char name[24];
    oracle_arg arg[8];
    int args;
} oracle_form;

/* `kind` 0: a form; otherwise the sign that joins the two sides ('!' has only a left one). */
typedef struct oracle_node {
    char kind;
    oracle_form form;
    struct oracle_node *left, *right;
} oracle_node;

typedef struct oracle_spec {
    oracle_node *root[STAGES]; /* NULL where the clause is absent */
} oracle_spec;

oracle_spec *oracle_spec_read(const char *text);
void oracle_spec_free(oracle_spec *spec);

/* The argument at that place or of that name; the fallback when it is not given. */
double oracle_number(const oracle_form *form, int place, const char *name, double fallback);
const oracle_arg *oracle_option(const oracle_form *form, int place,
                                const char *name); /* NULL when not given */
double oracle_sub_number(const oracle_arg *arg, int place, const char *name, double fallback);
bool oracle_word_is(const oracle_form *form, int place, const char *name, const char *word);

/* The form of that name in a stage, or NULL. */
const oracle_form *oracle_find_form(const oracle_spec *spec, enum oracle_stage stage, const char *name);
/* The forms of a chain or sum from left to right; returns how many. */
int oracle_list(const oracle_node *node, const oracle_form **list, int most);
/* Whether `causal` is a factor of the outermost `&`. */
bool oracle_is_causal(const oracle_node *where);

#endif
