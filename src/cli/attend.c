/* heed attend: runs a spec on the tensors of a file. */
#include "attend/spec_reader.h"
#include "base/clock.h"
#include "base/cpu.h"
#include "base/try.h"
#include "cli/cli.h"
#include "cli/inputs.h"
#include "cli/report.h"

#include <string.h>

#define MOST_OUTPUTS (16 + HEED_STAGES * HEED_MAX_PARAMS * 4)

typedef struct attend_options {
    const char *output;
    bool weights, backward, entropy, key_sums, json;
    int kv, isa, kernel;
    int64_t threads, top, layer;
} attend_options;

static const cli_option options[] = {
    CLI_OPTION(attend_options, output, .kind = CLI_TEXT, .name = "output", .letter = 'o', .value = "FILE",
               .summary = "where the results go; appears whole or not at all"),
    CLI_FLAG_OPTION(attend_options, weights, "weights", "also write weights [batch, heads, queries, keys]"),
    CLI_FLAG_OPTION(attend_options, backward, "backward",
                    "also write gradients dq, dk, dv and d.NAME of each parameter; reads dout"),
    CLI_CHOICE_OPTION(attend_options, kv, "kv", "TYPE", cli_kv_word,
                      "store k and v as f32, f16, bf16, q8, q4, q3, q2 or rq8 to rq2 before attending"),
    CLI_WHOLE_OPTION(attend_options, threads, "threads", 1, 1024, CLI_THREADS),
    CLI_CHOICE_OPTION(attend_options, isa, "isa", "SET", cli_isa_word, CLI_ISAS),
    CLI_CHOICE_OPTION(attend_options, kernel, "kernel", "CLASS", cli_kernel_word, CLI_KERNELS),
    CLI_WHOLE_OPTION(attend_options, layer, "layer", 0, 1 << 30, CLI_LAYER),
    CLI_FLAG_OPTION(attend_options, entropy, "entropy",
                    "also write entropy [batch, heads, queries] of the weights, in nats"),
    CLI_FLAG_OPTION(attend_options, key_sums, "key-sums",
                    "also write key_sums [batch, heads, keys]: what each key receives"),
    CLI_WHOLE_OPTION(attend_options, top, "top", 1, 4096,
                     "also write the N strongest links of each row: top_weight, top_key"),
    CLI_FLAG_OPTION(attend_options, json, "json", "report as JSON"),
    {0},
};

/* Everything one run holds. */
typedef struct attend_run {
    const char *spec;
    attend_options options;
    heed_problem problem;
    cli_pool pool;
    cli_inputs inputs;
    heed_plan *plan;
    heed_tensor out, dq, dk, dv, *dparams;
    heed_named_tensor outputs[MOST_OUTPUTS];
    int count;
    double seconds, seconds_backward;
} attend_run;

/* Another tensor of the output file, zeroed. */
static heed_status add_output(attend_run *run, const char *name, heed_type type, int rank,
                              const int64_t *shape, heed_tensor *tensor)
{
    if (run->count == MOST_OUTPUTS)
        return heed_fail(HEED_INVALID, "the spec has more parameters than the output file has room for: %d",
                         MOST_OUTPUTS);
    char *copy = cli_take(&run->pool, strlen(name) + 1);
    if (!copy)
        return HEED_NO_MEMORY;
    strcpy(copy, name);
    TRY(cli_new_tensor(&run->pool, type, rank, shape, tensor));
    run->outputs[run->count++] = (heed_named_tensor){copy, *tensor};
    return HEED_OK;
}

static void keep_weights(void *context, const heed_weights_tile *tile)
{
    const heed_tensor *weights = context; /* [batch, heads, queries, keys] */
    const int64_t *shape = weights->shape;
    const int64_t cols = tile->key0 + tile->cols > shape[3] ? shape[3] - tile->key0 : tile->cols;
    float *to = (float *)weights->data + (tile->batch * shape[1] + tile->head) * shape[2] * shape[3];
    for (int i = 0; i < tile->rows && tile->query0 + i < shape[2]; i++)
        memcpy(to + (tile->query0 + i) * shape[3] + tile->key0, tile->weight + i * tile->stride,
               (size_t)cols * sizeof *to);
}

static heed_status add_captures(attend_run *run, heed_tensor *weights)
{
    const heed_problem *p = &run->problem;
    const int64_t square[] = {p->batch, p->heads, p->queries, p->keys};
    const int64_t links[] = {p->batch, p->heads, p->queries, run->options.top};
    const int64_t keys[] = {p->batch, p->heads, p->keys};
    heed_capture *capture = &run->inputs.extra.capture;
    heed_tensor tensor;
    if (run->options.weights) {
        TRY(add_output(run, "weights", HEED_F32, 4, square, weights));
        capture->sink = keep_weights;
        capture->sink_context = weights;
    }
    if (run->options.entropy) {
        TRY(add_output(run, "entropy", HEED_F32, 3, square, &tensor));
        capture->entropy = tensor.data;
    }
    if (run->options.key_sums) {
        TRY(add_output(run, "key_sums", HEED_F32, 3, keys, &tensor));
        capture->key_sums = tensor.data;
    }
    if (run->options.top) {
        TRY(add_output(run, "top_weight", HEED_F32, 4, links, &tensor));
        capture->top_weight = tensor.data;
        TRY(add_output(run, "top_key", HEED_I32, 4, links, &tensor));
        capture->top_key = tensor.data;
    }
    return HEED_OK;
}

static heed_status add_gradients(attend_run *run)
{
    const int params = heed_plan_params(run->plan);
    TRY(add_output(run, "dq", HEED_F32, 4, run->inputs.q.shape, &run->dq));
    TRY(add_output(run, "dk", HEED_F32, 4, run->inputs.k.shape, &run->dk));
    TRY(add_output(run, "dv", HEED_F32, 4, run->inputs.v.shape, &run->dv));
    run->dparams = cli_take(&run->pool, (size_t)params * sizeof *run->dparams);
    if (!run->dparams)
        return HEED_NO_MEMORY;
    for (int i = 0; i < params; i++) {
        heed_plan_param_info info;
        char name[sizeof info.name + 2];
        TRY(heed_plan_param(run->plan, i, &info));
        const heed_tensor *given = &run->inputs.params[i];
        snprintf(name, sizeof name, "d.%s", info.name);
        TRY(add_output(run, name, HEED_F32, info.rank, given->data ? given->shape : info.shape,
                       &run->dparams[i]));
    }
    return HEED_OK;
}

static heed_status backward(attend_run *run)
{
    const heed_gradients gradients = {.q = run->inputs.q,
                                      .k = run->inputs.k,
                                      .v = run->inputs.v,
                                      .dout = run->inputs.dout,
                                      .out = run->out,
                                      .dq = run->dq,
                                      .dk = run->dk,
                                      .dv = run->dv,
                                      .dparams = run->dparams,
                                      .extra = &run->inputs.extra};
    const double start = heed_seconds();
    const heed_status status = heed_attend_backward(run->plan, &gradients);
    run->seconds_backward = heed_seconds() - start;
    return status;
}

static heed_status compute(attend_run *run)
{
    const heed_problem *p = &run->problem;
    cli_inputs *inputs = &run->inputs;
    const int64_t shape[] = {p->batch, p->heads, p->queries, p->value_dim};
    const int64_t state[] = {p->batch, p->heads, p->queries, 2};
    heed_tensor weights, row_state;
    TRY(add_output(run, "out", HEED_F32, 4, shape, &run->out));
    TRY(add_output(run, "lse", HEED_F32, 3, shape, &inputs->extra.lse));
    TRY(add_captures(run, &weights));
    if (run->options.backward) {
        TRY(add_gradients(run));
        TRY(cli_new_tensor(&run->pool, HEED_F32, 4, state, &row_state));
        inputs->extra.row_state = row_state.data;
    }
    const double start = heed_seconds();
    TRY(heed_attend(run->plan, &inputs->q, &inputs->k, &inputs->v, &run->out, &inputs->extra));
    run->seconds = heed_seconds() - start;
    return run->options.backward ? backward(run) : HEED_OK;
}

static unsigned wanted_captures(const attend_options *wanted)
{
    return (wanted->weights ? HEED_WITH_WEIGHTS : 0u) | (wanted->backward ? HEED_WITH_BACKWARD : 0u) |
           (wanted->entropy ? HEED_WITH_ENTROPY : 0u) | (wanted->key_sums ? HEED_WITH_KEY_SUMS : 0u) |
           (wanted->top ? HEED_WITH_TOP : 0u);
}

static heed_status attend(attend_run *run, const char *input)
{
    const attend_options *wanted = &run->options;
    cli_spec_use use;
    heed_type kv[2];
    TRY(cli_spec_use_of(run->spec, wanted->layer, &use));
    TRY(cli_kv_types(wanted->kv, &use, wanted->backward, kv));
    TRY(cli_open_inputs(&run->inputs, input, &run->pool));
    run->problem = (heed_problem){.threads = (int)wanted->threads,
                                  .isa = (heed_isa)wanted->isa,
                                  .kernel = (heed_kernel)wanted->kernel,
                                  .with = wanted_captures(wanted),
                                  .layer = wanted->layer,
                                  .top = (int)wanted->top};
    TRY(cli_read_inputs(&run->inputs, &use, kv, &run->problem));
    if (wanted->backward)
        TRY(cli_read_dout(&run->inputs, &run->problem));
    TRY(heed_plan_create(&run->plan, run->spec, &run->problem));
    TRY(cli_read_params(&run->inputs, run->plan));
    TRY(compute(run));
    const size_t room = 1 << 17;
    char *canonical = cli_take(&run->pool, room);
    if (!canonical)
        return HEED_NO_MEMORY;
    TRY(heed_spec_canonical(run->spec, NULL, canonical, room));
    const char *const metadata[] = {"heed", heed_version(), "spec", canonical, NULL};
    return heed_safetensors_write(wanted->output, run->outputs, run->count, metadata);
}

static void report(const attend_run *run)
{
    const cli_report report = {.output = run->options.output,
                               .tensors = run->outputs,
                               .count = run->count,
                               .plan = run->plan,
                               .seconds = run->seconds,
                               .seconds_backward = run->seconds_backward,
                               .backward = run->options.backward};
    if (run->options.json)
        cli_report_json(&report);
    else
        cli_report_text(&report);
    cli_note_unused(&run->inputs);
    cli_note_threads(cli_attend.name, run->options.threads);
}

static int run_command(int argc, char **argv)
{
    attend_run run = {.options = {.kv = -1}};
    cli_arguments arguments;
    int status;
    if (!cli_parse(&cli_attend, argc, argv, &run.options, &arguments, 2, 2, &status))
        return status;
    if (!run.options.output)
        return cli_fail(cli_attend.name, "-o FILE is missing: where the results go");
    run.spec = arguments.word[0];
    if (attend(&run, arguments.word[1]) == HEED_OK)
        report(&run);
    else
        status = cli_fail_message(cli_attend.name);
    heed_plan_free(run.plan);
    cli_close_inputs(&run.inputs);
    cli_release(&run.pool);
    return status;
}

const cli_command cli_attend = {
    .name = "attend",
    .arguments = "SPEC IN.safetensors -o OUT.safetensors",
    .summary = "attention by a spec over the tensors of a file",
    .details = "The input holds q [batch, heads, queries, dim], k [batch, kv_heads, keys, dim] and v [batch, "
               "kv_heads,\n"
               "keys, value_dim] as F32, F16 or BF16, and what the spec needs of q_pos, k_pos, seq, q_seq, "
               "q_segment,\n"
               "k_segment (I32), mask (U8) and parameters such as position.t5.b (F32); a parameter that is "
               "missing takes\n"
               "its initial value. The output holds F32 out and lse, and what the options add.\n",
    .example = "heed random in.safetensors --shape heads=4,kv_heads=2,queries=64,dim=32\n"
               "heed attend \"position=rope; where=causal & window(16)\" in.safetensors -o "
               "out.safetensors --weights\n",
    .options = options,
    .run = run_command,
};
