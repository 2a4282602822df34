#include "train/trainer.h"
#include "base/cpu.h"
#include "base/try.h"
#include "train/examples.h"
#include "train/marks.h"
#include "train/optimiser.h"
#include "train/pass.h"
#include "train/schedule.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct heed_trainer {
    heed_train_config config;
    heed_data data;
    heed_transformer model;
    heed_base *base, *teacher; /* may be the same */
    heed_parameters *parameters;
    heed_data judge_data; /* of evaluations; its text is that of `data` */
    heed_transformer judge_model;
    heed_pass_of of, judge_of;
    heed_pass train, judge;
    heed_optimiser *optimiser;
    const heed_optimiser_kind *kind;
    heed_optimiser_how how;
    heed_schedule schedule;
    const heed_nn_kernels *kernels;
    int threads;
    heed_parameter **learnt; /* [learns] those that change */
    int learns;
    float **average; /* [learns] or NULL */
    int64_t steps;
};

/* Of a model from nothing: what was left open of its shape. */
static heed_status fill_in_shape(heed_train_config *c)
{
    c->kv_heads = c->kv_heads ? c->kv_heads : c->heads;
    if (!c->head_dim && c->width % c->heads)
        return heed_fail(HEED_INVALID, "heads = %lld does not divide width = %lld; head_dim may be given",
                         (long long)c->heads, (long long)c->width);
    if (heed_spec_canonical(c->attention, NULL, NULL, 0)) {
        char sentence[600];
        snprintf(sentence, sizeof sentence, "%s", heed_message());
        return heed_fail(HEED_INVALID, "attention: %s", sentence);
    }
    if (c->heads % c->kv_heads)
        return heed_fail(HEED_INVALID, "kv_heads = %lld does not divide heads = %lld", (long long)c->kv_heads,
                         (long long)c->heads);
    c->head_dim = c->head_dim ? c->head_dim : c->width / c->heads;
    if (!c->hidden)
        c->hidden = heed_feed_gated(c->feed) ? (c->width * 8 / 3 + 15) / 16 * 16 : 4 * c->width;
    return HEED_OK;
}

/* The sizes of a base, as far as a run has to know them. */
static heed_status take_shape(heed_trainer *t)
{
    const heed_config *b = &t->base->config;
    if (t->data.vocabulary > b->vocabulary)
        return heed_fail(HEED_INVALID, "the data has %lld different tokens, the model %lld",
                         (long long)t->data.vocabulary, (long long)b->vocabulary);
    t->data.vocabulary = b->vocabulary;
    t->model = (heed_transformer){.batch = t->config.batch * heed_data_rows(&t->data),
                                  .context = t->config.context,
                                  .vocabulary = b->vocabulary,
                                  .width = b->width,
                                  .layers = b->layers,
                                  .heads = b->heads,
                                  .kv_heads = b->kv_heads,
                                  .head_dim = b->head_dim,
                                  .hidden = b->feed_forward,
                                  .spec = *t->config.attention ? t->config.attention : "its own attention"};
    return HEED_OK;
}

/* What was left open, from what was said. */
static heed_status fill_in(heed_trainer *t)
{
    heed_train_config *c = &t->config;
    if (!t->base)
        TRY(fill_in_shape(c));
    c->eval_every = c->eval_every ? c->eval_every : (c->steps + 9) / 10;
    c->save_every = c->save_every ? c->save_every : c->eval_every;
    c->cooldown = c->cooldown ? c->cooldown : c->steps / 5;
    t->kind = heed_optimiser_kind_at(c->optimiser);
    t->how = t->kind->usual;
    const struct {
        double given;
        float *to;
    } numbers[] = {{c->rate, &t->how.rate}, {c->beta1, &t->how.beta1}, {c->beta2, &t->how.beta2},
                   {c->eps, &t->how.eps},   {c->decay, &t->how.decay}, {c->other_rate, &t->how.other_rate}};
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++)
        if (!isnan(numbers[i].given))
            *numbers[i].to = (float)numbers[i].given;
    t->how.nesterov = c->nesterov;
    t->schedule = heed_schedule_of(c);
    if (t->base)
        return take_shape(t);
    return heed_train_shape(c, &t->data, &t->model);
}

static heed_status list_learnt(heed_trainer *t)
{
    const int count = heed_parameters_count(t->parameters);
    t->learnt = calloc((size_t)count + 1, sizeof *t->learnt);
    if (!t->learnt)
        return heed_fail(HEED_NO_MEMORY, "no memory for a list of parameters");
    for (int i = 0; i < count; i++)
        if (!heed_parameters_at(t->parameters, i)->frozen)
            t->learnt[t->learns++] = heed_parameters_at(t->parameters, i);
    return HEED_OK;
}

static heed_status make_averages(heed_trainer *t)
{
    if (t->config.average <= 0.0)
        return HEED_OK;
    t->average = calloc((size_t)t->learns + 1, sizeof *t->average);
    for (int i = 0; t->average && i < t->learns; i++) {
        const size_t bytes = (size_t)t->learnt[i]->count * sizeof(float);
        t->average[i] = malloc(bytes + 1);
        if (!t->average[i])
            return heed_fail(HEED_NO_MEMORY, "no memory for averaged weights");
        memcpy(t->average[i], t->learnt[i]->value, bytes);
    }
    return t->average ? HEED_OK : heed_fail(HEED_NO_MEMORY, "no memory for averaged weights");
}

/* Weights of the base, and of its teacher where that must not change with it. */
static heed_status load_base(heed_trainer *t)
{
    const heed_train_config *c = &t->config;
    if (t->base)
        TRY(heed_base_load(t->base, t->parameters, "", &t->of.learn));
    if (!t->teacher)
        return HEED_OK;
    const bool frozen = c->learn == HEED_LEARN_LORA || c->learn == HEED_LEARN_FORMS;
    t->of.teacher_apart = t->teacher != t->base || !frozen;
    return t->of.teacher_apart ? heed_base_load(t->teacher, t->parameters, "teacher.", NULL) : HEED_OK;
}

/* Evaluations may be on another task than training, or on longer sequences. */
static heed_status open_judge(heed_trainer *t)
{
    const heed_train_config *c = &t->config;
    t->judge_data = t->data;
    t->judge_model = t->model;
    t->judge_model.judged = true;
    if (*c->eval_data) {
        heed_data other = {.seed = t->data.seed, .objective = t->data.objective, .end = t->data.end};
        if (!t->data.task)
            return heed_fail(HEED_INVALID, "eval_data = %.100s: data = text is judged by its held-out part",
                             c->eval_data);
        TRY(heed_data_task(&other, c->eval_data));
        TRY(heed_marks_open(&other, c->landmarks, c->sentinels));
        if (other.vocabulary > t->data.vocabulary)
            return heed_fail(HEED_INVALID, "eval_data has %lld different tokens, data %lld",
                             (long long)other.vocabulary, (long long)t->data.vocabulary);
        other.vocabulary = t->data.vocabulary;
        if (t->data.source_context > 0)
            TRY(heed_data_split_task(&other));
        t->judge_data = other;
        t->judge_model.source_context = other.source_context;
        t->judge_model.context = other.context;
    }
    if ((*c->eval_data || c->eval_context) && *c->image)
        return heed_fail(HEED_INVALID, "eval_data and eval_context are not for pictures: they have one size");
    if (c->eval_context && c->eval_context < t->judge_data.context)
        return heed_fail(HEED_INVALID, "eval_context = %lld: %s needs %lld tokens",
                         (long long)c->eval_context, *c->eval_data ? c->eval_data : c->data,
                         (long long)t->judge_data.context);
    if (c->eval_context)
        t->judge_model.context = c->eval_context;
    if (t->model.positions == HEED_POSITIONS_LEARNED && t->judge_model.context != t->model.context)
        return heed_fail(HEED_INVALID,
                         "positions = learned: there are %lld positions, and evaluation needs %lld",
                         (long long)t->model.context, (long long)t->judge_model.context);
    if (heed_data_evaluations(&t->judge_data, *c->image ? c->context : t->judge_model.context) < 1)
        return heed_fail(HEED_INVALID, "%s: the held-out %lld tokens are too few for eval_context = %lld",
                         c->file, (long long)t->data.held_out, (long long)t->judge_model.context);
    t->judge_of = t->of;
    t->judge_of.data = &t->judge_data;
    t->judge_of.model = &t->judge_model;
    return HEED_OK;
}

static heed_status make(heed_trainer *t)
{
    heed_isa isa;
    TRY(heed_isa_resolve(HEED_ISA_AUTO, &isa));
    t->kernels = heed_nn_kernels_of(isa);
    TRY(heed_trainer_open_bases(&t->config, &t->base, &t->teacher));
    TRY(heed_trainer_open_data(&t->config, &t->data));
    TRY(fill_in(t));
    TRY(heed_parameters_create(&t->parameters, (uint64_t)t->config.seed));
    t->of = (heed_pass_of){.config = &t->config,
                           .data = &t->data,
                           .model = &t->model,
                           .base = t->base,
                           .teacher = t->teacher,
                           .learn = heed_config_learn(&t->config),
                           .parameters = t->parameters,
                           .threads = t->threads};
    TRY(load_base(t));
    TRY(heed_pass_make(&t->train, &t->of, true));
    TRY(open_judge(t));
    TRY(heed_pass_make(&t->judge, &t->judge_of, false));
    if (t->base && *t->base->config.attention)
        TRY(heed_forms_read_beside(t->parameters, heed_model_file_path(t->base->file)));
    if (*t->config.params)
        TRY(heed_forms_read(t->parameters, t->config.params));
    TRY(heed_optimiser_create(&t->optimiser, t->kind, &t->how, t->parameters, t->threads, HEED_ISA_AUTO));
    TRY(list_learnt(t));
    return make_averages(t);
}

heed_status heed_trainer_create(heed_trainer **trainer, const heed_train_config *config, int threads)
{
    heed_trainer *made = calloc(1, sizeof *made);
    *trainer = NULL;
    if (!made)
        return heed_fail(HEED_NO_MEMORY, "no memory for a training run");
    made->config = *config;
    made->threads = threads ? threads : heed_cpu_physical_cores();
    const heed_status status = make(made);
    if (status)
        heed_trainer_free(made);
    else
        *trainer = made;
    return status;
}

void heed_trainer_free(heed_trainer *t)
{
    if (!t)
        return;
    for (int i = 0; t->average && i < t->learns; i++)
        free(t->average[i]);
    free(t->average);
    free(t->learnt);
    heed_optimiser_free(t->optimiser);
    heed_pass_free(&t->train);
    heed_pass_free(&t->judge);
    heed_parameters_free(t->parameters);
    if (t->teacher != t->base)
        heed_base_close(t->teacher);
    heed_base_close(t->base);
    heed_data_free(&t->data);
    free(t);
}

heed_trainer_info heed_trainer_get_info(const heed_trainer *t)
{
    heed_trainer_info info = {.tokens = t->model.batch * t->model.context * t->config.accumulate,
                              .vocabulary = t->model.vocabulary,
                              .context = t->model.context,
                              .bytes = heed_graph_bytes(t->train.graph) + heed_graph_bytes(t->judge.graph),
                              .flops = 3.0 * heed_graph_flops(t->train.graph) * (double)t->config.accumulate};
    for (int i = 0; i < heed_parameters_count(t->parameters); i++) {
        const heed_parameter *p = heed_parameters_at(t->parameters, i);
        info.parameters += p->frozen ? 0 : p->count;
        info.bytes += (size_t)p->count * sizeof(float) * (p->frozen ? 1 : t->average ? 3 : 2);
    }
    for (int i = 0; i < heed_optimiser_tensors(t->optimiser); i++)
        info.bytes += (size_t)heed_optimiser_tensor(t->optimiser, i).count * sizeof(float);
    return info;
}

const heed_train_config *heed_trainer_config(const heed_trainer *t)
{
    return &t->config;
}

const heed_data *heed_trainer_data(const heed_trainer *t)
{
    return &t->data;
}

const heed_transformer *heed_trainer_model(const heed_trainer *t)
{
    return &t->model;
}

const heed_base *heed_trainer_base(const heed_trainer *t)
{
    return t->base;
}

heed_parameters *heed_trainer_parameters(const heed_trainer *t)
{
    return t->parameters;
}

heed_pass *heed_trainer_judge(heed_trainer *t)
{
    return &t->judge;
}

int64_t heed_trainer_steps(const heed_trainer *t)
{
    return t->steps;
}

void heed_trainer_set_steps(heed_trainer *t, int64_t steps)
{
    t->steps = steps;
    heed_optimiser_set_steps(t->optimiser, (uint64_t)steps);
}

static heed_status not_finite(heed_trainer *t, const char *what)
{
    const heed_variable where = heed_graph_not_finite(t->train.graph);
    return heed_fail(HEED_INVALID, "step %lld: %s is no finite number; it begins in %s",
                     (long long)t->steps + 1, what,
                     where < 0 ? "the backward run" : heed_graph_operation(t->train.graph, where));
}

static void average_weights(heed_trainer *t)
{
    const float memory = (float)t->config.average;
    for (int i = 0; t->average && i < t->learns; i++) {
        const heed_parameter *p = t->learnt[i];
        t->kernels->scale(t->average[i], memory, 0.0f, t->average[i], false, p->count);
        t->kernels->scale(p->value, 1.0f - memory, 0.0f, t->average[i], true, p->count);
    }
}

heed_status heed_trainer_step(heed_trainer *t, heed_train_report *report)
{
    const int64_t many = t->config.accumulate, batch = t->config.batch;
    double loss = 0.0;
    for (int64_t i = 0; i < many; i++) {
        const int64_t place = t->steps * many + i;
        heed_pass_fill(&t->train, false, place * batch, INT64_MAX);
        heed_graph_training(t->train.graph, true, (uint64_t)place);
        TRY(heed_graph_forward(t->train.graph));
        const float now = *(const float *)heed_graph_data(t->train.graph, t->train.loss);
        if (!isfinite(now))
            return not_finite(t, "the loss");
        loss += (double)now / (double)many;
        TRY(heed_graph_backward(t->train.graph, 1.0f / (float)many, i > 0));
    }
    const double norm = heed_optimiser_norm(t->optimiser), clip = t->config.clip;
    if (!isfinite(norm))
        return not_finite(t, "a gradient");
    const double factor = heed_schedule_factor(&t->schedule, t->steps);
    heed_optimiser_step(t->optimiser, (float)factor, clip > 0.0 && norm > clip ? (float)(clip / norm) : 1.0f);
    average_weights(t);
    t->steps++;
    *report = (heed_train_report){.loss = loss, .norm = norm, .rate = factor * (double)t->how.rate};
    return HEED_OK;
}

void heed_trainer_swap(const heed_trainer *t)
{
    for (int i = 0; t->average && i < t->learns; i++) {
        const heed_parameter *p = t->learnt[i];
        for (int64_t j = 0; j < p->count; j++) {
            const float swap = p->value[j];
            p->value[j] = t->average[i][j];
            t->average[i][j] = swap;
        }
    }
}

static void add_measure(heed_evaluated *to, const char *name, double value)
{
    if (to->measures == (int)(sizeof to->measure / sizeof *to->measure) || isnan(value))
        return;
    to->measure[to->measures].name = name;
    to->measure[to->measures++].value = value;
}

/* Means over layers of what has the same name. */
static void take_measures(const heed_beside *beside, const heed_pass_counts *counts, heed_evaluated *to)
{
    for (int i = 0; i < beside->measures; i++) {
        const char *name = beside->measure[i].name;
        double sum = 0.0;
        int same = 0, earlier = 0;
        for (int j = 0; j < beside->measures; j++)
            if (!strcmp(beside->measure[j].name, name)) {
                sum += counts->measure[j];
                earlier += j < i;
                same++;
            }
        if (!earlier)
            add_measure(to, name, sum / (double)same / (double)counts->batches);
    }
}

heed_status heed_trainer_evaluate(heed_trainer *t, heed_evaluated *evaluated)
{
    const int64_t all = heed_data_evaluations(&t->judge_data, t->judge_model.context);
    const int64_t batch = t->config.batch;
    int64_t last = all < t->config.eval_sequences ? all : t->config.eval_sequences;
    if (t->data.objective == HEED_OBJECTIVE_CONTRASTIVE && last > batch)
        last -= last % batch; /* texts compare with those of whole batches */
    heed_pass_counts counts = {.loss = 0.0};
    heed_status status = HEED_OK;
    heed_trainer_swap(t);
    for (int64_t first = 0; first < last && !status; first += batch) {
        heed_pass_fill(&t->judge, true, first, last);
        status = heed_graph_forward(t->judge.graph);
        if (!status)
            heed_pass_count(&t->judge, t->kernels, &counts);
    }
    heed_trainer_swap(t);
    TRY(status);
    const double n = counts.targets ? (double)counts.targets : NAN;
    *evaluated = (heed_evaluated){.loss = counts.loss / n,
                                  .accuracy = heed_pass_accuracy(&t->judge, &counts),
                                  .ceiling = t->judge_data.task && t->data.objective != HEED_OBJECTIVE_MASKED
                                                 ? t->judge_data.task->ceiling
                                                 : NAN,
                                  .bits = NAN,
                                  .targets = counts.targets};
    take_measures(&t->judge.beside, &counts, evaluated);
    add_measure(evaluated, "auc", heed_pass_area(&counts));
    add_measure(evaluated, "iou", counts.either ? (double)counts.both / (double)counts.either : NAN);
    if (t->data.bytes_held_out > 0 && heed_objective_says_next(t->data.objective))
        evaluated->bits =
            counts.loss / n / log(2.0) * (double)t->data.held_out / (double)t->data.bytes_held_out;
    return HEED_OK;
}

int heed_trainer_tensors(const heed_trainer *t)
{
    return t->learns * (t->average ? 2 : 1) + heed_optimiser_tensors(t->optimiser);
}

heed_trainer_tensor heed_trainer_tensor_at(const heed_trainer *t, int i)
{
    const int count = t->learns, weights = count * (t->average ? 2 : 1);
    heed_trainer_tensor tensor = {.rank = 1};
    if (i >= weights) {
        const heed_state_tensor state = heed_optimiser_tensor(t->optimiser, i - weights);
        snprintf(tensor.name, sizeof tensor.name, "%s", state.name);
        tensor.data = state.data;
        tensor.shape[0] = state.count;
        return tensor;
    }
    const heed_parameter *p = t->learnt[i % count];
    snprintf(tensor.name, sizeof tensor.name, "%s%s", i < count ? "" : "average.", p->name);
    tensor.data = i < count ? p->value : t->average[i - count];
    tensor.rank = p->rank;
    memcpy(tensor.shape, p->shape, sizeof tensor.shape);
    return tensor;
}
