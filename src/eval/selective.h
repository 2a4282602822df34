/* Selective context: what of a text a model expects anyway is left out before another model, or the same one,
 * reads it. Li et al. 2023.
 *
 *     I(x_t) = -log p(x_t | x_<t),     I(u) = sum of a unit's tokens
 *
 * A unit is a token, a phrase or a sentence; those with I(u) of at least the percentile `drop` of all units
 * stay, in order. */
#ifndef HEED_EVAL_SELECTIVE_H
#define HEED_EVAL_SELECTIVE_H

#include <heed/model.h>

typedef enum heed_unit_kind { HEED_UNIT_TOKEN, HEED_UNIT_PHRASE, HEED_UNIT_SENTENCE } heed_unit_kind;
/* By what units stay; HEED_BY_LOT is a baseline. */
typedef enum heed_unit_measure { HEED_BY_SUM, HEED_BY_MEAN, HEED_BY_LOT } heed_unit_measure;

typedef struct heed_selective {
    const heed_model *model; /* that says what it expects */
    double drop;             /* percent of the units */
    heed_unit_kind unit;
    heed_unit_measure measure;
    int64_t window; /* tokens that it reads at a time; 0: 1024 */
    uint64_t seed;  /* of lots */
    int threads;
} heed_selective;

typedef struct heed_text_unit {
    int64_t first, count; /* tokens */
    size_t at, size;      /* bytes of the text */
    double information;   /* nats, the sum of its tokens */
    bool stays;
} heed_text_unit;

typedef struct heed_selection {
    heed_text_unit *unit;
    int64_t units, kept_units, tokens, kept_tokens;
    double
        *information; /* [tokens] nats; 0 of the first, which nothing stands before, and of control tokens */
    double all, kept; /* sums of information */
    char *text;       /* what stays, ended by 0 */
    size_t size;
} heed_selection;

/* The units of a text, what each says, and what stays. Texts longer than a window are read in windows that
 * overlap by half, so that every token is foreseen from half a window at least.
 * @return HEED_INVALID for a text of no tokens; HEED_UNSUPPORTED where the model foresees nothing */
heed_status heed_select_context(heed_selection *selection, const heed_selective *wanted, const char *text,
                                size_t size);
void heed_selection_free(heed_selection *selection);

/* Cuts tokens into units: start [count] becomes 1 where one begins. texts: the bytes of the tokens, one after
 * the other, from at[t] to at[t + 1]. */
void heed_cut_units(heed_unit_kind kind, const char *text, const size_t *at, int64_t count, uint8_t *start);

/* The value below which `percent` of the numbers lie, between neighbours on a straight line; x is sorted. */
double heed_percentile(double *x, int64_t count, double percent);

#endif
