/* Reading the input file of `heed attend`. */
#include "cli/inputs.h"

#include "attend/spec_reader.h"
#include "base/try.h"

#include <stdio.h>
#include <string.h>

/* Tensors beside q, k and v. */
typedef struct extra_tensor {
    const char *name;
    heed_type type;
    size_t offset;  /* in heed_extra */
    unsigned with;  /* flag of the problem */
    unsigned needs; /* form flag without which it is not read; 0: always */
} extra_tensor;

#define EXTRA(field, type, with, needs)                                                                      \
    {                                                                                                        \
#field, type, offsetof(heed_extra, field), with, needs                                               \
    }

static const extra_tensor extras[] = {
    EXTRA(q_pos, HEED_I32, HEED_WITH_POSITIONS, 0),
    EXTRA(k_pos, HEED_I32, HEED_WITH_POSITIONS, 0),
    EXTRA(seq, HEED_I32, HEED_WITH_SEQ, 0),
    EXTRA(q_seq, HEED_I32, HEED_WITH_SEQ, 0),
    EXTRA(q_segment, HEED_I32, HEED_WITH_SEGMENTS, HEED_NEEDS_SEGMENTS),
    EXTRA(k_segment, HEED_I32, HEED_WITH_SEGMENTS, HEED_NEEDS_SEGMENTS),
    EXTRA(mask, HEED_U8, HEED_WITH_MASK, HEED_NEEDS_MASK),
};
enum { EXTRAS = sizeof extras / sizeof *extras };

static bool is_float(heed_type type)
{
    return type == HEED_F32 || type == HEED_F16 || type == HEED_BF16;
}

heed_status cli_open_inputs(cli_inputs *inputs, const char *path, cli_pool *pool)
{
    *inputs = (cli_inputs){.path = path, .pool = pool};
    TRY(heed_safetensors_open(&inputs->file, path));
    inputs->used = cli_take(pool, (size_t)heed_safetensors_count(inputs->file) * sizeof *inputs->used);
    return inputs->used ? HEED_OK : HEED_NO_MEMORY;
}

void cli_close_inputs(cli_inputs *inputs)
{
    heed_safetensors_close(inputs->file);
    inputs->file = NULL;
}

static const char *shape_text(int rank, const int64_t *shape, char *text, size_t size)
{
    size_t used = (size_t)snprintf(text, size, "[");
    for (int i = 0; i < rank && used < size; i++)
        used += (size_t)snprintf(text + used, size - used, "%s%lld", i ? ", " : "", (long long)shape[i]);
    if (used < size)
        snprintf(text + used, size - used, "]");
    return text;
}

/* The tensor of that name as a view on fresh memory; data stays NULL when the file has none. */
static heed_status read_tensor(cli_inputs *inputs, const char *name, heed_tensor *tensor)
{
    const heed_file_tensor *found = heed_safetensors_find(inputs->file, name);
    *tensor = (heed_tensor){0};
    if (!found)
        return HEED_OK;
    if (found->rank > HEED_MAX_RANK)
        return heed_fail(HEED_INVALID, "%s: tensor %s has %d dimensions, at most %d are of use here",
                         inputs->path, name, found->rank, HEED_MAX_RANK);
    TRY(cli_new_tensor(inputs->pool, found->type, found->rank, found->shape, tensor));
    inputs->used[found - heed_safetensors_tensor(inputs->file, 0)] = true;
    return heed_safetensors_read(inputs->file, found, tensor->data);
}

static heed_status check_type(const cli_inputs *inputs, const char *name, heed_type type)
{
    const heed_file_tensor *found = heed_safetensors_find(inputs->file, name);
    const bool any_float = type == HEED_TYPES;
    if (!found || (any_float ? is_float(found->type) : found->type == type))
        return HEED_OK;
    const char *wanted = any_float          ? "F32, F16 or BF16"
                         : type == HEED_I32 ? "I32"
                         : type == HEED_U8  ? "U8"
                                            : "F32";
    return heed_fail(HEED_INVALID, "%s: tensor %s is %s, it must be %s", inputs->path, name, found->dtype,
                     wanted);
}

/* q, k, v or dout. */
static heed_status read_rows(cli_inputs *inputs, const char *name, heed_tensor *tensor)
{
    char text[120];
    if (!heed_safetensors_find(inputs->file, name))
        return heed_fail(HEED_INVALID, "%s: there is no tensor %s%s", inputs->path, name,
                         *name == 'd' ? ", which --backward needs" : "");
    TRY(check_type(inputs, name, HEED_TYPES));
    TRY(read_tensor(inputs, name, tensor));
    if (tensor->rank != 4)
        return heed_fail(HEED_INVALID, "%s: tensor %s is %s, it must have 4 dimensions: [batch, %s, %s, dim]",
                         inputs->path, name, shape_text(tensor->rank, tensor->shape, text, sizeof text),
                         *name == 'q' || *name == 'd' ? "heads" : "kv_heads",
                         *name == 'q' || *name == 'd' ? "queries" : "keys");
    return HEED_OK;
}

static heed_status same_size(const cli_inputs *inputs, const char *what, const char *a, int64_t size_a,
                             const char *b, int64_t size_b)
{
    if (size_a == size_b)
        return HEED_OK;
    return heed_fail(HEED_INVALID, "%s: %s has %s %lld and %s has %lld, they must be equal", inputs->path, a,
                     what, (long long)size_a, b, (long long)size_b);
}

static heed_status check_shapes(const cli_inputs *inputs)
{
    const int64_t *q = inputs->q.shape, *k = inputs->k.shape, *v = inputs->v.shape;
    TRY(same_size(inputs, "batch", "k", k[0], "q", q[0]));
    TRY(same_size(inputs, "batch", "v", v[0], "q", q[0]));
    TRY(same_size(inputs, "kv_heads", "v", v[1], "k", k[1]));
    TRY(same_size(inputs, "keys", "v", v[2], "k", k[2]));
    TRY(same_size(inputs, "dim", "k", k[3], "q", q[3]));
    if (k[1] < 1 || q[1] % k[1] != 0)
        return heed_fail(HEED_INVALID,
                         "%s: q has heads %lld and k has %lld, the first must be a multiple of the second",
                         inputs->path, (long long)q[1], (long long)k[1]);
    return HEED_OK;
}

/* Rows of the last dimension from one type to another, by way of floats. */
static heed_status store_as(cli_inputs *inputs, heed_type type, heed_tensor *tensor)
{
    heed_tensor stored;
    if (tensor->type == type)
        return HEED_OK;
    TRY(cli_new_tensor(inputs->pool, type, tensor->rank, tensor->shape, &stored));
    float *row = cli_take(inputs->pool, (size_t)tensor->shape[3] * sizeof *row);
    if (!row)
        return HEED_NO_MEMORY;
    const int64_t rows = tensor->shape[0] * tensor->shape[1] * tensor->shape[2];
    for (int64_t i = 0; i < rows; i++) {
        heed_load(tensor->type, (const char *)tensor->data + i * tensor->stride[2], row, tensor->shape[3]);
        heed_store(type, row, (char *)stored.data + i * stored.stride[2], tensor->shape[3]);
    }
    *tensor = stored;
    return HEED_OK;
}

heed_status cli_read_floats(cli_inputs *inputs, const char *name, heed_tensor *tensor)
{
    TRY(check_type(inputs, name, HEED_TYPES));
    TRY(read_tensor(inputs, name, tensor));
    if (!tensor->data || tensor->type == HEED_F32)
        return HEED_OK;
    int64_t count = 1;
    for (int i = 0; i < tensor->rank; i++)
        count *= tensor->shape[i];
    heed_tensor stored;
    TRY(cli_new_tensor(inputs->pool, HEED_F32, tensor->rank, tensor->shape, &stored));
    heed_load(tensor->type, tensor->data, stored.data, count);
    *tensor = stored;
    return HEED_OK;
}

static heed_status read_extras(cli_inputs *inputs, const cli_spec_use *use, unsigned *with)
{
    for (int i = 0; i < EXTRAS; i++) {
        const extra_tensor *extra = &extras[i];
        heed_tensor *tensor = (heed_tensor *)((char *)&inputs->extra + extra->offset);
        if (extra->needs && !(use->flags & extra->needs))
            continue;
        TRY(check_type(inputs, extra->name, extra->type));
        TRY(read_tensor(inputs, extra->name, tensor));
        if (tensor->data)
            *with |= extra->with;
        else if (extra->needs)
            return heed_fail(HEED_INVALID, "%s: there is no tensor %s, which the spec needs", inputs->path,
                             extra->name);
    }
    if (inputs->extra.q_seq.data && !inputs->extra.seq.data)
        return heed_fail(HEED_INVALID, "%s: there is q_seq but no seq, which it needs", inputs->path);
    return HEED_OK;
}

heed_status cli_read_inputs(cli_inputs *inputs, const cli_spec_use *use, const heed_type kv[2],
                            heed_problem *problem)
{
    TRY(read_rows(inputs, "q", &inputs->q));
    TRY(read_rows(inputs, "k", &inputs->k));
    TRY(read_rows(inputs, "v", &inputs->v));
    TRY(check_shapes(inputs));
    TRY(read_extras(inputs, use, &problem->with));
    if (kv[0] != HEED_TYPES)
        TRY(store_as(inputs, kv[0], &inputs->k));
    if (kv[1] != HEED_TYPES) {
        TRY(store_as(inputs, kv[1], &inputs->v));
    }
    problem->batch = inputs->q.shape[0];
    problem->heads = inputs->q.shape[1];
    problem->kv_heads = inputs->k.shape[1];
    problem->queries = inputs->q.shape[2];
    problem->keys = inputs->k.shape[2];
    problem->dim = inputs->q.shape[3];
    problem->value_dim = inputs->v.shape[3];
    problem->q_type = inputs->q.type;
    problem->k_type = inputs->k.type;
    problem->v_type = inputs->v.type;
    return HEED_OK;
}

static heed_status check_param(const cli_inputs *inputs, const heed_plan_param_info *info,
                               const heed_tensor *tensor)
{
    char found[120], wanted[120];
    bool fits = tensor->rank == info->rank;
    for (int i = 0; i < info->rank && fits; i++)
        fits = tensor->shape[i] == info->shape[i] || (info->free[i] && tensor->shape[i] == 1);
    if (fits)
        return HEED_OK;
    bool choice = false;
    for (int i = 0; i < info->rank; i++)
        choice = choice || (info->free[i] && info->shape[i] > 1);
    return heed_fail(HEED_INVALID, "%s: tensor %s is %s, it must be %s%s", inputs->path, info->name,
                     shape_text(tensor->rank, tensor->shape, found, sizeof found),
                     shape_text(info->rank, info->shape, wanted, sizeof wanted),
                     choice ? ", or 1 where that is a choice" : "");
}

heed_status cli_read_params(cli_inputs *inputs, const heed_plan *plan)
{
    const int count = heed_plan_params(plan);
    inputs->params = cli_take(inputs->pool, (size_t)count * sizeof *inputs->params);
    if (!inputs->params)
        return HEED_NO_MEMORY;
    for (int i = 0; i < count; i++) {
        heed_plan_param_info info;
        TRY(heed_plan_param(plan, i, &info));
        TRY(check_type(inputs, info.name, HEED_F32));
        TRY(read_tensor(inputs, info.name, &inputs->params[i]));
        if (inputs->params[i].data)
            TRY(check_param(inputs, &info, &inputs->params[i]));
        else if (info.required)
            return heed_fail(HEED_INVALID, "%s: there is no tensor %s, which the spec needs", inputs->path,
                             info.name);
    }
    inputs->extra.params = inputs->params;
    return HEED_OK;
}

heed_status cli_read_dout(cli_inputs *inputs, const heed_problem *problem)
{
    char found[120], wanted[120];
    const int64_t shape[] = {problem->batch, problem->heads, problem->queries, problem->value_dim};
    TRY(read_rows(inputs, "dout", &inputs->dout));
    if (memcmp(inputs->dout.shape, shape, sizeof shape))
        return heed_fail(HEED_INVALID, "%s: tensor dout is %s, it must be as out: %s", inputs->path,
                         shape_text(4, inputs->dout.shape, found, sizeof found),
                         shape_text(4, shape, wanted, sizeof wanted));
    return store_as(inputs, HEED_F32, &inputs->dout);
}

/* Names of tensors that mean something to some spec. */
typedef struct known_names {
    const char *name; /* being looked for */
    bool found;
    heed_names nearest;
} known_names;

static void add_name(known_names *known, const char *name)
{
    known->found = known->found || !strcmp(name, known->name);
    heed_names_add(&known->nearest, name);
}

static void add_params(void *context, const heed_form *form)
{
    char name[160];
    for (const heed_param *param = form->params; param && param->name; param++) {
        snprintf(name, sizeof name, "%s.%s.%s", heed_stage_name(form->stage), form->name, param->name);
        if (!strcmp(name, ((known_names *)context)->name))
            ((known_names *)context)->found = true;
    }
}

void cli_note_unused(const cli_inputs *inputs)
{
    static const char *const rows[] = {"q", "k", "v", "dout"};
    char text[100];
    for (int i = 0; i < heed_safetensors_count(inputs->file); i++) {
        if (inputs->used[i])
            continue;
        known_names known = {.name = heed_safetensors_tensor(inputs->file, i)->name};
        heed_names_start(&known.nearest,
                         (heed_word){HEED_WORD_NAME, known.name, (int)strnlen(known.name, 200)});
        for (size_t j = 0; j < sizeof rows / sizeof *rows; j++)
            add_name(&known, rows[j]);
        for (int j = 0; j < EXTRAS; j++)
            add_name(&known, extras[j].name);
        heed_forms_visit(add_params, &known);
        heed_printable(known.name, text, sizeof text);
        if (!known.found)
            fprintf(stderr, "heed attend: note: tensor %s is unknown and was ignored%s\n", text,
                    heed_names_hint(&known.nearest).text);
        else
            fprintf(stderr, "heed attend: note: tensor %s was not used: %s\n", text,
                    strcmp(known.name, "dout") ? "no form of the spec reads it" : "it goes with --backward");
    }
}
