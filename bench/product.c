/* Products with packed weights, at shapes of small language models: one row at a time, from memory, and many
 * rows. */
#include "tensor/product.h"
#include "base/clock.h"
#include "base/cpu.h"
#include "bench.h"
#include "tensor/block.h"
#include <cjson/cJSON.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define COLD ((size_t)256 << 20) /* bytes of weights that one row passes through, beyond any cache */

typedef struct product_work {
    heed_type type;
    int64_t rows, cols, n;
    bool exact;
} product_work;

static const product_work works[] = {
    {HEED_Q8, 49152, 576, 1, false},       {HEED_Q4_1, 1536, 576, 1, false},
    {HEED_Q4_1, 576, 1536, 1, false},      {HEED_Q5_0, 2048, 640, 1, false},
    {HEED_Q4_K, 1024, 1024, 1, false},     {HEED_Q6_K, 1024, 1024, 1, false},
    {HEED_F16, 1536, 576, 1, false},       {HEED_F32, 1536, 576, 1, false},
    {HEED_Q8, 1536, 576, 512, false},      {HEED_Q4, 1536, 576, 512, false},
    {HEED_Q4_1, 1536, 576, 512, false},    {HEED_Q4_1, 576, 1536, 512, false},
    {HEED_Q5_0, 2048, 640, 512, false},    {HEED_Q5_1, 1536, 576, 512, false},
    {HEED_Q2_K, 1024, 1024, 512, false},   {HEED_Q3_K, 1024, 1024, 512, false},
    {HEED_Q4_K, 1024, 1024, 512, false},   {HEED_Q5_K, 1024, 1024, 512, false},
    {HEED_Q6_K, 1024, 1024, 512, false},   {HEED_IQ4_NL, 1536, 576, 512, false},
    {HEED_IQ4_XS, 1024, 1024, 512, false}, {HEED_MXFP4, 1536, 576, 512, false},
    {HEED_F16, 1536, 576, 512, false},     {HEED_F32, 1536, 384, 512, false},
    {HEED_Q4_1, 1536, 576, 512, true},
};
enum { WORKS = sizeof works / sizeof *works };

/* A work with its matrices, which are used in turn. */
typedef struct product_subject {
    const product_work *work;
    char name[48];
    heed_matrix_pool *pool;
    heed_matrix **matrix;
    int64_t copies;
    float *x, *out;
    void *scratch;
    double best, pack; /* seconds for one product, and to pack one matrix */
} product_subject;

static uint32_t next_bits(uint64_t *state)
{
    *state = *state * 6364136223846793005ull + 1442695040888963407ull;
    return (uint32_t)(*state >> 32);
}

static float next_random(uint64_t *state)
{
    return (float)(int32_t)next_bits(state) * 4.6566129e-10f;
}

/* A block of any levels, with scales of ordinary size. */
static void random_block(const heed_block_format *format, uint64_t *state, uint8_t *to)
{
    heed_block_parts parts = {.d = format->d_type == HEED_BF16 ? 0x3c00 : 0x1c00,
                              .e = format->lowers ? 0x9c00 : 0x1c00};
    const int range = format->sub.most - format->sub.least + 1;
    for (int g = 0; g < format->values / format->group; g++) {
        parts.sub_scale[g] = (int8_t)(format->sub.least + (int)(next_bits(state) % (uint32_t)range));
        parts.sub_offset[g] = (uint8_t)(next_bits(state) % (uint32_t)(format->sub.most_offset + 1));
    }
    for (int i = 0; i < format->values; i++)
        parts.level[i] = (uint8_t)(next_bits(state) >> (32 - format->bits));
    format->put(&parts, to);
}

static heed_tensor random_weights(const product_work *work, uint64_t *state)
{
    const heed_block_format *format = heed_block_format_of(work->type);
    const int64_t bytes = heed_type_bytes(work->type, work->cols);
    uint8_t *data = malloc((size_t)(work->rows * bytes));
    const int64_t shape[] = {work->rows, work->cols};
    for (int64_t i = 0; data && format && i < work->rows * bytes; i += format->bytes)
        random_block(format, state, data + i);
    for (int64_t i = 0; data && !format && i < work->rows * work->cols; i++) {
        const float x = next_random(state);
        heed_store(work->type, &x, data + i * heed_type_bytes(work->type, 1), 1);
    }
    return heed_tensor_dense(data, work->type, 2, shape);
}

static size_t packed_bytes(const product_subject *s)
{
    return heed_matrix_bytes(s->matrix[0]);
}

static heed_status pack(product_subject *s, const heed_tensor *weights, const bench_options *options)
{
    const product_work *w = s->work;
    s->pack = INFINITY;
    for (int64_t i = 0; i < s->copies; i++) {
        const double start = heed_seconds();
        const heed_status status = heed_matrix_pack_in(s->pool, &s->matrix[i], &weights, 1,
                                                       w->exact ? HEED_PRODUCT_EXACT : HEED_PRODUCT_FAST,
                                                       (heed_isa)options->isa, (int)options->threads);
        if (status != HEED_OK)
            return status;
        s->pack = fmin(s->pack, heed_seconds() - start);
    }
    return HEED_OK;
}

static void name_work(const product_work *work, char *name, size_t size)
{
    snprintf(name, size, "%s %lld x %lld, n %lld%s", heed_type_name(work->type), (long long)work->rows,
             (long long)work->cols, (long long)work->n, work->exact ? ", exact" : "");
}

static heed_status make_subject(product_subject *s, const product_work *work, const bench_options *options)
{
    uint64_t state = 1;
    const size_t stored = (size_t)(work->rows * heed_type_bytes(work->type, work->cols));
    *s = (product_subject){
        .work = work, .copies = work->n == 1 ? (int64_t)(COLD / stored) + 1 : 1, .best = INFINITY};
    name_work(work, s->name, sizeof s->name);
    const heed_tensor weights = random_weights(work, &state);
    s->matrix = calloc((size_t)s->copies, sizeof(heed_matrix *));
    s->x = malloc((size_t)(work->n * work->cols) * sizeof(float));
    s->out = malloc((size_t)(work->n * work->rows) * sizeof(float));
    heed_status status = HEED_NO_MEMORY;
    if (weights.data && s->matrix && s->x && s->out &&
        heed_matrix_pool_create(&s->pool, NULL, NULL) == HEED_OK)
        status = pack(s, &weights, options);
    else
        heed_fail(HEED_NO_MEMORY, "no memory for the benchmark");
    free(weights.data);
    if (status != HEED_OK)
        return status;
    for (int64_t i = 0; i < work->n * work->cols; i++)
        s->x[i] = next_random(&state);
    s->scratch = bench_allocate(heed_product_scratch(s->matrix[0], work->n, (int)options->threads));
    return s->scratch ? HEED_OK : heed_fail(HEED_NO_MEMORY, "no memory for the benchmark");
}

static void free_subject(product_subject *s)
{
    for (int64_t i = 0; s->matrix && i < s->copies; i++)
        heed_matrix_free(s->matrix[i]);
    free(s->matrix);
    heed_matrix_pool_free(s->pool);
    free(s->x);
    free(s->out);
    free(s->scratch);
}

/* Once through all copies, or some times the only one. */
static void time_once(product_subject *s, int threads)
{
    const product_work *w = s->work;
    const int64_t turns = s->copies > 1 ? s->copies : 5;
    const heed_product_call call = {.x = s->x,
                                    .out = s->out,
                                    .n = w->n,
                                    .x_stride = w->cols,
                                    .out_stride = w->rows,
                                    .scratch = s->scratch,
                                    .threads = threads};
    const double start = heed_seconds();
    for (int64_t i = 0; i < turns; i++)
        heed_product(s->matrix[i % s->copies], &call);
    s->best = fmin(s->best, (heed_seconds() - start) / (double)turns);
}

static void print_subject(const product_subject *s, const bench_options *options, const bench_limits *limits,
                          const char *processor)
{
    const product_work *w = s->work;
    const double flops = 2.0 * (double)(w->n * w->rows * w->cols) / s->best;
    const double bytes = (double)packed_bytes(s) / s->best;
    if (!options->json) {
        printf("%-32s %10.1f %9.1f %7.0f %% %8.2f %7.1f %% %9.2f   %s\n", s->name, s->best * 1e6,
               flops * 1e-9, 100.0 * flops / limits->flops, bytes * 1e-9, 100.0 * bytes / limits->bandwidth,
               s->pack * 1e3, heed_matrix_kernel(s->matrix[0]));
        return;
    }
    cJSON *line = cJSON_CreateObject();
    cJSON_AddStringToObject(line, "bench", "product");
    cJSON_AddStringToObject(line, "work", s->name);
    cJSON_AddStringToObject(line, "kernel", heed_matrix_kernel(s->matrix[0]));
    cJSON_AddStringToObject(line, "processor", processor);
    cJSON_AddNumberToObject(line, "threads", (double)options->threads);
    cJSON_AddNumberToObject(line, "seconds", s->best);
    cJSON_AddNumberToObject(line, "gops", flops * 1e-9);
    cJSON_AddNumberToObject(line, "share_of_multiply_adds", flops / limits->flops);
    cJSON_AddNumberToObject(line, "gbs", bytes * 1e-9);
    cJSON_AddNumberToObject(line, "share_of_bandwidth", bytes / limits->bandwidth);
    cJSON_AddNumberToObject(line, "pack_seconds", s->pack);
    cJSON_AddNumberToObject(line, "packed_bytes", (double)packed_bytes(s));
    char *text = cJSON_PrintUnformatted(line);
    if (text)
        puts(text);
    free(text);
    cJSON_Delete(line);
}

static void print_head(const bench_options *options, const bench_limits *limits, const char *processor)
{
    printf("product: weights packed once, times rows of activations\n");
    printf("%s, %lld thread%s: %.1f GFLOP/s of fp32 multiply-adds, %.1f GB/s read\n\n", processor,
           (long long)options->threads, options->threads == 1 ? "" : "s", limits->flops * 1e-9,
           limits->bandwidth * 1e-9);
    printf("%-32s %10s %9s %9s %8s %9s %9s   %s\n", "work", "us", "GOP/s", "of fp32", "GB/s", "of read",
           "pack ms", "kernel");
}

/* Weights of one work at a time are in memory, so that all may be large. */
int bench_product(const bench_options *options)
{
    bench_limits limits = {0};
    char processor[128];
    heed_cpu_name(processor, sizeof processor);
    for (int64_t round = 0; round < options->rounds; round++) {
        limits.flops = fmax(limits.flops, bench_measure_flops((int)options->threads));
        limits.bandwidth = fmax(limits.bandwidth, bench_measure_bandwidth((int)options->threads));
    }
    if (!options->json)
        print_head(options, &limits, processor);
    for (int i = 0; i < WORKS; i++) {
        product_subject s;
        name_work(&works[i], s.name, sizeof s.name);
        if (options->only && !strstr(s.name, options->only))
            continue;
        const heed_status status = make_subject(&s, &works[i], options);
        for (int64_t round = 0; status == HEED_OK && round < options->rounds; round++)
            time_once(&s, (int)options->threads);
        if (status == HEED_OK)
            print_subject(&s, options, &limits, processor);
        free_subject(&s);
        if (status != HEED_OK) {
            fprintf(stderr, "heed bench: %s\n", heed_message());
            return 2;
        }
    }
    return 0;
}
