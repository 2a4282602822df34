#include "train/pass.h"
#include "base/try.h"
#include "nn/graph.h"
#include "train/losses.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* Whether padding has to be told apart from text, and the spec of a model from nothing does so. */
static bool sees_padding(const char *spec)
{
    return !strstr(spec, "causal") && !strstr(spec, "segments") && !strstr(spec, "scan=");
}

static heed_status make_inputs(heed_pass *p)
{
    const heed_pass_of *of = p->of;
    const heed_transformer *m = of->model;
    const int64_t shape[] = {m->batch, m->context};
    const bool pools = heed_objective_pools(of->data->objective), whole = m->classes || pools;
    const int64_t examples = of->config->batch,
                  asked[] = {whole ? examples : m->batch, whole ? 1 : m->context};
    if (!of->base && pools && !of->data->task && !m->image.patch && sees_padding(m->spec))
        return heed_fail(HEED_INVALID,
                         "attention: texts of different lengths are padded, and tokens would see that; "
                         "make segments a factor of where");
    const bool padded = of->base ? !of->base->config.causal
                                 : strstr(m->spec, "segments") != NULL || strstr(m->spec, "arrow") != NULL;
    if (padded || m->encoder_layers > 0)
        p->nodes.segments = heed_nn_input(p->graph, HEED_I32, 2, shape);
    p->targets = heed_nn_input(p->graph, HEED_I32, 2, asked);
    p->weights = pools && !of->data->task ? heed_nn_input(p->graph, HEED_F32, 2, shape) : HEED_NO_INPUT;
    p->numbers = of->data->objective == HEED_OBJECTIVE_REGRESSION
                     ? heed_nn_input(p->graph, HEED_F32, 1, &examples)
                     : HEED_NO_INPUT;
    return HEED_OK;
}

/* The model's own part of a graph. */
static void make_model(heed_pass *p)
{
    const heed_pass_of *of = p->of;
    if (of->data->objective == HEED_OBJECTIVE_DENOISE) {
        heed_denoiser_make(p->graph, of->model, HEED_DENOISE_ALL, &p->denoiser);
        p->nodes.pixels = p->denoiser.pixels;
        const heed_image *image = &of->model->image;
        p->noise = heed_nn_input(
            p->graph, HEED_F32, 3,
            (int64_t[]){of->model->batch, of->model->context, image->patch * image->patch * image->channels});
        return;
    }
    if (!of->base) {
        heed_transformer_make(p->graph, of->model, &p->nodes);
        return;
    }
    const heed_base_use use = {.batch = of->model->batch,
                               .context = of->model->context,
                               .attention = *of->config->attention ? of->config->attention : NULL,
                               .recompute = of->config->recompute,
                               .learn = &of->learn,
                               .hidden = heed_objective_pools(of->data->objective),
                               .padded = p->nodes.segments >= 0};
    heed_base_make(p->graph, of->base, &use, &p->nodes);
}

/* Numbers of a row of an example: its tokens, or the pixels of a picture. */
static int64_t row_size(const heed_pass *p)
{
    return p->of->model->image.patch ? p->of->config->context : p->of->model->context;
}

static heed_status make_room(heed_pass *p)
{
    const heed_data *data = p->of->data;
    const size_t context = (size_t)row_size(p), source = (size_t)data->source_context,
                 rows = (size_t)heed_data_rows(data);
    const size_t scratch = 2 * (context + source) + 64;
    p->room = calloc(scratch + 2 * rows * context + rows + source + 1, sizeof *p->room);
    if (!p->room)
        return heed_fail(HEED_NO_MEMORY, "no memory for a sequence");
    p->example.token = p->room + scratch;
    p->example.target = p->example.token + rows * context;
    p->example.length = p->example.target + rows * context;
    p->example.source = source ? p->example.length + rows : NULL;
    return HEED_OK;
}

heed_status heed_pass_make(heed_pass *p, const heed_pass_of *of, bool train)
{
    *p = (heed_pass){.of = of,
                     .scores = HEED_NO_INPUT,
                     .nodes = {.tokens = HEED_NO_INPUT,
                               .segments = HEED_NO_INPUT,
                               .places = HEED_NO_INPUT,
                               .source = HEED_NO_INPUT,
                               .source_segments = HEED_NO_INPUT},
                     .beside = {.loss = HEED_NO_INPUT}};
    p->nodes.beside = &p->beside;
    if (!heed_objective_pools(of->data->objective))
        p->nodes.targets = &p->targets;
    p->nodes.last = p->last;
    TRY(make_room(p));
    TRY(heed_graph_create(&p->graph, of->parameters, of->threads, HEED_ISA_AUTO));
    if (train && of->config->products == HEED_PRODUCTS_BF16)
        TRY(heed_graph_use_bf16(p->graph));
    if (!train && of->watch.weights)
        heed_graph_watch(p->graph, &of->watch);
    TRY(make_inputs(p));
    make_model(p);
    heed_losses_make(p, train);
    if (train)
        return heed_graph_finish(p->graph, p->loss);
    heed_graph_keep(p->graph, p->scores);
    for (int i = 0; i < p->beside.measures; i++)
        heed_graph_keep(p->graph, p->beside.measure[i].value);
    return heed_graph_finish(p->graph, HEED_NO_INPUT);
}

void heed_pass_free(heed_pass *p)
{
    heed_graph_free(p->graph);
    free(p->room);
}

/* Of a text of so many tokens: what each counts in the vector that stands for it. */
static void fill_weights(const heed_pass *p, int64_t row, int64_t length)
{
    const int64_t context = p->of->model->context, count = length > 0 ? length : 1;
    float *weight = (float *)heed_graph_data(p->graph, p->weights) + row * context;
    const bool last = p->of->config->pooling == HEED_POOL_LAST;
    for (int64_t i = 0; i < context; i++)
        weight[i] = i >= count ? 0.0f : last ? (i == count - 1 ? 1.0f : 0.0f) : 1.0f / (float)count;
}

/* Of a task with parts, which a place is of, `before` places behind its start; else 0 where the text is, 1
 * where padding is. */
static void fill_segments(const heed_pass *p, heed_variable node, int64_t row, int64_t size, int64_t length,
                          int64_t before)
{
    int32_t *segment = (int32_t *)heed_graph_data(p->graph, node) + row * size;
    const heed_data *data = p->of->data;
    for (int64_t i = 0; i < size; i++)
        segment[i] = data->task && data->task->part ? data->task->part(data->arg, before + i)
                                                    : i >= (length > 0 ? length : 1);
}

static void fill_source(const heed_pass *p, int64_t b)
{
    const int64_t size = p->of->model->source_context;
    if (p->nodes.source < 0)
        return;
    memcpy((int32_t *)heed_graph_data(p->graph, p->nodes.source) + b * size, p->example.source,
           (size_t)size * sizeof(int32_t));
    fill_segments(p, p->nodes.source_segments, b, size, p->example.source_length, 0);
}

/* Grey values, or those of each channel, from -1 to 1. */
static void fill_pixels(const heed_pass *p, int64_t row, const int32_t *token)
{
    const heed_image *image = &p->of->model->image;
    const int64_t count = image->height * image->width * image->channels;
    float *pixel = (float *)heed_graph_data(p->graph, p->nodes.pixels) + row * count;
    const float most = (float)(p->of->model->vocabulary > 1 ? p->of->model->vocabulary - 1 : 1);
    for (int64_t i = 0; i < count; i++)
        pixel[i] = 2.0f * (float)token[i] / most - 1.0f;
}

/* Rows of an example lie apart: first those of all examples, then the second ones. */
static void fill_row(const heed_pass *p, int64_t b, int64_t r)
{
    const int64_t context = p->of->model->context, row = r * p->of->config->batch + b;
    const int32_t *token = p->example.token + r * row_size(p);
    if (p->of->model->image.patch)
        fill_pixels(p, row, token);
    else
        memcpy((int32_t *)heed_graph_data(p->graph, p->nodes.tokens) + row * context, token,
               (size_t)context * sizeof *token);
    if (p->weights >= 0)
        fill_weights(p, row, p->of->model->image.patch ? context : p->example.length[r]);
    /* a decoder's own tokens are all of one segment, which is the encoder's text too */
    if (p->nodes.segments >= 0)
        fill_segments(p, p->nodes.segments, row, context,
                      p->of->model->encoder_layers > 0 ? context : p->example.length[r],
                      p->of->model->encoder_layers > 0 ? p->of->data->source_context - 1 : 0);
}

/* A picture of some level of noise, its label (left out in one of ten, so that there is a guess without) and
 * what is noise in it. */
static void fill_noise(const heed_pass *p, bool held_out, uint64_t which, int64_t row)
{
    const heed_image *image = &p->of->model->image;
    const int64_t count = image->height * image->width * image->channels;
    float *pixel = (float *)heed_graph_data(p->graph, p->denoiser.pixels) + row * count,
          *noise = (float *)heed_graph_data(p->graph, p->noise) + row * count;
    uint32_t bits[4];
    const uint64_t stream = which << 1 | held_out;
    heed_philox_at(p->of->data->seed ^ 0x6e6f697365, stream, 0, bits);
    const double level = (double)bits[0] * 0x1p-32, signal = heed_denoiser_signal(level),
                 share = heed_denoiser_noise(level);
    ((int32_t *)heed_graph_data(p->graph, p->denoiser.label))[row] =
        !held_out && bits[1] % 10 == 0 ? (int32_t)p->of->model->vocabulary : p->example.target[0];
    heed_denoiser_level(level, (float *)heed_graph_data(p->graph, p->denoiser.features) +
                                   row * HEED_DENOISER_FEATURES);
    for (int64_t i = 0; i < count; i++) {
        float *at = &pixel[heed_denoiser_place(image, i)];
        noise[i] = heed_normal_at(p->of->data->seed ^ 0x6e6f697365, stream, (uint64_t)i + 1);
        *at = (float)(signal * (double)*at + share * (double)noise[i]);
    }
}

void heed_pass_fill(heed_pass *p, bool held_out, int64_t first, int64_t last)
{
    const heed_data *data = p->of->data;
    const int64_t context = row_size(p), batch = p->of->config->batch, rows = heed_data_rows(data);
    const bool whole = heed_objective_pools(data->objective);
    int32_t *target = heed_graph_data(p->graph, p->targets);
    for (int64_t b = 0; b < batch; b++) {
        const bool there = first + b < last;
        heed_data_example(data, held_out, (uint64_t)(there ? first + b : first), context, &p->example,
                          p->room);
        for (int64_t r = 0; r < rows; r++) {
            fill_row(p, b, r);
            int32_t *to = target + (whole ? b : (r * batch + b) * context);
            for (int64_t i = 0; i < (whole ? 1 : context); i++)
                to[i] = !there ? -1 : p->example.target[r * (whole ? 0 : context) + i];
        }
        if (there && data->objective == HEED_OBJECTIVE_CONTRASTIVE)
            target[b] = (int32_t)b;
        if (data->objective == HEED_OBJECTIVE_DENOISE)
            fill_noise(p, held_out, (uint64_t)(there ? first + b : first), b);
        if (p->numbers >= 0)
            ((float *)heed_graph_data(p->graph, p->numbers))[b] = p->example.number;
        fill_source(p, b);
    }
}

/* chance: of yes */
static void count_yes(heed_pass_counts *counts, double chance, bool yes, bool said)
{
    const int64_t place = (int64_t)(chance * HEED_CHANCES);
    counts->seen[yes][place < HEED_CHANCES ? place : HEED_CHANCES - 1]++;
    counts->both += yes && said;
    counts->either += yes || said;
}

double heed_pass_area(const heed_pass_counts *counts)
{
    double area = 0.0, no = 0.0, yes = 0.0;
    for (int i = 0; i < HEED_CHANCES; i++) {
        area += (double)counts->seen[1][i] * (no + 0.5 * (double)counts->seen[0][i]);
        no += (double)counts->seen[0][i];
        yes += (double)counts->seen[1][i];
    }
    return no > 0.0 && yes > 0.0 ? area / (no * yes) : NAN;
}

static void count_classes(const heed_pass *p, const heed_nn_kernels *kernels, heed_pass_counts *counts)
{
    const heed_nn_node *scores = heed_nn_at(p->graph, p->scores);
    const int64_t classes = heed_nn_last(scores), rows = heed_nn_rows(scores);
    const float *logits = heed_graph_data(p->graph, p->scores);
    const int32_t *target = heed_graph_data(p->graph, p->targets);
    const heed_data *data = p->of->data;
    const int64_t yes = data->task && data->task->yes ? data->task->yes(data->arg) : -1;
    for (int64_t row = 0; row < rows; row++) {
        const float *x = logits + row * classes;
        int64_t best = 0;
        if (target[row] < 0)
            continue;
        for (int64_t i = 1; i < classes; i++)
            best = x[i] > x[best] ? i : best;
        const double sum = (double)kernels->softmax(x, NULL, classes);
        counts->loss += sum - (double)x[target[row]];
        if (yes >= 0)
            count_yes(counts, exp((double)x[yes] - sum), target[row] == yes, best == yes);
        counts->right += best == target[row];
        counts->targets++;
    }
}

static void count_noise(const heed_pass *p, heed_pass_counts *counts)
{
    const float *score = heed_graph_data(p->graph, p->scores), *noise = heed_graph_data(p->graph, p->noise);
    const int32_t *target = heed_graph_data(p->graph, p->targets);
    const int64_t batch = p->of->config->batch, each = heed_nn_at(p->graph, p->scores)->count / batch;
    for (int64_t i = 0; i < batch * each; i++) {
        const double y = (double)noise[i], off = (double)score[i] - y;
        if (target[i / each] < 0)
            continue;
        counts->loss += off * off;
        counts->sum += y;
        counts->squares += y * y;
        counts->targets++;
    }
}

void heed_pass_count(const heed_pass *p, const heed_nn_kernels *kernels, heed_pass_counts *counts)
{
    const float *score = heed_graph_data(p->graph, p->scores);
    const int32_t *target = heed_graph_data(p->graph, p->targets);
    for (int i = 0; i < p->beside.measures; i++)
        counts->measure[i] += (double)*(const float *)heed_graph_data(p->graph, p->beside.measure[i].value);
    counts->batches++;
    if (p->judging == HEED_JUDGE_CLASSES) {
        count_classes(p, kernels, counts);
        return;
    }
    if (p->judging == HEED_JUDGE_NOISE) {
        count_noise(p, counts);
        return;
    }
    for (int64_t b = 0; b < p->of->config->batch; b++) {
        bool asked = false;
        const int64_t each = p->judging == HEED_JUDGE_NUMBERS ? 1 : p->of->model->context;
        for (int64_t i = 0; i < each; i++)
            asked |= target[b * each + i] >= 0;
        if (!asked)
            continue;
        counts->targets++;
        if (p->judging == HEED_JUDGE_NUMBERS) {
            const double y = (double)((const float *)heed_graph_data(p->graph, p->numbers))[b],
                         off = (double)score[b] - y;
            counts->loss += off * off;
            counts->sum += y;
            counts->squares += y * y;
        } else {
            counts->loss += fmax(0.0, -(double)score[b]) + log1p(exp(-fabs((double)score[b])));
            counts->right += score[b] > 0.0f;
        }
    }
}

double heed_pass_accuracy(const heed_pass *p, const heed_pass_counts *counts)
{
    const double n = counts->targets ? (double)counts->targets : NAN;
    if (p->judging == HEED_JUDGE_NUMBERS || p->judging == HEED_JUDGE_NOISE)
        return 1.0 - counts->loss / (counts->squares - counts->sum * counts->sum / n);
    return (double)counts->right / n;
}
