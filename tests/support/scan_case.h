/* A case of a recurrence: its tensors, its plan, and what its definition gives. */
#ifndef HEED_SUPPORT_SCAN_CASE_H
#define HEED_SUPPORT_SCAN_CASE_H

#include "support/recurrences.h"

#include <heed/scan.h>

/* Tensors of a case, in float and double; the order of the fields of heed_scan_tensors. */
enum { Q, K, V, DECAY, GATE, BETA, ERASE, RATE, OUT, TENSORS };

typedef struct scan_data {
    heed_scan_problem problem;
    bool slots; /* a row of the gate has SLOTS entries */
    float *x[TENSORS];
    double *exact[TENSORS];
    int64_t floats[TENSORS];
} scan_data;

scan_data scan_make(const char *spec, int64_t heads, int64_t kv_heads, int64_t tokens, int64_t dim,
                    int64_t value_dim, uint64_t seed);
void scan_drop(scan_data *d);
/* As many as query heads where they have to be. */
int64_t scan_kv_heads_of(const char *spec, int64_t heads, int64_t kv_heads);
bool scan_reads(const heed_scan_plan *plan, int which);
/* Tokens first.. of what the plan reads. */
heed_scan_tensors scan_tensors_of(const heed_scan_plan *plan, const scan_data *d, float *const *x,
                                  int64_t first, int64_t count);
const double *scan_row_at(const scan_data *d, int which, int64_t b, int64_t h, int64_t t);
/* out [BATCH][H][N][E] by the definition. */
void scan_define(const scan_definition *f, const scan_data *d, double *out);
heed_scan_plan *scan_plan_of(const char *spec, const scan_data *d, heed_isa isa, int threads, bool backward);

#endif
