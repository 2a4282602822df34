/* heed bench: speeds as ratios to what this machine can do, measured in the same run. */
#include "base/cpu.h"
#include "bench.h"
#include "cli/bench.h"
#include "cli/cli.h"
#include "cli/report.h"
#include <cjson/cJSON.h>
#include <math.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

static const cli_option options[] = {
    CLI_THREADS_OPTION(bench_options, threads),
    CLI_WHOLE_OPTION(bench_options, rounds, "rounds", 1, 10000,
                     "times each work is timed, in turn; the best counts; 5"),
    CLI_CHOICE_OPTION(bench_options, isa, "isa", "SET", cli_isa_word, CLI_ISAS),
    CLI_CHOICE_OPTION(bench_options, kernel, "kernel", "CLASS", cli_kernel_word, CLI_KERNELS),
    CLI_TEXT_OPTION(bench_options, only, "only", "TEXT", "only works whose name holds this"),
    CLI_OPTION(bench_options, model, .kind = CLI_TEXT, .name = "model", .letter = 'm', .value = "MODEL",
               .summary = "of the benchmark `model`; with `cache`, its policies too"),
    CLI_FLAG_OPTION(bench_options, with_slow, "long", "also works that take minutes"),
    CLI_FLAG_OPTION(bench_options, json, "json", "one JSON object a line"),
    {0},
};

static int peak(const bench_options *chosen)
{
    bench_limits limits = {0};
    char processor[128];
    heed_cpu_name(processor, sizeof processor);
    for (int64_t round = 0; round < 4 * chosen->rounds; round++) {
        limits.flops = fmax(limits.flops, bench_measure_flops((int)chosen->threads));
        limits.bandwidth = fmax(limits.bandwidth, bench_measure_bandwidth((int)chosen->threads));
    }
    if (!chosen->json) {
        printf("%s, %lld thread%s\nmultiply-adds  %8.1f GFLOP/s\nstreaming read %8.1f GB/s\n", processor,
               (long long)chosen->threads, chosen->threads == 1 ? "" : "s", limits.flops * 1e-9,
               limits.bandwidth * 1e-9);
        return 0;
    }
    cJSON *line = cJSON_CreateObject();
    cJSON_AddStringToObject(line, "bench", "peak");
    cJSON_AddStringToObject(line, "work", "peak");
    cJSON_AddStringToObject(line, "processor", processor);
    cJSON_AddNumberToObject(line, "threads", (double)chosen->threads);
    cJSON_AddNumberToObject(line, "gflops", limits.flops * 1e-9);
    cJSON_AddNumberToObject(line, "gbs", limits.bandwidth * 1e-9);
    char *text = cJSON_PrintUnformatted(line);
    if (text)
        puts(text);
    free(text);
    cJSON_Delete(line);
    return 0;
}

static const char *suite_word(int i)
{
    int count = 0;
    while (bench_suites[count])
        count++;
    static const char *const others[] = {"product", "model", "scan", "train", "peak"};
    return i < count ? bench_suites[i]->name : i < count + 5 ? others[i - count] : NULL;
}

static int run(int argc, char **argv)
{
    bench_options chosen = {.rounds = 5, .isa = HEED_ISA_AUTO, .kernel = HEED_KERNEL_AUTO};
    cli_arguments arguments;
    int status;
    if (!cli_parse(&cli_bench, argc, argv, &chosen, &arguments, 1, 1, &status))
        return status;
    if (chosen.threads == 0)
        chosen.threads = heed_cpu_physical_cores();
    const char *name = arguments.word[0];
    status = -1;
    if (strcmp(name, "peak") == 0)
        status = peak(&chosen);
    if (strcmp(name, "product") == 0)
        status = bench_product(&chosen);
    if (strcmp(name, "model") == 0)
        status = bench_model(&chosen);
    if (strcmp(name, "scan") == 0)
        status = bench_scan(&chosen);
    if (strcmp(name, "train") == 0)
        status = bench_train(&chosen);
    for (int i = 0; bench_suites[i]; i++)
        if (strcmp(name, bench_suites[i]->name) == 0)
            status = bench_run(bench_suites[i], &chosen);
    if (status == 0 && strcmp(name, "cache") == 0 && chosen.model)
        status = bench_policies(&chosen);
    bench_machine_free();
    if (status < 0)
        return cli_fail("bench", "there is no benchmark '%s'%s", name, cli_nearest(name, suite_word).text);
    return status;
}

const cli_command cli_bench = {
    .name = "bench",
    .arguments = "attention|decode|cache|backward|sparse|forms|statistics|product|model|scan|train|peak",
    .summary = "measure speed beside what this machine can do at most",
    .details =
        "Works are timed in turn, --rounds times, and the best counts. The peak is that of independent\n"
        "multiply-add chains, the bandwidth that of reads over 1 GiB, both measured between the works.\n"
        "`train` is a step of a decoder of ten million parameters; bench/peers/train sets PyTorch beside "
        "it.\n"
        "`cache -m MODEL` also writes with each cache policy: what watching costs (share=1), and acting once "
        "in "
        "64\n"
        "tokens, as a share of the time of attention, and the speed at a quarter of the keys; --only "
        "chooses\n"
        "policies; with --long, a window over 131,072 tokens.\n",
    .example = "heed bench attention --threads 1 --rounds 2 --only \"causal, dim 64\"",
    .options = options,
    .run = run,
};
