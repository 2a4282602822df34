/* heed random: a file of random tensors to try a spec on. */
#include "base/try.h"
#include "cli/cli.h"
#include "cli/inputs.h"
#include "cli/shape.h"

#include <heed/scan.h>
#include <math.h>
#include <string.h>

enum { MOST_TENSORS = 200, SEGMENTS = 4 };

typedef struct random_options {
    const char *shape, *spec;
    int type;
    bool backward;
    int64_t seed;
} random_options;

static const cli_option options[] = {
    CLI_TEXT_OPTION(random_options, shape, "shape", "SIZES", "sizes, see below"),
    CLI_TEXT_OPTION(random_options, spec, "spec", "SPEC",
                    "add what this spec reads: mask, segments, parameters, gates"),
    CLI_CHOICE_OPTION(random_options, type, "type", "TYPE", cli_float_word,
                      "f32, f16 or bf16 for q, k and v; f32"),
    CLI_FLAG_OPTION(random_options, backward, "backward", "add dout, the gradient of the output"),
    CLI_WHOLE_OPTION(random_options, seed, "seed", 0, INT32_MAX, "the same number gives the same file; 0"),
    {0},
};

typedef struct random_run {
    cli_pool pool;
    uint64_t state;
    heed_named_tensor tensors[MOST_TENSORS];
    int count;
} random_run;

/* Uniform on [0, 1), 53 bits of SplitMix64 (Steele, Lea, Flood 2014). */
static double uniform(random_run *run)
{
    uint64_t z = run->state += 0x9E3779B97F4A7C15u;
    z = (z ^ z >> 30) * 0xBF58476D1CE4E5B9u;
    z = (z ^ z >> 27) * 0x94D049BB133111EBu;
    return (double)((z ^ z >> 31) >> 11) * 0x1p-53;
}

static float normal(random_run *run)
{
    const double radius = sqrt(-2.0 * log(1.0 - uniform(run)));
    return (float)(radius * cos(2.0 * M_PI * uniform(run)));
}

static heed_status add(random_run *run, const char *name, heed_type type, int rank, const int64_t *shape,
                       heed_tensor *tensor)
{
    char *copy = cli_take(&run->pool, strlen(name) + 1);
    if (run->count == MOST_TENSORS)
        return heed_fail(HEED_INVALID, "the spec has more than %d parameters", MOST_TENSORS);
    if (!copy)
        return HEED_NO_MEMORY;
    strcpy(copy, name);
    TRY(cli_new_tensor(&run->pool, type, rank, shape, tensor));
    run->tensors[run->count++] = (heed_named_tensor){copy, *tensor};
    return HEED_OK;
}

static int64_t size_of(int rank, const int64_t *shape)
{
    int64_t size = 1;
    for (int i = 0; i < rank; i++)
        size *= shape[i];
    return size;
}

static heed_status add_rows(random_run *run, const char *name, heed_type type, const int64_t shape[4])
{
    heed_tensor tensor;
    float row[256];
    TRY(add(run, name, type, 4, shape, &tensor));
    const int64_t size = size_of(4, shape), step = heed_type_bytes(type, 1);
    for (int64_t i = 0; i < size; i += 256) {
        const int n = size - i < 256 ? (int)(size - i) : 256;
        for (int j = 0; j < n; j++)
            row[j] = normal(run);
        heed_store(type, row, (char *)tensor.data + i * step, n);
    }
    return HEED_OK;
}

/* Four segments of keys; the last query stands at the last key. */
static heed_status add_segments(random_run *run, const heed_problem *p)
{
    heed_tensor q, k;
    TRY(add(run, "q_segment", HEED_I32, 1, &p->queries, &q));
    TRY(add(run, "k_segment", HEED_I32, 1, &p->keys, &k));
    for (int64_t j = 0; j < p->keys; j++)
        ((int32_t *)k.data)[j] = (int32_t)(j * SEGMENTS / p->keys);
    for (int64_t i = 0; i < p->queries; i++) {
        const int64_t j = i + p->keys - p->queries;
        ((int32_t *)q.data)[i] = j < 0 ? 0 : (int32_t)(j * SEGMENTS / p->keys);
    }
    return HEED_OK;
}

/* Four pairs of five are open. */
static heed_status add_mask(random_run *run, const heed_problem *p)
{
    heed_tensor mask;
    TRY(add(run, "mask", HEED_U8, 2, (int64_t[]){p->queries, p->keys}, &mask));
    for (int64_t i = 0; i < p->queries * p->keys; i++)
        ((uint8_t *)mask.data)[i] = uniform(run) < 0.8;
    return HEED_OK;
}

/* Parameters near their initial values. */
static heed_status add_params(random_run *run, const heed_plan *plan)
{
    for (int i = 0; i < heed_plan_params(plan); i++) {
        heed_plan_param_info info;
        heed_tensor tensor;
        TRY(heed_plan_param(plan, i, &info));
        TRY(add(run, info.name, HEED_F32, info.rank, info.shape, &tensor));
        if (!info.required)
            TRY(heed_plan_param_initial(plan, i, tensor.data));
        const int64_t size = size_of(info.rank, info.shape);
        for (int64_t n = 0; n < size; n++)
            ((float *)tensor.data)[n] += 0.1f * normal(run);
    }
    return HEED_OK;
}

/* What a recurrence reads beside q, k and v: logs of decays in -0.2..0, shares in 0..1, directions. */
static heed_status add_for_scan(random_run *run, const heed_scan_facts *facts, const heed_problem *p)
{
    const struct {
        const char *name;
        unsigned reads;
        int rank;
        float scale;
    } tensors[] = {{"decay", HEED_SCAN_READS_DECAY, 3, -0.2f},
                   {"beta", HEED_SCAN_READS_BETA, 3, 1.0f},
                   {"gate", HEED_SCAN_READS_GATE, 4, -0.2f},
                   {"erase", HEED_SCAN_READS_ERASE, 4, 0.0f},
                   {"rate", HEED_SCAN_READS_RATE, 4, 1.0f}};
    for (size_t i = 0; i < sizeof tensors / sizeof *tensors; i++) {
        const bool by_slot = facts->slots && tensors[i].reads == HEED_SCAN_READS_GATE;
        const int64_t shape[] = {p->batch, p->kv_heads, p->keys, by_slot ? facts->slots : p->dim};
        heed_tensor tensor;
        if (!(facts->flags & tensors[i].reads))
            continue;
        TRY(add(run, tensors[i].name, HEED_F32, tensors[i].rank, shape, &tensor));
        for (int64_t n = 0; n < size_of(tensors[i].rank, shape); n++)
            ((float *)tensor.data)[n] =
                tensors[i].scale == 0.0f ? normal(run) : tensors[i].scale * (float)uniform(run);
    }
    return HEED_OK;
}

static heed_status add_for_spec(random_run *run, const char *spec, heed_problem *problem)
{
    cli_spec_use use;
    heed_plan *plan;
    heed_scan_facts facts;
    TRY(heed_scan_of_layer(spec, NULL, 0, &facts));
    if (facts.scans)
        return add_for_scan(run, &facts, problem);
    TRY(cli_spec_use_of(spec, 0, &use));
    if (use.flags & HEED_NEEDS_SEGMENTS)
        TRY(add_segments(run, problem));
    if (use.flags & HEED_NEEDS_MASK)
        TRY(add_mask(run, problem));
    problem->with = (use.flags & HEED_NEEDS_SEGMENTS ? HEED_WITH_SEGMENTS : 0u) |
                    (use.flags & HEED_NEEDS_MASK ? HEED_WITH_MASK : 0u);
    if (use.keys != HEED_TYPES)
        problem->k_type = use.keys;
    if (use.values != HEED_TYPES)
        problem->v_type = use.values;
    TRY(heed_plan_create(&plan, spec, problem));
    const heed_status status = add_params(run, plan);
    heed_plan_free(plan);
    return status;
}

static heed_status make(random_run *run, const random_options *wanted, const char *path)
{
    const heed_type type = (heed_type)wanted->type;
    heed_problem p = {.q_type = type, .k_type = type, .v_type = type};
    TRY(cli_parse_shape(wanted->shape, &p));
    TRY(add_rows(run, "q", type, (int64_t[]){p.batch, p.heads, p.queries, p.dim}));
    TRY(add_rows(run, "k", type, (int64_t[]){p.batch, p.kv_heads, p.keys, p.dim}));
    TRY(add_rows(run, "v", type, (int64_t[]){p.batch, p.kv_heads, p.keys, p.value_dim}));
    if (wanted->backward)
        TRY(add_rows(run, "dout", HEED_F32, (int64_t[]){p.batch, p.heads, p.queries, p.value_dim}));
    if (wanted->spec)
        TRY(add_for_spec(run, wanted->spec, &p));
    return heed_safetensors_write(path, run->tensors, run->count, NULL);
}

static int run_command(int argc, char **argv)
{
    random_options wanted = {0};
    cli_arguments arguments;
    int status;
    if (!cli_parse(&cli_random, argc, argv, &wanted, &arguments, 1, 1, &status))
        return status;
    random_run run = {.state = (uint64_t)wanted.seed};
    status = make(&run, &wanted, arguments.word[0]) ? cli_fail_message(cli_random.name) : CLI_OK;
    cli_release(&run.pool);
    return status;
}

const cli_command cli_random = {
    .name = "random",
    .arguments = "OUT.safetensors",
    .summary = "a file of random tensors to try a spec on",
    .details = CLI_SHAPE_DETAILS
    "q, k, v and dout are drawn from the normal distribution, parameters lie near their initial values.\n",
    .example = "heed random in.safetensors --shape heads=2,queries=100,dim=16 --spec \"position=t5\" "
               "--backward\n"
               "heed attend \"position=t5\" in.safetensors -o out.safetensors --backward\n",
    .options = options,
    .run = run_command,
};
