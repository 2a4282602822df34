#include "train/sampler.h"
#include "base/try.h"
#include "nn/graph.h"
#include "train/synthetic.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { GRAPHS = 3 };
static const double most_level = 0.98; /* at 1 nothing of the picture would be left to divide by */

/* A graph of one kind of step. */
typedef struct step_graph {
    heed_graph *graph;
    heed_denoiser at;
    int64_t rows; /* twice the pictures where words are guided by */
    double flops;
} step_graph;

typedef struct sampler {
    const heed_sampling_job *job;
    heed_sampled *out;
    int64_t batch, numbers, middle; /* of a picture; of a layer's residual a picture */
    step_graph graph[GRAPHS];       /* by heed_denoiser_part */
    heed_transformer model[GRAPHS];
    float *x, *before;  /* [batch, numbers]; residual of the layer that decides, as it was computed before */
    float *cross;       /* [layers, 2 batch, middle] as it was in the step before */
    float *text;        /* [layers, batch, middle] mean of both halves: tgate */
    float *held;        /* [2, layers, 2 batch, middle] attention and rest: adacache */
    int64_t last, next; /* step of the last computation, and of the next */
    double motion;
} sampler;

static heed_status make_graph(sampler *s, heed_denoiser_part part, int64_t rows)
{
    step_graph *g = &s->graph[part];
    s->model[part] = *s->job->model;
    s->model[part].batch = g->rows = rows;
    TRY(heed_graph_create(&g->graph, s->job->parameters, s->job->threads, HEED_ISA_AUTO));
    heed_denoiser_make(g->graph, &s->model[part], part, &g->at);
    heed_graph_keep(g->graph, g->at.noise);
    for (int64_t i = 0; i < s->job->model->layers && part == HEED_DENOISE_ALL; i++) {
        heed_graph_keep(g->graph, g->at.attention[i]);
        heed_graph_keep(g->graph, g->at.cross[i]);
        heed_graph_keep(g->graph, g->at.rest[i]);
    }
    TRY(heed_graph_finish(g->graph, HEED_NO_INPUT));
    g->flops = heed_graph_flops(g->graph);
    return HEED_OK;
}

static float *data(const step_graph *g, heed_variable node)
{
    return heed_graph_data(g->graph, node);
}

/* Pictures, once or twice, with their level; words where the step has them. */
static void fill(const sampler *s, const step_graph *g, double level)
{
    for (int64_t row = 0; row < g->rows; row++) {
        memcpy(data(g, g->at.pixels) + row * s->numbers, s->x + row % s->batch * s->numbers,
               (size_t)s->numbers * sizeof(float));
        heed_denoiser_level(level, data(g, g->at.features) + row * HEED_DENOISER_FEATURES);
        if (g == &s->graph[HEED_DENOISE_ALL])
            ((int32_t *)heed_graph_data(g->graph, g->at.label))[row] =
                row < s->batch ? s->job->label[row] : (int32_t)s->job->model->vocabulary;
    }
}

static double distance(const float *a, const float *b, int64_t count, double *size)
{
    double apart = 0.0;
    *size = 0.0;
    for (int64_t i = 0; i < count; i++) {
        apart += ((double)a[i] - (double)b[i]) * ((double)a[i] - (double)b[i]);
        *size += (double)b[i] * (double)b[i];
    }
    *size = sqrt(*size);
    return sqrt(apart);
}

/* How much cross-attention changed since the step before, the mean over layers; and what it is now. */
static void watch_cross(sampler *s, int64_t step)
{
    const step_graph *g = &s->graph[HEED_DENOISE_ALL];
    const int64_t count = g->rows * s->middle, layers = s->job->model->layers;
    double sum = 0.0;
    for (int64_t i = 0; i < layers; i++) {
        double size;
        float *before = s->cross + i * count;
        const float *now = data(g, g->at.cross[i]);
        const double apart = distance(now, before, count, &size);
        sum += size > 0.0 ? apart / size : 0.0;
        memcpy(before, now, (size_t)count * sizeof *before);
        for (int64_t j = 0; j < s->batch * s->middle; j++)
            s->text[i * s->batch * s->middle + j] = 0.5f * (now[j] + now[j + s->batch * s->middle]);
    }
    s->out->change[step] = step > 0 ? sum / (double)layers : NAN;
    s->out->cross_calls += layers;
}

static void hold(sampler *s)
{
    const step_graph *g = &s->graph[HEED_DENOISE_ALL];
    const int64_t count = g->rows * s->middle, layers = s->job->model->layers;
    for (int64_t i = 0; i < layers; i++) {
        memcpy(s->held + i * count, data(g, g->at.attention[i]), (size_t)count * sizeof(float));
        memcpy(s->held + (layers + i) * count, data(g, g->at.rest[i]), (size_t)count * sizeof(float));
    }
}

/* After a computation: when the next one is. */
static void decide(sampler *s, int64_t step)
{
    const heed_reuse *reuse = &s->job->reuse;
    const int64_t steps = s->job->steps, count = s->graph[HEED_DENOISE_ALL].rows * s->middle;
    const step_graph *g = &s->graph[HEED_DENOISE_ALL];
    const float *p = data(g, g->at.attention[s->job->model->layers / 2]);
    int64_t after = 1;
    if (reuse->kind == HEED_REUSE_FIXED)
        after = reuse->every;
    if (reuse->kind == HEED_REUSE_ADACACHE && step > 0)
        after = heed_adacache_next(reuse, s->before, p, g->rows, s->middle, s->job->frames, step - s->last,
                                   10 * step >= steps && 10 * step <= 9 * steps, &s->motion);
    memcpy(s->before, p, (size_t)count * sizeof *p);
    s->last = step;
    s->next = step + (step < 1 ? 1 : after);
    if (s->next > steps - 2 && step < steps - 2)
        s->next = steps - 2; /* the first and the last two are always computed */
    if (step >= steps - 2)
        s->next = step + 1;
}

/* What is noise in each picture, in the order of patches: from the halves with and without words. */
static void guide(const sampler *s, const step_graph *g, float *noise)
{
    const float *with = data(g, g->at.noise), *without = with + s->batch * s->numbers;
    const float w = (float)s->job->guidance;
    for (int64_t i = 0; i < s->batch * s->numbers; i++)
        noise[i] = g->rows > s->batch ? without[i] + w * (with[i] - without[i]) : with[i];
}

static heed_status run_part(sampler *s, heed_denoiser_part part, double level)
{
    const step_graph *g = &s->graph[part];
    const int64_t layers = s->job->model->layers, count = g->rows * s->middle;
    fill(s, g, level);
    for (int64_t i = 0; i < layers; i++) {
        if (part == HEED_DENOISE_NO_TEXT)
            memcpy(data(g, g->at.cross[i]), s->text + i * count, (size_t)count * sizeof(float));
        if (part == HEED_DENOISE_HELD) {
            memcpy(data(g, g->at.attention[i]), s->held + i * count, (size_t)count * sizeof(float));
            memcpy(data(g, g->at.rest[i]), s->held + (layers + i) * count, (size_t)count * sizeof(float));
        }
    }
    s->out->flops += g->flops / (double)s->batch;
    return heed_graph_forward(g->graph);
}

/* One step; which graph it takes depends on what may be reused. */
static heed_status predict(sampler *s, int64_t step, double level, float *noise)
{
    const heed_reuse *reuse = &s->job->reuse;
    const bool carries = reuse->kind == HEED_REUSE_ADACACHE || reuse->kind == HEED_REUSE_FIXED;
    const heed_denoiser_part part = reuse->kind == HEED_REUSE_TGATE && step >= s->out->until
                                        ? HEED_DENOISE_NO_TEXT
                                    : carries && step < s->next ? HEED_DENOISE_HELD
                                                                : HEED_DENOISE_ALL;
    TRY(run_part(s, part, level));
    guide(s, &s->graph[part], noise);
    s->out->change[step] = NAN;
    s->out->computed += part != HEED_DENOISE_HELD;
    if (part != HEED_DENOISE_ALL)
        return HEED_OK;
    watch_cross(s, step);
    if (carries) {
        hold(s);
        decide(s, step);
    }
    if (reuse->kind == HEED_REUSE_TGATE && !reuse->m && step > 0 && s->out->change[step] < reuse->threshold)
        s->out->until = step + 1;
    return HEED_OK;
}

/* Song et al.: DDIM, 2021, without new noise. */
static void advance(sampler *s, const float *noise, double level, double later)
{
    const double a = heed_denoiser_signal(level), b = heed_denoiser_noise(level);
    for (int64_t row = 0; row < s->batch; row++)
        for (int64_t i = 0; i < s->numbers; i++) {
            float *x = &s->x[row * s->numbers + heed_denoiser_place(&s->job->model->image, i)];
            const double e = (double)noise[row * s->numbers + i], clean = ((double)*x - b * e) / a,
                         kept = clean < -1.0  ? -1.0
                                : clean > 1.0 ? 1.0
                                              : clean;
            *x = (float)(heed_denoiser_signal(later) * kept + heed_denoiser_noise(later) * e);
        }
}

static heed_status make(sampler *s)
{
    const heed_sampling_job *job = s->job;
    const heed_image *image = &job->model->image;
    const int64_t layers = job->model->layers;
    s->batch = job->model->batch;
    s->numbers = image->height * image->width * image->channels;
    s->middle = job->model->context * job->model->width;
    s->out->until = job->reuse.kind == HEED_REUSE_TGATE && job->reuse.m ? job->reuse.m : job->steps;
    s->motion = NAN;
    const size_t rows = (size_t)(s->batch * s->middle);
    s->x = calloc((size_t)(s->batch * s->numbers), sizeof *s->x);
    s->before = calloc(2 * rows, sizeof *s->before);
    s->cross = calloc((size_t)layers * 2 * rows, sizeof *s->cross);
    s->text = calloc((size_t)layers * rows, sizeof *s->text);
    s->held = calloc((size_t)layers * 4 * rows, sizeof *s->held);
    s->out->change = calloc((size_t)job->steps, sizeof *s->out->change);
    if (!s->x || !s->before || !s->cross || !s->text || !s->held || !s->out->change)
        return heed_fail(HEED_NO_MEMORY, "no memory for %lld pictures", (long long)s->batch);
    TRY(make_graph(s, HEED_DENOISE_ALL, 2 * s->batch));
    if (job->reuse.kind == HEED_REUSE_TGATE)
        TRY(make_graph(s, HEED_DENOISE_NO_TEXT, s->batch));
    if (job->reuse.kind == HEED_REUSE_ADACACHE || job->reuse.kind == HEED_REUSE_FIXED)
        TRY(make_graph(s, HEED_DENOISE_HELD, 2 * s->batch));
    for (int64_t i = 0; i < s->batch * s->numbers; i++)
        s->x[i] = heed_normal_at(job->seed, (uint64_t)(i / s->numbers), (uint64_t)(i % s->numbers));
    return HEED_OK;
}

static heed_status run(sampler *s)
{
    const int64_t steps = s->job->steps;
    float *noise = malloc((size_t)(s->batch * s->numbers) * sizeof *noise);
    heed_status status = noise ? HEED_OK : heed_fail(HEED_NO_MEMORY, "no memory for noise");
    for (int64_t step = 0; step < steps && !status; step++) {
        const double level = most_level * (double)(steps - step) / (double)steps,
                     later = most_level * (double)(steps - step - 1) / (double)steps;
        status = predict(s, step, level, noise);
        if (!status)
            advance(s, noise, level, later);
    }
    free(noise);
    return status;
}

heed_status heed_sample_pictures(const heed_sampling_job *job, heed_sampled *out)
{
    sampler s = {.job = job, .out = out};
    *out = (heed_sampled){.pixels = NULL};
    if (job->steps < 1 || job->steps > HEED_SAMPLER_STEPS || job->frames < 1 || job->reuse.m > job->steps)
        return heed_fail(HEED_INVALID, "1 to %d steps are possible, and no step behind the last",
                         HEED_SAMPLER_STEPS);
    heed_status status = make(&s);
    if (!status)
        status = run(&s);
    for (int i = 0; i < GRAPHS; i++)
        heed_graph_free(s.graph[i].graph);
    out->pixels = s.x;
    free(s.before);
    free(s.cross);
    free(s.text);
    free(s.held);
    if (status)
        heed_sampled_free(out);
    return status;
}

void heed_sampled_free(heed_sampled *out)
{
    free(out->pixels);
    free(out->change);
    *out = (heed_sampled){.pixels = NULL};
}
