/* heed explain: what a plan would do, without doing it. */
#include "cli/cli.h"
#include "cli/report.h"
#include "cli/shape.h"
#include "cli/spec_use.h"

#include <cjson/cJSON.h>
#include <stdlib.h>
#include <string.h>

typedef struct explain_options {
    const char *shape;
    int q_type, kv, isa, kernel;
    int64_t threads, layer;
    bool backward, weights, json;
} explain_options;

static const cli_option options[] = {
    CLI_TEXT_OPTION(explain_options, shape, "shape", "SIZES", "sizes, see below"),
    CLI_CHOICE_OPTION(explain_options, q_type, "q-type", "TYPE", cli_float_word,
                      "f32, f16 or bf16 for q, and for k and v without --kv; f32"),
    CLI_CHOICE_OPTION(explain_options, kv, "kv", "TYPE", cli_kv_word,
                      "f32, f16, bf16, q8, q4, q3, q2 or rq8 to rq2 for k and v"),
    CLI_WHOLE_OPTION(explain_options, threads, "threads", 1, 1024, CLI_THREADS),
    CLI_CHOICE_OPTION(explain_options, isa, "isa", "SET", cli_isa_word, CLI_ISAS),
    CLI_CHOICE_OPTION(explain_options, kernel, "kernel", "CLASS", cli_kernel_word, CLI_KERNELS),
    CLI_WHOLE_OPTION(explain_options, layer, "layer", 0, 1 << 30, CLI_LAYER),
    CLI_FLAG_OPTION(explain_options, backward, "backward", "a plan that also computes gradients"),
    CLI_FLAG_OPTION(explain_options, weights, "weights", "a plan that also gives out the weights"),
    CLI_FLAG_OPTION(explain_options, json, "json", "as JSON"),
    {0},
};

/* The first line is the canonical spec. */
static void print_text(const char *description)
{
    const int length = (int)strcspn(description, "\n");
    printf("%s%.*s%s%s\n", cli_bold(stdout), length, description, length ? "" : "every stage at its default",
           cli_plain(stdout));
    fputs(description + length + (description[length] == '\n'), stdout);
}

static void add_params(cJSON *root, const heed_plan *plan)
{
    cJSON *list = cJSON_AddArrayToObject(root, "parameters");
    for (int i = 0; i < heed_plan_params(plan); i++) {
        heed_plan_param_info info;
        if (heed_plan_param(plan, i, &info))
            continue;
        cJSON *item = cJSON_CreateObject();
        cJSON_AddStringToObject(item, "name", info.name);
        cJSON *shape = cJSON_AddArrayToObject(item, "shape");
        for (int d = 0; d < info.rank; d++)
            cJSON_AddItemToArray(shape, cJSON_CreateNumber((double)info.shape[d]));
        cJSON_AddBoolToObject(item, "required", info.required);
        cJSON_AddItemToArray(list, item);
    }
}

static void print_json(const char *canonical, const char *description, const heed_plan *plan,
                       const heed_plan_info *info)
{
    cJSON *root = cJSON_CreateObject();
    cJSON_AddStringToObject(root, "spec", canonical);
    cJSON_AddStringToObject(root, "kernel", heed_kernel_name(info->kernel));
    cJSON_AddStringToObject(root, "isa", heed_isa_name(info->isa));
    cJSON_AddNumberToObject(root, "threads", info->threads);
    cJSON_AddNumberToObject(root, "query_block", info->query_block);
    cJSON_AddNumberToObject(root, "key_block", info->key_block);
    cJSON_AddNumberToObject(root, "flops", info->flops);
    cJSON_AddNumberToObject(root, "bytes", info->bytes);
    cJSON_AddNumberToObject(root, "open_pairs", info->open_pairs);
    cJSON_AddNumberToObject(root, "open_share", info->open_share);
    cJSON_AddNumberToObject(root, "scratch_bytes", (double)info->scratch_bytes);
    cJSON_AddNumberToObject(root, "scratch_per_thread", (double)info->scratch_per_thread);
    cJSON_AddBoolToObject(root, "fast_products", info->fast_products);
    add_params(root, plan);
    cJSON_AddStringToObject(root, "description", description);
    char *text = cJSON_Print(root);
    if (text)
        puts(text);
    free(text);
    cJSON_Delete(root);
}

static heed_status make_plan(const char *spec, const explain_options *wanted, heed_plan **plan)
{
    cli_spec_use use;
    heed_type kv[2];
    heed_problem problem = {.q_type = (heed_type)wanted->q_type,
                            .k_type = (heed_type)wanted->q_type,
                            .v_type = (heed_type)wanted->q_type,
                            .threads = (int)wanted->threads,
                            .isa = (heed_isa)wanted->isa,
                            .kernel = (heed_kernel)wanted->kernel,
                            .layer = wanted->layer};
    heed_status status = cli_spec_use_of(spec, wanted->layer, &use);
    if (!status)
        status = cli_kv_types(wanted->kv, &use, wanted->backward, kv);
    if (!status)
        status = cli_parse_shape(wanted->shape, &problem);
    if (status)
        return status;
    if (kv[0] != HEED_TYPES)
        problem.k_type = kv[0];
    if (kv[1] != HEED_TYPES)
        problem.v_type = kv[1];
    problem.with = (use.flags & HEED_NEEDS_SEGMENTS ? HEED_WITH_SEGMENTS : 0u) |
                   (use.flags & HEED_NEEDS_MASK ? HEED_WITH_MASK : 0u) |
                   (wanted->backward ? HEED_WITH_BACKWARD : 0u) | (wanted->weights ? HEED_WITH_WEIGHTS : 0u);
    return heed_plan_create(plan, spec, &problem);
}

static heed_status explain(const char *spec, const explain_options *wanted)
{
    const size_t room = 1 << 17;
    heed_plan *plan = NULL;
    heed_plan_info info;
    char *canonical = NULL, *description = NULL;
    heed_status status = make_plan(spec, wanted, &plan);
    if (status)
        return status;
    const size_t length = heed_plan_describe(plan, NULL, 0);
    canonical = malloc(room);
    description = malloc(length + 1);
    if (canonical && description) {
        heed_plan_get_info(plan, &info);
        heed_plan_describe(plan, description, length + 1);
        status = heed_spec_canonical(spec, NULL, canonical, room);
        if (!status && wanted->json)
            print_json(canonical, description, plan, &info);
        else if (!status)
            print_text(description);
    } else {
        status = heed_fail(HEED_NO_MEMORY, "no memory for a description of %zu bytes", length);
    }
    free(canonical);
    free(description);
    heed_plan_free(plan);
    return status;
}

static int run(int argc, char **argv)
{
    explain_options wanted = {.kv = -1};
    cli_arguments arguments;
    int status;
    if (!cli_parse(&cli_explain, argc, argv, &wanted, &arguments, 1, 1, &status))
        return status;
    if (explain(arguments.word[0], &wanted))
        return cli_fail_message(cli_explain.name);
    cli_note_threads(cli_explain.name, wanted.threads);
    return CLI_OK;
}

const cli_command cli_explain = {
    .name = "explain",
    .arguments = "SPEC",
    .summary = "which kernel a spec runs on and why, its work and its memory",
    .details = CLI_SHAPE_DETAILS,
    .example =
        "heed explain \"where=causal & window(512)\" --shape heads=32,kv_heads=8,queries=4096,dim=128\n",
    .options = options,
    .run = run,
};
