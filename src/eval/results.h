/* What an evaluation found, and the file from which it goes on after it was ended.
 *
 * The file has a line of JSON that says what was evaluated, and then one a finished piece of work. It is
 * written anew, aside and renamed, after each of them.
 */
#ifndef HEED_EVAL_RESULTS_H
#define HEED_EVAL_RESULTS_H

#include "eval/ask.h"

/* One task at one length and depth; depth is -1 where the task has none. */
typedef struct heed_cell {
    const char *task; /* name of a heed_task */
    int64_t length;
    double depth;
    heed_score score;
} heed_cell;

typedef struct heed_read_result {
    double window, text, last_quarter; /* perplexities */
    double kl_mean, kl_999;            /* of the long text: mean, 99.9 percentile */
    double same_top;                   /* share of its positions with the same likeliest token */
    int64_t positions;
} heed_read_result;

/* One form of attention. */
typedef struct heed_result {
    char *spec; /* as it was given; "" for the model's own */
    bool read, paced;
    heed_read_result reading;
    heed_pace pace;
    heed_cell *cell;
    int cells;
} heed_result;

/* What must be the same for results to belong together. */
typedef struct heed_results_key {
    char model[400], suite[16], seed[24], length[24], question[16];
} heed_results_key;

typedef struct heed_results {
    heed_results_key key;
    heed_result *result;
    int count;
} heed_results;

void heed_results_free(heed_results *results);

/* The result of a spec, which is added when there is none. NULL without memory. */
heed_result *heed_results_of(heed_results *results, const char *spec);
bool heed_result_has(const heed_result *result, const char *task);
heed_status heed_result_add(heed_result *result, const heed_cell *cells, int count);

/* Sum over the cells of a task, of one length or (0) all, at one depth or (below -1) all. */
heed_score heed_result_sum(const heed_result *result, const char *task, int64_t length, double depth);

/* Reads a file into `results`, whose key is set: HEED_INVALID, and which of both, when the file's is another.
 * A file that is not there is HEED_OK and changes nothing. HEED_FORMAT for anything that is no results file.
 */
heed_status heed_results_read(heed_results *results, const char *path);
heed_status heed_results_write(const heed_results *results, const char *path);

#endif
