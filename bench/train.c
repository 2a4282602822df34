/* Training: one step of a decoder of ten million parameters, and the attention in it by itself. */
#include "base/clock.h"
#include "base/cpu.h"
#include "bench.h"
#include "nn/graph.h"
#include "nn/layers.h"
#include "train/optimiser.h"
#include <cjson/cJSON.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <time.h>

enum { BATCH = 16, CONTEXT = 512, WIDTH = 384, LAYERS = 5, HEADS = 6, VOCABULARY = 4096, HIDDEN = 1024 };

static const char spec[] = "position=rope; where=causal";

typedef struct timed {
    double wall, cpu; /* seconds */
} timed;

typedef struct subject {
    heed_parameters *parameters;
    heed_graph *graph;
    heed_optimiser *optimiser; /* NULL: none */
} subject;

static heed_status make_decoder(subject *s, const bench_options *o)
{
    const heed_transformer model = {.batch = BATCH,
                                    .context = CONTEXT,
                                    .vocabulary = VOCABULARY,
                                    .width = WIDTH,
                                    .layers = LAYERS,
                                    .heads = HEADS,
                                    .hidden = HIDDEN,
                                    .spec = spec,
                                    .norm_eps = 1e-5f,
                                    .function = HEED_FN_SILU,
                                    .gated = true,
                                    .tied = true};
    const int64_t shape[] = {BATCH, CONTEXT};
    heed_transformer_nodes nodes = {.segments = HEED_NO_INPUT, .places = HEED_NO_INPUT};
    TRY(heed_parameters_create(&s->parameters, 1));
    TRY(heed_graph_create(&s->graph, s->parameters, (int)o->threads, (heed_isa)o->isa));
    heed_transformer_make(s->graph, &model, &nodes);
    const heed_variable targets = heed_nn_input(s->graph, HEED_I32, 2, shape);
    TRY(heed_graph_finish(s->graph, heed_nn_cross_entropy(s->graph, nodes.logits, targets, 0.0f)));
    const heed_optimiser_kind *adamw = heed_optimiser_kind_at(0);
    TRY(heed_optimiser_create(&s->optimiser, adamw, &adamw->usual, s->parameters, (int)o->threads,
                              (heed_isa)o->isa));
    int32_t *token = heed_graph_data(s->graph, nodes.tokens), *target = heed_graph_data(s->graph, targets);
    for (int i = 0; i < BATCH * CONTEXT; i++) {
        token[i] = i * 7919 % VOCABULARY;
        target[i] = (i + 1) * 7919 % VOCABULARY;
    }
    return HEED_OK;
}

/* q, k and v as parameters, so that their gradients are wanted. */
static heed_status make_attention(subject *s, const bench_options *o)
{
    const int64_t shape[] = {BATCH, CONTEXT, WIDTH}, all[] = {(int64_t)BATCH * CONTEXT * WIDTH};
    const heed_initial normal = {.kind = HEED_INITIAL_NORMAL, .size = 1.0f};
    TRY(heed_parameters_create(&s->parameters, 1));
    TRY(heed_graph_create(&s->graph, s->parameters, (int)o->threads, (heed_isa)o->isa));
    const heed_variable out = heed_nn_attend(s->graph, heed_nn_parameter(s->graph, "q", 3, shape, normal),
                                             heed_nn_parameter(s->graph, "k", 3, shape, normal),
                                             heed_nn_parameter(s->graph, "v", 3, shape, normal),
                                             &(heed_nn_attention){.spec = "where=causal",
                                                                  .name = "attention",
                                                                  .heads = HEADS,
                                                                  .positions = HEED_NO_INPUT,
                                                                  .segments = HEED_NO_INPUT,
                                                                  .gate = HEED_NO_INPUT});
    return heed_graph_finish(s->graph, heed_nn_sum(s->graph, heed_nn_reshape(s->graph, out, 1, all)));
}

/* The step again, with products in bf16. */
static heed_status make_bf16(subject *s, const bench_options *o)
{
    TRY(make_decoder(s, o));
    return heed_graph_use_bf16(s->graph);
}

static void drop(subject *s)
{
    heed_optimiser_free(s->optimiser);
    heed_graph_free(s->graph);
    heed_parameters_free(s->parameters);
}

static heed_status step(subject *s, timed *best)
{
    const double wall = heed_seconds(), cpu = heed_processor_seconds();
    heed_graph_training(s->graph, true, 0);
    TRY(heed_graph_forward(s->graph));
    TRY(heed_graph_backward(s->graph, 1.0f, false));
    if (s->optimiser)
        heed_optimiser_step(s->optimiser, 1.0f, 1.0f);
    best->wall = fmin(best->wall, heed_seconds() - wall);
    best->cpu = fmin(best->cpu, heed_processor_seconds() - cpu);
    return HEED_OK;
}

/* Peak of one thread, in multiplications and additions a second of processor time: what others take of the
 * machine is left out. */
static double peak_by_processor(void)
{
    const double wall = heed_seconds(), cpu = heed_processor_seconds();
    const double flops = bench_measure_flops(1) * (heed_seconds() - wall);
    return flops / (heed_processor_seconds() - cpu);
}

static double numbers_of(const subject *s)
{
    double sum = 0.0;
    for (int i = 0; i < heed_parameters_count(s->parameters); i++)
        sum += (double)heed_parameters_at(s->parameters, i)->count;
    return sum;
}

/* Most memory that the process has had. */
static double resident(void)
{
    struct rusage usage;
    getrusage(RUSAGE_SELF, &usage);
    return 1024.0 * (double)usage.ru_maxrss;
}

static void print(const bench_options *o, const char *work, const subject *s, const timed *best, double peak,
                  double thread_peak)
{
    const double flops = 3.0 * heed_graph_flops(s->graph), tokens = (double)BATCH * CONTEXT;
    if (!o->json) {
        printf("%-10s %8.1f ms, %8.1f ms of processor time, %7.0f tokens/s, %6.1f GFLOP/s, %4.1f %% of peak "
               "(%4.1f %% by processor time)",
               work, 1e3 * best->wall, 1e3 * best->cpu, tokens / best->wall, 1e-9 * flops / best->wall,
               100.0 * flops / best->wall / peak, 100.0 * flops / best->cpu / thread_peak);
        if (s->optimiser)
            printf(", %.2fM parameters, %.0f MB", 1e-6 * numbers_of(s), 1e-6 * resident());
        puts("");
        return;
    }
    cJSON *line = cJSON_CreateObject();
    cJSON_AddStringToObject(line, "bench", "train");
    cJSON_AddStringToObject(line, "work", work);
    const struct {
        const char *name;
        double value;
    } numbers[] = {{"threads", (double)o->threads},
                   {"seconds", best->wall},
                   {"processor_seconds", best->cpu},
                   {"tokens_per_second", tokens / best->wall},
                   {"gflops", 1e-9 * flops / best->wall},
                   {"peak_gflops", 1e-9 * peak},
                   {"share_by_processor_time", flops / best->cpu / thread_peak},
                   {"parameters", numbers_of(s)},
                   {"bytes", resident()}};
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++)
        cJSON_AddNumberToObject(line, numbers[i].name, numbers[i].value);
    char *text = cJSON_PrintUnformatted(line);
    if (text)
        puts(text);
    free(text);
    cJSON_Delete(line);
}

int bench_train(const bench_options *o)
{
    static const struct {
        const char *name;
        heed_status (*make)(subject *s, const bench_options *o);
    } works[] = {{"attention", make_attention}, {"step", make_decoder}, {"bf16", make_bf16}};
    char processor[128];
    heed_cpu_name(processor, sizeof processor);
    if (!o->json)
        printf("%s, %lld thread%s; %d layers of width %d, %d heads, %d sequences of %d tokens\n", processor,
               (long long)o->threads, o->threads == 1 ? "" : "s", LAYERS, WIDTH, HEADS, BATCH, CONTEXT);
    for (size_t w = 0; w < sizeof works / sizeof *works; w++) {
        subject s = {.graph = NULL};
        timed best = {INFINITY, INFINITY};
        double peak = 0.0, thread_peak = 0.0;
        if (o->only && !strstr(works[w].name, o->only))
            continue;
        heed_status status = works[w].make(&s, o);
        for (int64_t round = 0; round <= o->rounds && !status; round++) {
            status = step(&s, &best);
            peak = fmax(peak, bench_measure_flops((int)o->threads));
            thread_peak = fmax(thread_peak, peak_by_processor());
        }
        if (!status)
            print(o, works[w].name, &s, &best, peak, thread_peak);
        drop(&s);
        if (status == HEED_UNSUPPORTED && !o->only) {
            fprintf(stderr, "heed bench: %s left out: %s\n", works[w].name, heed_message());
            continue;
        }
        if (status) {
            fprintf(stderr, "heed bench: %s\n", heed_message());
            return 2;
        }
    }
    return 0;
}
