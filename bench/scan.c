/* Recurrences: time a token as texts grow, beside the recurrence written out as a loop. */
#include "base/clock.h"
#include "base/cpu.h"
#include "bench.h"
#include <cjson/cJSON.h>
#include <heed/scan.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { HEADS = 4, DIM = 64, TENSORS = 9 };

static const char *const specs[] = {"scan=linear", "scan=retention",   "scan=gla",  "scan=mamba2",
                                    "scan=delta",  "scan=gated_delta", "scan=rwkv7"};
static const int64_t lengths[] = {4096, 16384, 65536, 262144, 1048576};
enum { SPECS = sizeof specs / sizeof *specs, LENGTHS = sizeof lengths / sizeof *lengths, SHORT = 3 };

/* Random rows, by a generator that is fast: the numbers do not matter. Logs of decays lie in -0.1..0. */
static float *random_rows(int64_t floats, float scale, float shift)
{
    float *x = bench_allocate((size_t)floats * sizeof *x);
    uint32_t state = 1;
    for (int64_t i = 0; x && i < floats; i++) {
        state = state * 1664525u + 1013904223u;
        x[i] = scale * ((float)(state >> 8) * 0x1p-24f) + shift;
    }
    return x;
}

typedef struct scan_data {
    float *rows[TENSORS]; /* q k v gate erase rate out, and decay beta */
    heed_scan_tensors all;
} scan_data;

static bool make(scan_data *d, int64_t tokens)
{
    const int64_t rows[] = {1, HEADS, tokens, DIM}, numbers[] = {1, HEADS, tokens};
    const float scale[TENSORS] = {1, 1, 1, -0.1f, 1, 1, 0, -0.1f, 1};
    heed_tensor t[TENSORS];
    bool fine = true;
    for (int i = 0; i < TENSORS; i++) {
        d->rows[i] = random_rows(HEADS * tokens * (i < 7 ? DIM : 1), scale[i], i < 3 || i == 4 ? -0.5f : 0);
        fine &= d->rows[i] != NULL;
        t[i] = heed_tensor_dense(d->rows[i], HEED_F32, i < 7 ? 4 : 3, i < 7 ? rows : numbers);
    }
    d->all = (heed_scan_tensors){.q = t[0],
                                 .k = t[1],
                                 .v = t[2],
                                 .gate = t[3],
                                 .erase = t[4],
                                 .rate = t[5],
                                 .out = t[6],
                                 .decay = t[7],
                                 .beta = t[8]};
    return fine;
}

static void drop(scan_data *d)
{
    for (int i = 0; i < TENSORS; i++)
        free(d->rows[i]);
}

static heed_scan_tensors read_by(const heed_scan_plan *plan, const scan_data *d)
{
    const unsigned flags = heed_scan_flags(plan);
    heed_scan_tensors t = d->all;
    const struct {
        heed_tensor *tensor;
        bool read;
    } given[] = {{&t.k, !(flags & HEED_SCAN_NO_KEYS)},      {&t.decay, flags & HEED_SCAN_READS_DECAY},
                 {&t.gate, flags & HEED_SCAN_READS_GATE},   {&t.beta, flags & HEED_SCAN_READS_BETA},
                 {&t.erase, flags & HEED_SCAN_READS_ERASE}, {&t.rate, flags & HEED_SCAN_READS_RATE}};
    for (size_t i = 0; i < sizeof given / sizeof *given; i++)
        if (!given[i].read)
            given[i].tensor->data = NULL;
    return t;
}

/* Retention as its formula stands, one number after the other; seconds. */
static double plain_loop(const scan_data *d, int64_t tokens)
{
    static float state[DIM][DIM];
    const double start = heed_seconds();
    for (int h = 0; h < HEADS; h++) {
        const float *q = d->rows[0] + h * tokens * DIM, *k = d->rows[1] + h * tokens * DIM;
        const float *v = d->rows[2] + h * tokens * DIM, gamma = 1 - exp2f(-5 - (float)h);
        float *out = d->rows[6] + h * tokens * DIM;
        memset(state, 0, sizeof state);
        for (int64_t t = 0; t < tokens; t++, q += DIM, k += DIM, v += DIM, out += DIM)
            for (int c = 0; c < DIM; c++) {
                volatile float sum = 0; /* no two numbers at once */
                for (int r = 0; r < DIM; r++) {
                    state[r][c] = gamma * state[r][c] + k[r] * v[c];
                    sum += q[r] * state[r][c];
                }
                out[c] = sum / sqrtf(DIM);
            }
    }
    return heed_seconds() - start;
}

static void print(const bench_options *o, const char *work, int64_t tokens, double seconds, double before,
                  int64_t floats)
{
    const double each = seconds / (double)(tokens * HEADS) * 1e9;
    if (!o->json) {
        printf("%-20s %9lld tokens %9.1f ns a token and head", work, (long long)tokens, each);
        if (before > 0)
            printf(", %.2f times that of %lld", each / before, (long long)lengths[0]);
        if (floats > 0)
            printf("; state %lld bytes", (long long)(floats * (int64_t)sizeof(float)));
        puts("");
        return;
    }
    cJSON *line = cJSON_CreateObject();
    cJSON_AddStringToObject(line, "bench", "scan");
    cJSON_AddStringToObject(line, "work", work);
    cJSON_AddNumberToObject(line, "tokens", (double)tokens);
    cJSON_AddNumberToObject(line, "nanoseconds", each);
    cJSON_AddNumberToObject(line, "state_bytes", (double)floats * sizeof(float));
    char *text = cJSON_PrintUnformatted(line);
    if (text)
        puts(text);
    free(text);
    cJSON_Delete(line);
}

/* The best of the rounds, in seconds; below 0 after a failure. */
static double time_spec(const bench_options *o, const char *spec, const scan_data *d, int64_t tokens,
                        int64_t *floats)
{
    const heed_scan_problem problem = {.batch = 1,
                                       .heads = HEADS,
                                       .tokens = tokens,
                                       .dim = DIM,
                                       .threads = (int)o->threads,
                                       .isa = (heed_isa)o->isa};
    heed_scan_plan *plan;
    double best = INFINITY;
    if (heed_scan_create(&plan, spec, &problem))
        return -1;
    const heed_scan_tensors t = read_by(plan, d);
    *floats = heed_scan_state_floats(plan);
    for (int64_t round = 0; round < o->rounds && best >= 0; round++) {
        const double start = heed_seconds();
        const heed_status status = heed_scan(plan, &t);
        best = status ? -1 : fmin(best, heed_seconds() - start);
    }
    heed_scan_free(plan);
    return best;
}

int bench_scan(const bench_options *o)
{
    double first[SPECS] = {0};
    char processor[128];
    heed_cpu_name(processor, sizeof processor);
    if (!o->json)
        printf("%s, %lld thread%s; %d heads of %d\n", processor, (long long)o->threads,
               o->threads == 1 ? "" : "s", HEADS, DIM);
    for (int n = 0; n < (o->with_slow ? LENGTHS : SHORT); n++) {
        scan_data d;
        double seconds = make(&d, lengths[n]) ? 0 : -1;
        for (int s = 0; s < SPECS && seconds >= 0; s++) {
            int64_t floats = 0;
            if (o->only && !strstr(specs[s], o->only))
                continue;
            seconds = time_spec(o, specs[s], &d, lengths[n], &floats);
            if (n == 0)
                first[s] = seconds / (double)(lengths[0] * HEADS) * 1e9;
            if (seconds >= 0)
                print(o, specs[s], lengths[n], seconds, n ? first[s] : 0, floats);
        }
        if (seconds >= 0 && lengths[n] == 16384 && !o->only)
            print(o, "retention, plain loop", lengths[n], plain_loop(&d, lengths[n]), 0, 0);
        drop(&d);
        if (seconds < 0) {
            fprintf(stderr, "heed bench: %s\n", heed_message());
            return 2;
        }
    }
    return 0;
}
