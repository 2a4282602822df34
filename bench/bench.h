/* What the benchmarks share: a table of works, timed in turn, beside the machine's own limits. */
#ifndef HEED_BENCH_BENCH_H
#define HEED_BENCH_BENCH_H

#include <heed/heed.h>

/* One line of a benchmark. */
typedef struct bench_work {
    const char *name;
    const char *spec;
    int64_t heads, kv_heads, queries, keys, dim;
    heed_type q_type, kv_type;
    unsigned with;       /* statistics to capture, HEED_WITH_BACKWARD */
    bool slow;           /* only with --long */
    const char *against; /* name of the work that its time is compared with; NULL */
    double share;        /* compared with that share of its time */
    double read;         /* share of the keys that is read; 0: all */
    bool drifting; /* keys change little from one to the next, and queries look for some of them; the output
                      is compared with that of `against`, too */
} bench_work;

/* A benchmark: works that are timed in turn. A list of works ends with name == NULL. */
typedef struct bench_suite {
    const char *name, *summary;
    const bench_work *works;
} bench_suite;

extern const bench_suite *const bench_suites[]; /* ended by NULL */

typedef struct bench_limits {
    double flops;     /* multiply-adds count as two, a second, all threads together */
    double bandwidth; /* bytes read a second */
} bench_limits;

/* One measurement of each limit, short enough to repeat between works: independent multiply-add chains in
 * registers, and streaming reads of a buffer of 1 GiB. The buffer is made by the first call. */
double bench_measure_flops(int threads);
double bench_measure_bandwidth(int threads);
void bench_machine_free(void);

/* Memory in pages of 2 MiB where the system grants them, as a cache that is read from end to end should have
 * it; to be freed with free. */
void *bench_allocate(size_t bytes);

typedef struct bench_options {
    int64_t threads, rounds;
    int isa, kernel;
    bool json, with_slow;
    const char *only, *model;
} bench_options;

/* Runs all works of a suite, `rounds` times in turn, and prints the best of each. 0, or 2 after a message. */
int bench_run(const bench_suite *suite, const bench_options *options);

/* Products with packed weights; the same. */
int bench_product(const bench_options *options);

/* Reading and writing tokens with options->model; the same. */
int bench_model(const bench_options *options);

/* Recurrences over longer and longer texts; the same. */
int bench_scan(const bench_options *options);

/* A step of training, and the attention in it; the same. */
int bench_train(const bench_options *options);

/* What cache policies cost options->model while it writes, and how they hold over a long text; the same. */
int bench_policies(const bench_options *options);

#endif
