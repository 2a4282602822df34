/* heed scan: runs a recurrence on the tensors of a file. */
#include "base/clock.h"
#include "base/try.h"
#include "cli/cli.h"
#include "cli/inputs.h"
#include "cli/report.h"

#include <cjson/cJSON.h>
#include <heed/scan.h>
#include <stdio.h>
#include <stdlib.h>

enum { TENSORS = 8 };

typedef struct scan_options {
    const char *output;
    bool backward, json;
    int isa;
    int64_t threads, layer, layers;
} scan_options;

static const cli_option options[] = {
    CLI_OPTION(scan_options, output, .kind = CLI_TEXT, .name = "output", .letter = 'o', .value = "FILE",
               .summary = "where the results go; appears whole or not at all"),
    CLI_FLAG_OPTION(scan_options, backward, "backward", "also write gradients dq, dk, ...; reads dout"),
    CLI_WHOLE_OPTION(scan_options, threads, "threads", 1, 1024, CLI_THREADS),
    CLI_CHOICE_OPTION(scan_options, isa, "isa", "SET", cli_isa_word, CLI_ISAS),
    CLI_WHOLE_OPTION(scan_options, layer, "layer", 0, 1 << 30, "layer, for decays that depend on it; 0"),
    CLI_WHOLE_OPTION(scan_options, layers, "layers", 1, 1 << 30, "layers of the model; 1"),
    CLI_FLAG_OPTION(scan_options, json, "json", "report as JSON"),
    {0},
};

/* What a recurrence reads, in the order of heed_scan_tensors. */
static const char *const names[TENSORS] = {"q", "k", "v", "decay", "gate", "beta", "erase", "rate"};
static const char *const gradient_names[TENSORS] = {"dq",    "dk",    "dv",     "ddecay",
                                                    "dgate", "dbeta", "derase", "drate"};

typedef struct scan_run {
    const char *spec;
    scan_options options;
    cli_pool pool;
    cli_inputs inputs;
    heed_scan_plan *plan;
    heed_tensor in[TENSORS], gradient[TENSORS], out, state;
    heed_named_tensor outputs[TENSORS + 2];
    int count;
    bool unread[TENSORS]; /* tensors of the file that the form does not read */
    double seconds, seconds_backward;
} scan_run;

static heed_scan_tensors gather(const heed_tensor *t, heed_tensor out)
{
    return (heed_scan_tensors){.q = t[0],
                               .k = t[1],
                               .v = t[2],
                               .decay = t[3],
                               .gate = t[4],
                               .beta = t[5],
                               .erase = t[6],
                               .rate = t[7],
                               .out = out};
}

static heed_status add_output(scan_run *run, const char *name, int rank, const int64_t *shape,
                              heed_tensor *tensor)
{
    TRY(cli_new_tensor(&run->pool, HEED_F32, rank, shape, tensor));
    run->outputs[run->count++] = (heed_named_tensor){name, *tensor};
    return HEED_OK;
}

/* Sizes of the problem from q and v. */
static heed_status read_all(scan_run *run, heed_scan_problem *problem)
{
    for (int i = 0; i < TENSORS; i++)
        TRY(cli_read_floats(&run->inputs, names[i], &run->in[i]));
    const heed_tensor *q = &run->in[0], *v = &run->in[2];
    for (int i = 0; i < 3; i += 2)
        if (!run->in[i].data || run->in[i].rank != 4)
            return heed_fail(HEED_INVALID, "%s: tensor %s must be there, [batch, %s, tokens, %s]",
                             run->inputs.path, names[i], i ? "kv_heads" : "heads", i ? "value_dim" : "dim");
    problem->batch = q->shape[0];
    problem->heads = q->shape[1];
    problem->kv_heads = v->shape[1];
    problem->tokens = q->shape[2];
    problem->dim = q->shape[3];
    problem->value_dim = v->shape[3];
    return HEED_OK;
}

/* A state to go on from is in the file or begins at 0; only a state that is given is one that gradients are
 * refused for. */
static heed_status take_state(scan_run *run, const heed_scan_problem *problem, heed_tensor *given)
{
    const int64_t shape[] = {problem->batch, problem->kv_heads, heed_scan_state_floats(run->plan)};
    TRY(cli_read_floats(&run->inputs, "state", given));
    TRY(add_output(run, "state", 3, shape, &run->state));
    if (!given->data)
        return HEED_OK;
    if (given->rank != 3 || memcmp(given->shape, shape, sizeof shape))
        return heed_fail(HEED_INVALID, "%s: tensor state must be [%lld, %lld, %lld], as scan= here has it",
                         run->inputs.path, (long long)shape[0], (long long)shape[1], (long long)shape[2]);
    memcpy(run->state.data, given->data, (size_t)(shape[0] * shape[1] * shape[2]) * sizeof(float));
    return HEED_OK;
}

/* Tensors of the file that the form does not read are left out, and named at the end. */
static void leave_out(scan_run *run)
{
    const unsigned flags = heed_scan_flags(run->plan);
    const bool reads[TENSORS] = {
        !(flags & HEED_SCAN_NO_QUERIES), !(flags & HEED_SCAN_NO_KEYS), true,
        flags & HEED_SCAN_READS_DECAY,   flags & HEED_SCAN_READS_GATE, flags & HEED_SCAN_READS_BETA,
        flags & HEED_SCAN_READS_ERASE,   flags & HEED_SCAN_READS_RATE};
    for (int i = 0; i < TENSORS; i++) {
        run->unread[i] = !reads[i] && run->in[i].data;
        if (!reads[i])
            run->in[i].data = NULL;
    }
}

static heed_status backward(scan_run *run, heed_scan_tensors *tensors)
{
    heed_tensor dout;
    TRY(cli_read_floats(&run->inputs, "dout", &dout));
    if (!dout.data)
        return heed_fail(HEED_INVALID, "%s: there is no tensor dout, which --backward needs",
                         run->inputs.path);
    for (int i = 0; i < TENSORS; i++)
        if (run->in[i].data)
            TRY(add_output(run, gradient_names[i], run->in[i].rank, run->in[i].shape, &run->gradient[i]));
    const heed_scan_tensors gradients = gather(run->gradient, (heed_tensor){.data = NULL});
    tensors->state = NULL;
    const double start = heed_seconds();
    TRY(heed_scan_backward(run->plan, tensors, &dout, &gradients));
    run->seconds_backward = heed_seconds() - start;
    return HEED_OK;
}

static heed_status scan(scan_run *run, const char *input)
{
    const scan_options *wanted = &run->options;
    heed_scan_problem problem = {.threads = (int)wanted->threads,
                                 .isa = (heed_isa)wanted->isa,
                                 .layer = wanted->layer,
                                 .layers = wanted->layers,
                                 .backward = wanted->backward};
    heed_tensor given;
    TRY(cli_open_inputs(&run->inputs, input, &run->pool));
    TRY(read_all(run, &problem));
    TRY(heed_scan_create(&run->plan, run->spec, &problem));
    leave_out(run);
    const int64_t shape[] = {problem.batch, problem.heads, problem.tokens, problem.value_dim};
    TRY(add_output(run, "out", 4, shape, &run->out));
    TRY(take_state(run, &problem, &given));
    if (wanted->backward && given.data)
        return heed_fail(HEED_UNSUPPORTED,
                         "--backward: gradients are made of runs that begin without a state");
    heed_scan_tensors tensors = gather(run->in, run->out);
    tensors.state = run->state.data;
    const double start = heed_seconds();
    TRY(heed_scan(run->plan, &tensors));
    run->seconds = heed_seconds() - start;
    if (wanted->backward)
        TRY(backward(run, &tensors));
    char canonical[1024];
    TRY(heed_spec_canonical(run->spec, NULL, canonical, sizeof canonical));
    const char *const metadata[] = {"heed", heed_version(), "spec", canonical, NULL};
    return heed_safetensors_write(wanted->output, run->outputs, run->count, metadata);
}

static void report_json(const scan_run *run)
{
    cJSON *root = cJSON_CreateObject();
    cJSON_AddStringToObject(root, "output", run->options.output);
    cJSON_AddNumberToObject(root, "tokens", (double)run->out.shape[2]);
    cJSON_AddNumberToObject(root, "state_floats", (double)heed_scan_state_floats(run->plan));
    cJSON_AddNumberToObject(root, "seconds", run->seconds);
    if (run->options.backward)
        cJSON_AddNumberToObject(root, "seconds_backward", run->seconds_backward);
    char *text = cJSON_PrintUnformatted(root);
    puts(text ? text : "{}");
    free(text);
    cJSON_Delete(root);
}

static void report(const scan_run *run)
{
    char time[32];
    if (run->options.json) {
        report_json(run);
    } else {
        printf("%s: %lld tokens in %s, state of %lld floats a kv head", run->options.output,
               (long long)run->out.shape[2], cli_seconds(run->seconds, time, sizeof time),
               (long long)heed_scan_state_floats(run->plan));
        if (run->options.backward)
            printf("; backward %s", cli_seconds(run->seconds_backward, time, sizeof time));
        puts("");
    }
    for (int i = 0; i < TENSORS; i++)
        if (run->unread[i])
            fprintf(stderr, "heed scan: note: tensor %s is not read by this form\n", names[i]);
    cli_note_threads(cli_scan.name, run->options.threads);
}

static int run_command(int argc, char **argv)
{
    scan_run run = {.options = {.layers = 1}};
    cli_arguments arguments;
    int status;
    if (!cli_parse(&cli_scan, argc, argv, &run.options, &arguments, 2, 2, &status))
        return status;
    if (!run.options.output)
        return cli_fail(cli_scan.name, "-o FILE is missing: where the results go");
    run.spec = arguments.word[0];
    if (scan(&run, arguments.word[1]) == HEED_OK)
        report(&run);
    else
        status = cli_fail_message(cli_scan.name);
    heed_scan_free(run.plan);
    cli_close_inputs(&run.inputs);
    cli_release(&run.pool);
    return status;
}

const cli_command cli_scan = {
    .name = "scan",
    .arguments = "SPEC IN.safetensors -o OUT.safetensors",
    .summary = "a recurrence over the tensors of a file",
    .details = "The input holds q [batch, heads, tokens, dim], k [batch, kv_heads, tokens, dim], v [batch, "
               "kv_heads,\n"
               "tokens, value_dim], and what the form reads of decay and beta [batch, kv_heads, tokens], "
               "gate, erase and\n"
               "rate [batch, kv_heads, tokens, dim], and may hold a state to go on from. decay and gate are "
               "logs of what\n"
               "stays, 0 or less. The output holds F32 out and the state after the last token.\n",
    .example = "heed random in.safetensors --shape heads=4,kv_heads=4,queries=64,keys=64,dim=32\n"
               "heed scan scan=retention in.safetensors -o out.safetensors\n",
    .options = options,
    .run = run_command,
};
