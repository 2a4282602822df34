/* Times the works of a suite in turn and prints the best of each beside the machine's limits. */
#include "base/clock.h"
#include "base/cpu.h"
#include "bench.h"
#include <cjson/cJSON.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define TOP 8

/* A work with its tensors and plan. */
typedef struct subject {
    const bench_work *work;
    heed_plan *plan;
    heed_plan_info info;
    heed_tensor q, k, v, out, dout, dq, dk, dv;
    heed_extra extra;
    float *statistics[4];
    float *summaries;
    double best; /* seconds */
    double pairs[2];
} subject;

/* Uniform in -1..1, the same each time. */
static float next_random(uint64_t *state)
{
    *state = *state * 6364136223846793005ull + 1442695040888963407ull;
    return (float)(int32_t)(*state >> 32) * 4.6566129e-10f;
}

static bool make_tensor(heed_tensor *tensor, heed_type type, int64_t a, int64_t b, int64_t c, int64_t d,
                        uint64_t seed)
{
    const int64_t shape[4] = {a, b, c, d};
    size_t bytes;
    if (heed_tensor_bytes(type, 4, shape, &bytes) != HEED_OK)
        return false;
    char *data = bench_allocate(bytes);
    float *row = malloc((size_t)d * sizeof(float));
    if (!data || !row) {
        free(data);
        free(row);
        return false;
    }
    const size_t row_bytes = (size_t)heed_type_bytes(type, d);
    for (int64_t r = 0; r < a * b * c; r++) {
        for (int64_t i = 0; i < d; i++)
            row[i] = next_random(&seed);
        heed_store(type, row, data + (size_t)r * row_bytes, d);
    }
    free(row);
    *tensor = heed_tensor_dense(data, type, 4, shape);
    return true;
}

/* Keys that drift, of length near sqrt(D), and queries that look for keys far apart: their products stand out
 * by about 16 after scaling. */
static void store_drifting(heed_tensor *k, heed_tensor *q, float *row, float *keys)
{
    const int64_t D = k->shape[3], M = k->shape[2], N = q->shape[2];
    uint64_t seed = 7;
    for (int64_t g = 0; g < k->shape[1]; g++) {
        for (int64_t j = 0; j < M; j++)
            for (int64_t d = 0; d < D; d++) {
                float *x = keys + j * D + d;
                *x = 0.55f * next_random(&seed) * 1.73f + (j > 0 ? 0.835f * x[-D] : 0.0f);
            }
        for (int64_t j = 0; j < M; j++)
            heed_store(k->type, keys + j * D, (char *)k->data + g * k->stride[1] + j * k->stride[2], D);
        const int64_t each = q->shape[1] / k->shape[1];
        for (int64_t h = g * each; h < (g + 1) * each; h++)
            for (int64_t i = 0; i < N; i++) {
                const int64_t seen = M - N + i / 64 * 64 + 1;
                const int64_t wanted = (i / 64 * 64 * 7919 + h * 1009) % seen;
                for (int64_t d = 0; d < D; d++)
                    row[d] = (keys[wanted * D + d] * 16.0f / sqrtf((float)D)) + 0.3f * next_random(&seed);
                heed_store(q->type, row, (char *)q->data + h * q->stride[1] + i * q->stride[2], D);
            }
    }
}

static bool make_drifting(subject *s)
{
    const int64_t D = s->work->dim;
    float *row = malloc((size_t)D * sizeof *row), *keys = malloc((size_t)(s->work->keys * D) * sizeof *keys);
    if (row && keys)
        store_drifting(&s->k, &s->q, row, keys);
    const bool ok = row && keys;
    free(row);
    free(keys);
    return ok;
}

/* What selectors keep of keys beside a cache. */
static bool make_summaries(subject *s)
{
    const int64_t G = s->work->kv_heads, M = s->work->keys, D = s->work->dim;
    const int64_t each = heed_plan_summary_floats(s->plan, M);
    float *row = malloc((size_t)D * sizeof *row);
    s->summaries = bench_allocate((size_t)(G * each + 1) * sizeof *s->summaries);
    bool ok = row && s->summaries;
    for (int64_t g = 0; ok && g < G; g++)
        for (int64_t j = 0; ok && j < M; j++) {
            heed_load(s->work->kv_type, (const char *)s->k.data + g * s->k.stride[1] + j * s->k.stride[2],
                      row, D);
            ok = heed_plan_summarise(s->plan, NULL, (int)g, M, j, row, D, 1, s->summaries + g * each) ==
                 HEED_OK;
        }
    free(row);
    s->extra.summaries = heed_tensor_dense(s->summaries, HEED_F32, 3, (int64_t[]){1, G, each});
    return ok;
}

static void free_subject(subject *s)
{
    heed_plan_free(s->plan);
    heed_tensor *const tensors[] = {&s->q, &s->k, &s->v, &s->out, &s->dout, &s->dq, &s->dk, &s->dv};
    for (size_t i = 0; i < sizeof tensors / sizeof *tensors; i++)
        free(tensors[i]->data);
    for (int i = 0; i < 4; i++)
        free(s->statistics[i]);
    free(s->summaries);
    free(s->extra.row_state);
}

static bool make_tensors(subject *s)
{
    const bench_work *w = s->work;
    const bool back = w->with & HEED_WITH_BACKWARD;
    const int64_t H = w->heads, G = w->kv_heads, N = w->queries, M = w->keys, D = w->dim;
    bool ok = make_tensor(&s->q, w->q_type, 1, H, N, D, 1) && make_tensor(&s->k, w->kv_type, 1, G, M, D, 2) &&
              make_tensor(&s->v, w->kv_type, 1, G, M, D, 3) && make_tensor(&s->out, HEED_F32, 1, H, N, D, 4);
    if (back)
        ok = ok && make_tensor(&s->dout, HEED_F32, 1, H, N, D, 5) &&
             make_tensor(&s->dq, HEED_F32, 1, H, N, D, 6) && make_tensor(&s->dk, HEED_F32, 1, G, M, D, 7) &&
             make_tensor(&s->dv, HEED_F32, 1, G, M, D, 8);
    const size_t count[4] = {(size_t)(H * N), (size_t)(H * M), (size_t)(H * N * TOP), (size_t)(H * N * TOP)};
    const unsigned flag[4] = {HEED_WITH_ENTROPY, HEED_WITH_KEY_SUMS, HEED_WITH_TOP, HEED_WITH_TOP};
    for (int i = 0; i < 4; i++)
        if (w->with & flag[i])
            ok = ok && (s->statistics[i] = calloc(count[i], sizeof(float)));
    if (w->drifting)
        ok = ok && make_drifting(s);
    if (w->with & HEED_WITH_SUMMARIES)
        ok = ok && make_summaries(s);
    s->extra.capture.entropy = s->statistics[0];
    s->extra.capture.key_sums = s->statistics[1];
    s->extra.capture.top_weight = s->statistics[2];
    s->extra.capture.top_key = (int32_t *)(void *)s->statistics[3];
    if (back)
        ok = ok && (s->extra.row_state = calloc((size_t)(H * N * 2), sizeof(float)));
    return ok;
}

static int make_subject(subject *s, const bench_work *work, const bench_options *options)
{
    *s = (subject){.work = work, .best = INFINITY};
    const heed_problem problem = {.batch = 1,
                                  .heads = work->heads,
                                  .kv_heads = work->kv_heads,
                                  .queries = work->queries,
                                  .keys = work->keys,
                                  .dim = work->dim,
                                  .q_type = work->q_type,
                                  .k_type = work->kv_type,
                                  .v_type = work->kv_type,
                                  .threads = (int)options->threads,
                                  .isa = (heed_isa)options->isa,
                                  .kernel = (heed_kernel)options->kernel,
                                  .with = work->with | HEED_WITH_WHOLE_NUMBERS,
                                  .top = TOP};
    if (heed_plan_create(&s->plan, work->spec, &problem) != HEED_OK) {
        fprintf(stderr, "heed bench: %s: %s\n", work->name, heed_message());
        return 2;
    }
    heed_plan_get_info(s->plan, &s->info);
    if (!make_tensors(s)) {
        fprintf(stderr, "heed bench: no memory for the tensors of \"%s\"\n", work->name);
        return 2;
    }
    s->extra.capture.pairs = s->pairs;
    if (work->with & HEED_WITH_BACKWARD || work->drifting)
        heed_attend(s->plan, &s->q, &s->k, &s->v, &s->out, &s->extra);
    s->extra.capture.pairs = NULL;
    return 0;
}

static int time_once(subject *s)
{
    heed_status status;
    const double start = heed_seconds();
    if (s->work->with & HEED_WITH_BACKWARD) {
        const heed_gradients gradients = {.q = s->q,
                                          .k = s->k,
                                          .v = s->v,
                                          .out = s->out,
                                          .dout = s->dout,
                                          .dq = s->dq,
                                          .dk = s->dk,
                                          .dv = s->dv,
                                          .extra = &s->extra};
        status = heed_attend_backward(s->plan, &gradients);
    } else {
        status = heed_attend(s->plan, &s->q, &s->k, &s->v, &s->out, &s->extra);
    }
    const double seconds = heed_seconds() - start;
    if (status != HEED_OK) {
        fprintf(stderr, "heed bench: %s: %s\n", s->work->name, heed_message());
        return 2;
    }
    s->best = seconds < s->best ? seconds : s->best;
    return 0;
}

/* Bytes of the keys and values that are seen, read once: what decoding cannot do without. */
static double stored_bytes(const subject *s)
{
    const bench_work *w = s->work;
    const double read = w->read > 0.0 ? w->read : 1.0;
    return read * 2.0 * (double)(w->kv_heads * w->keys) * (double)heed_type_bytes(w->kv_type, w->dim);
}

static const subject *find(const subject *list, int count, const char *name)
{
    for (int i = 0; i < count; i++)
        if (strcmp(list[i].work->name, name) == 0)
            return &list[i];
    return NULL;
}

/* Backward counts as two and a half times forward: five products against two. */
static double work_flops(const subject *s)
{
    return s->info.flops * (s->work->with & HEED_WITH_BACKWARD ? 2.5 : 1.0);
}

static double relative_time(const subject *s, const subject *list, int count)
{
    const subject *other = s->work->against ? find(list, count, s->work->against) : NULL;
    return other ? s->best / (other->best * s->work->share) : NAN;
}

/* |out - other's out| / |other's out|; NAN without another. */
static double output_error(const subject *s, const subject *list, int count)
{
    const subject *other = s->work->against ? find(list, count, s->work->against) : NULL;
    if (!other || !s->work->drifting)
        return NAN;
    const float *x = s->out.data, *y = other->out.data;
    const int64_t n = s->work->heads * s->work->queries * s->work->dim;
    double apart = 0, size = 0;
    for (int64_t i = 0; i < n; i++) {
        apart += ((double)x[i] - (double)y[i]) * ((double)x[i] - (double)y[i]);
        size += (double)y[i] * (double)y[i];
    }
    return sqrt(apart / size);
}

static void print_json(const bench_suite *suite, const subject *s, const bench_limits *limits,
                       double relative, double error, const char *processor)
{
    const double flops = work_flops(s) / s->best, bytes = stored_bytes(s) / s->best;
    cJSON *line = cJSON_CreateObject();
    cJSON_AddStringToObject(line, "bench", suite->name);
    cJSON_AddStringToObject(line, "work", s->work->name);
    cJSON_AddStringToObject(line, "spec", s->work->spec);
    cJSON_AddStringToObject(line, "kernel", heed_kernel_name(s->info.kernel));
    cJSON_AddStringToObject(line, "isa", heed_isa_name(s->info.isa));
    cJSON_AddStringToObject(line, "processor", processor);
    cJSON_AddNumberToObject(line, "threads", s->info.threads);
    cJSON_AddNumberToObject(line, "seconds", s->best);
    cJSON_AddNumberToObject(line, "gflops", flops * 1e-9);
    cJSON_AddNumberToObject(line, "share_of_peak", flops / limits->flops);
    cJSON_AddNumberToObject(line, "gbs", bytes * 1e-9);
    cJSON_AddNumberToObject(line, "share_of_bandwidth", bytes / limits->bandwidth);
    cJSON_AddNumberToObject(line, "scratch_bytes", (double)s->info.scratch_bytes);
    cJSON_AddNumberToObject(line, "scratch_per_thread", (double)s->info.scratch_per_thread);
    if (!isnan(relative)) {
        cJSON_AddStringToObject(line, "against", s->work->against);
        cJSON_AddNumberToObject(line, "share", s->work->share);
        cJSON_AddNumberToObject(line, "relative_time", relative);
    }
    if (!isnan(error)) {
        cJSON_AddNumberToObject(line, "read_share", s->pairs[0] / s->pairs[1]);
        cJSON_AddNumberToObject(line, "output_error", error);
    }
    char *text = cJSON_PrintUnformatted(line);
    if (text)
        puts(text);
    free(text);
    cJSON_Delete(line);
}

static void print_line(const subject *s, const bench_limits *limits, double relative, double error)
{
    const double flops = work_flops(s) / s->best, bytes = stored_bytes(s) / s->best;
    printf("%-24s %-7s %10.3f %9.1f %7.1f %% %8.2f %7.1f %% %9.2f", s->work->name,
           heed_kernel_name(s->info.kernel), s->best * 1e3, flops * 1e-9, 100.0 * flops / limits->flops,
           bytes * 1e-9, 100.0 * bytes / limits->bandwidth, (double)s->info.scratch_bytes / 1048576.0);
    if (!isnan(relative)) {
        if (s->work->share != 1.0)
            printf("   %.2f x %.3f of \"%s\"", relative, s->work->share, s->work->against);
        else
            printf("   %.2f x \"%s\"", relative, s->work->against);
    }
    if (!isnan(error))
        printf(", reads %.1f %%, output off by %.2g", 100.0 * s->pairs[0] / s->pairs[1], error);
    putchar('\n');
}

static void print_head(const bench_suite *suite, const bench_options *options, const bench_limits *limits,
                       const char *processor)
{
    printf("%s: %s\n", suite->name, suite->summary);
    printf("%s, %lld thread%s: %.1f GFLOP/s of multiply-adds, %.1f GB/s read\n\n", processor,
           (long long)options->threads, options->threads == 1 ? "" : "s", limits->flops * 1e-9,
           limits->bandwidth * 1e-9);
    printf("%-24s %-7s %10s %9s %9s %8s %9s %9s\n", "work", "kernel", "ms", "GFLOP/s", "of peak", "k,v GB/s",
           "of read", "scratch MiB");
}

static void show_progress(int64_t round, int64_t rounds)
{
    if (isatty(STDERR_FILENO))
        fprintf(stderr, "\rround %lld of %lld%s", (long long)round + 1, (long long)rounds,
                round + 1 == rounds ? "\r                    \r" : "");
}

static bool wanted(const bench_work *work, const bench_options *options)
{
    return (!work->slow || options->with_slow) && (!options->only || strstr(work->name, options->only));
}

static int run_rounds(subject *list, int count, const bench_options *options, bench_limits *limits)
{
    for (int64_t round = 0; round < options->rounds; round++) {
        show_progress(round, options->rounds);
        limits->bandwidth = fmax(limits->bandwidth, bench_measure_bandwidth((int)options->threads));
        for (int i = 0; i < count; i++) {
            limits->flops = fmax(limits->flops, bench_measure_flops((int)options->threads));
            const int status = time_once(&list[i]);
            if (status != 0)
                return status;
        }
    }
    return 0;
}

int bench_run(const bench_suite *suite, const bench_options *options)
{
    subject list[64];
    int count = 0, status = 0;
    bench_limits limits = {0};
    char processor[128];
    heed_cpu_name(processor, sizeof processor);
    for (const bench_work *work = suite->works; work->name && status == 0; work++)
        if (wanted(work, options))
            status = make_subject(&list[count++], work, options);
    if (status == 0)
        status = run_rounds(list, count, options, &limits);
    if (status == 0 && !options->json)
        print_head(suite, options, &limits, processor);
    for (int i = 0; i < count && status == 0; i++) {
        const double relative = relative_time(&list[i], list, count);
        const double error = output_error(&list[i], list, count);
        if (options->json)
            print_json(suite, &list[i], &limits, relative, error, processor);
        else
            print_line(&list[i], &limits, relative, error);
    }
    for (int i = 0; i < count; i++)
        free_subject(&list[i]);
    return status;
}
