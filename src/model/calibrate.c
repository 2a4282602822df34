/* Tensors of forms, found on a text that the model reads.
 *
 * Two sessions: `made` runs the attention that is calibrated, from tensors that change as they are found; its
 * plans say what queries and keys look like when they are compared. `own` runs the model's own attention. A
 * form that is in force while it is calibrated looks on in `made`, where a layer's tensors are made before
 * that layer attends, from the windows read so far; the others look on in `own`, in an earlier reading.
 */
#include "attend/plan.h"
#include "base/try.h"
#include "model/params.h"
#include "model/session.h"

#include <stdlib.h>
#include <string.h>

enum { WINDOW = 2048, MOST_FORMS = 8 };

/* A form of one layer that makes its tensors. */
typedef struct pupil {
    heed_form_state form; /* with its tensors, those of `params` */
    double *sums;
} pupil;

typedef struct layer_of_pupils {
    pupil pupil[MOST_FORMS];
    int count;
} layer_of_pupils;

typedef struct calibration {
    const heed_model *model;
    const heed_calibration_options *options;
    heed_params *params;
    heed_session *made, *own;
    layer_of_pupils *layer; /* [layers] */
    bool in_force;          /* which pupils look on in this reading */
    int64_t window;         /* its tokens */
    float *query, *key, *value,
        *room;   /* [heads][window][dim], [kv_heads][window][dim], twice; [heads][dim] */
    float *work; /* [kv_heads][work_floats] */
    int64_t work_floats;
    double done, all; /* layers of windows */
} calibration;

/* ---- who is to be taught ---- */

static bool is_there(const layer_of_pupils *layer, const heed_form *form)
{
    for (int i = 0; i < layer->count; i++)
        if (layer->pupil[i].form.form == form)
            return true;
    return false;
}

/* A form of a layer's plan, with tensors of its own in `params`. The session looks at the same memory. */
static heed_status add_pupil(calibration *c, int64_t l, const heed_plan *plan, int p, int f)
{
    layer_of_pupils *layer = &c->layer[l];
    const heed_form_state *form = &plan->pipeline[p].form[f];
    if (layer->count == MOST_FORMS)
        return heed_fail(HEED_UNSUPPORTED, "layer %lld has more than %d forms to calibrate", (long long)l,
                         MOST_FORMS);
    pupil *to = &layer->pupil[layer->count];
    to->form = *form;
    to->sums = calloc((size_t)form->form->calibration->sums(form), sizeof *to->sums);
    if (!to->sums)
        return heed_fail(HEED_NO_MEMORY, "no memory to calibrate %s", form->form->name);
    layer->count++;
    for (int i = 0; form->form->params[i].name; i++) {
        const int slot = plan->pipeline[p].slot[f][i];
        heed_plan_param_info info;
        heed_tensor *tensor;
        TRY(heed_plan_param(plan, slot, &info));
        TRY(heed_params_add(c->params, l, info.name, info.rank, info.shape, &tensor));
        if (!info.required)
            TRY(heed_plan_param_initial(plan, slot, tensor->data));
        to->form.param[i] = tensor->data;
        c->made->layer[l].param[slot] = *tensor;
    }
    return HEED_OK;
}

static heed_status find_pupils(calibration *c)
{
    int64_t found = 0;
    for (int64_t l = 0; l < c->model->config.layers; l++) {
        const heed_plan *plan = c->made->kind[c->made->layer[l].kind].rung[0];
        for (int p = 0; p < plan->pipelines; p++)
            for (int f = 0; f < plan->pipeline[p].forms; f++) {
                const heed_form *form = plan->pipeline[p].form[f].form;
                if (form->calibration && !is_there(&c->layer[l], form))
                    TRY(add_pupil(c, l, plan, p, f));
            }
        found += c->layer[l].count;
    }
    if (found == 0)
        return heed_fail(HEED_UNSUPPORTED, "`%s` has no form that can be calibrated on a text",
                         c->options->attention ? c->options->attention : "");
    return HEED_OK;
}

/* The tokens of a window that the forms of a reading ask for; 0 where none looks on. */
static heed_status choose_window(const calibration *c, int64_t count, int64_t *window)
{
    const heed_form *asks = NULL;
    bool any = false;
    *window = 0;
    for (int64_t l = 0; l < c->model->config.layers; l++)
        for (int i = 0; i < c->layer[l].count; i++) {
            const heed_form_state *form = &c->layer[l].pupil[i].form;
            const heed_calibration *how = form->form->calibration;
            if (how->in_force != c->in_force)
                continue;
            any = true;
            const int64_t here = how->window ? how->window(form) : 0;
            if (here > 0 && *window > 0 && here != *window)
                return heed_fail(HEED_UNSUPPORTED,
                                 "%s takes windows of %lld tokens and %s of %lld: calibrate them one by one",
                                 asks->name, (long long)*window, form->form->name, (long long)here);
            asks = here > 0 ? form->form : asks;
            *window = here > 0 ? here : *window;
        }
    if (!any)
        return HEED_OK;
    if (*window > count)
        return heed_fail(HEED_INVALID, "the text has %lld tokens, %s takes windows of %lld", (long long)count,
                         asks->name, (long long)*window);
    if (*window == 0)
        *window = c->options->window ? c->options->window : WINDOW;
    if (*window > count)
        *window = count;
    if (*window > c->made->context && asks)
        return heed_fail(HEED_INVALID, "%s takes windows of %lld tokens, the model reads %lld here",
                         asks->name, (long long)*window, (long long)c->made->context);
    if (*window > c->made->context)
        *window = c->made->context;
    return HEED_OK;
}

/* ---- looking on ---- */

/* Scores must be what queries and keys give when they are multiplied. */
static heed_status check_plan(const heed_session *made, int64_t l)
{
    const heed_session_kind *kind = &made->kind[made->layer[l].kind];
    for (int p = 0; p < kind->rung[0]->pipelines; p++)
        if (kind->rung[0]->pipeline[p].adjusts > 0 || !kind->prepared)
            return heed_fail(
                HEED_UNSUPPORTED,
                "layer %lld, `%s`: scores are no products of queries and keys, which calibration "
                "needs",
                (long long)l, kind->spec);
    return HEED_OK;
}

/* Rows of the projections, one head's, as they are compared. */
static heed_status prepare(const calibration *c, const heed_plan *plan, int64_t head, bool keys,
                           const float *from, int64_t stride, const int32_t *pos, float *to)
{
    const int64_t dim = c->model->config.head_dim;
    for (int64_t t = 0; t < c->window; t++) {
        memcpy(c->room, from + t * stride, (size_t)dim * sizeof *to);
        const heed_new_keys row = {.kv_head = head,
                                   .count = 1,
                                   .pos = pos + t,
                                   .k = c->room,
                                   .k_stride = dim,
                                   .out = to + t * dim,
                                   .out_stride = dim};
        TRY(keys ? heed_plan_prepare_keys(plan, &row) : heed_plan_prepare_queries(plan, &row));
    }
    return HEED_OK;
}

static heed_status take_rows(const calibration *c, const heed_session *reading, int64_t l)
{
    const heed_config *config = &c->model->config;
    const heed_plan *plan = c->made->kind[c->made->layer[l].kind].rung[0];
    const int64_t dim = config->head_dim, heads = config->heads, groups = config->kv_heads,
                  stride = (heads + 2 * groups) * dim, each = c->window * dim;
    const float *rows = reading->work.qkv;
    for (int64_t h = 0; h < heads; h++)
        TRY(prepare(c, plan, h, false, rows + h * dim, stride, reading->work.position, c->query + h * each));
    for (int64_t g = 0; g < groups; g++) {
        TRY(prepare(c, plan, g, true, rows + (heads + g) * dim, stride, reading->work.position,
                    c->key + g * each));
        for (int64_t t = 0; t < c->window; t++)
            memcpy(c->value + g * each + t * dim, rows + t * stride + (heads + groups + g) * dim,
                   (size_t)dim * sizeof(float));
    }
    return HEED_OK;
}

static void show(const calibration *c, int64_t l, const pupil *one)
{
    const heed_config *config = &c->model->config;
    const int64_t dim = config->head_dim, groups = config->kv_heads, group = config->heads / groups,
                  each = c->window * dim;
#pragma omp parallel for schedule(dynamic, 1) num_threads(c->made->threads)
    for (int64_t g = 0; g < groups; g++) {
        const heed_reach reach = c->made->layer[l].reach[g];
        const heed_shown shown = {.kv_head = (int)g,
                                  .group = (int)group,
                                  .tokens = c->window,
                                  .span = reach.first == 0 && reach.span < c->window ? reach.span : c->window,
                                  .dim = (int)dim,
                                  .value_dim = (int)dim,
                                  .query = c->query + g * group * each,
                                  .key = c->key + g * each,
                                  .value = c->value + g * each};
        one->form.form->calibration->gather(&one->form, &shown, one->sums, c->work + g * c->work_floats);
    }
}

static heed_status settle(const pupil *one)
{
    float *param[HEED_MAX_PARAMS];
    for (int i = 0; i < HEED_MAX_PARAMS; i++)
        param[i] = (float *)(uintptr_t)one->form.param[i]; /* this calibration's own */
    return one->form.form->calibration->settle(&one->form, one->sums, param);
}

static heed_status look(void *context, heed_session *reading, int64_t l, const heed_step *step)
{
    calibration *c = context;
    (void)step;
    bool any = false;
    for (int i = 0; i < c->layer[l].count; i++)
        any |= c->layer[l].pupil[i].form.form->calibration->in_force == c->in_force;
    if (any)
        TRY(take_rows(c, reading, l));
    for (int i = 0; i < c->layer[l].count; i++) {
        const pupil *one = &c->layer[l].pupil[i];
        if (one->form.form->calibration->in_force != c->in_force)
            continue;
        show(c, l, one);
        if (c->in_force)
            TRY(settle(one));
    }
    c->done++;
    if (c->options->progress)
        c->options->progress(c->options->context, c->done / c->all);
    return HEED_OK;
}

/* ---- reading ---- */

static heed_status take_room(calibration *c)
{
    const heed_config *config = &c->model->config;
    const size_t window = (size_t)c->window, dim = (size_t)config->head_dim,
                 groups = (size_t)config->kv_heads;
    c->work_floats = 1;
    for (int64_t l = 0; l < config->layers; l++)
        for (int i = 0; i < c->layer[l].count; i++) {
            const heed_form_state *form = &c->layer[l].pupil[i].form;
            const heed_calibration *how = form->form->calibration;
            const int64_t floats = how->work ? how->work(form, c->window) : 0;
            c->work_floats = floats > c->work_floats ? floats : c->work_floats;
        }
    c->query = calloc((size_t)config->heads * window, dim * sizeof(float));
    c->key = calloc(groups * window, dim * sizeof(float));
    c->value = calloc(groups * window, dim * sizeof(float));
    c->work = calloc(groups, (size_t)c->work_floats * sizeof(float));
    c->room = calloc(dim, sizeof(float));
    if (!c->query || !c->key || !c->value || !c->work || !c->room)
        return heed_fail(HEED_NO_MEMORY, "no memory for windows of %lld tokens", (long long)c->window);
    return HEED_OK;
}

static void free_room(calibration *c)
{
    float **each[] = {&c->query, &c->key, &c->value, &c->work, &c->room};
    for (size_t i = 0; i < sizeof each / sizeof *each; i++) {
        free(*each[i]);
        *each[i] = NULL;
    }
}

static heed_status read_window(heed_session *session, int32_t *tokens, int64_t window)
{
    const heed_tokenizer *tokenizer = heed_model_tokenizer(session->model);
    const heed_special_tokens special =
        tokenizer ? heed_tokenizer_special(tokenizer) : (heed_special_tokens){.bos = -1};
    if (special.add_bos && special.bos >= 0)
        tokens[0] = special.bos;
    TRY(heed_session_cut(session, 0, 0));
    return heed_feed(session, &(heed_feed_item){.tokens = tokens, .count = window}, 1, NULL);
}

static heed_status read_text(calibration *c, heed_session *session, const int32_t *tokens, int64_t count)
{
    int32_t *window = malloc((size_t)c->window * sizeof *window);
    heed_status status = window ? take_room(c) : heed_fail(HEED_NO_MEMORY, "no memory for a window");
    session->onlooker = (heed_onlooker){look, c};
    for (int64_t at = 0; at + c->window <= count && !status; at += c->window) {
        memcpy(window, tokens + at, (size_t)c->window * sizeof *window);
        status = read_window(session, window, c->window);
    }
    session->onlooker = (heed_onlooker){0};
    free(window);
    free_room(c);
    return status;
}

static heed_status new_session(const calibration *c, const char *attention, int64_t context,
                               heed_session **session)
{
    return heed_session_create(session, c->model,
                               &(heed_session_options){.context = context,
                                                       .chunk = context,
                                                       .attention = attention,
                                                       .cache = HEED_F32,
                                                       .cache_given = true,
                                                       .threads = c->options->threads,
                                                       .forms = c->options->forms});
}

static void report(const calibration *c)
{
    for (int64_t l = 0; c->options->found && l < c->model->config.layers; l++)
        for (int i = 0; i < c->layer[l].count; i++) {
            const heed_form_state *form = &c->layer[l].pupil[i].form;
            if (form->form->calibration->measure)
                c->options->found(c->options->context, l, form->form, form->form->calibration->measure(form));
        }
}

/* One reading: of the forms that look on in force, or of the others. */
static heed_status read_once(calibration *c, bool in_force, int64_t window, const int32_t *tokens,
                             int64_t count)
{
    if (window == 0)
        return HEED_OK;
    c->in_force = in_force;
    c->window = window;
    if (!in_force)
        TRY(new_session(c, NULL, window, &c->own));
    TRY(read_text(c, in_force ? c->made : c->own, tokens, count));
    for (int64_t l = 0; l < c->model->config.layers; l++)
        for (int i = 0; i < c->layer[l].count; i++)
            if (c->layer[l].pupil[i].form.form->calibration->in_force == in_force)
                TRY(settle(&c->layer[l].pupil[i]));
    return HEED_OK;
}

static heed_status calibrate(calibration *c, const int32_t *tokens, int64_t count)
{
    const int64_t layers = c->model->config.layers;
    int64_t window[2] = {0};
    if (!c->model->config.causal)
        return heed_fail(HEED_UNSUPPORTED, "%s models read both ways, which calibration does not serve",
                         c->model->config.architecture);
    const int64_t asked = c->options->window > 2 * WINDOW ? c->options->window : 2 * WINDOW,
                  context = asked < c->model->config.context ? asked : c->model->config.context;
    c->layer = calloc((size_t)layers, sizeof *c->layer);
    if (!c->layer)
        return heed_fail(HEED_NO_MEMORY, "no memory to calibrate %lld layers", (long long)layers);
    TRY(new_session(c, c->options->attention, context, &c->made));
    TRY(find_pupils(c));
    for (int64_t l = 0; l < layers; l++)
        if (c->layer[l].count)
            TRY(check_plan(c->made, l));
    for (int in_force = 0; in_force < 2; in_force++) {
        c->in_force = in_force;
        TRY(choose_window(c, count, &window[in_force]));
        if (window[in_force])
            c->all += (double)(count / window[in_force] * layers);
    }
    TRY(read_once(c, false, window[0], tokens, count));
    TRY(read_once(c, true, window[1], tokens, count));
    report(c);
    return HEED_OK;
}

heed_status heed_calibrate(heed_params **params, const heed_model *model,
                           const heed_calibration_options *options, const int32_t *tokens, int64_t count)
{
    if (!params || !model || !options || !tokens || count < 1)
        return heed_fail(HEED_INVALID, "a model, options and at least one token are needed");
    *params = NULL;
    for (int64_t l = 0; l < model->config.layers; l++)
        if (model->carries[l] != HEED_CARRIES_NOTHING)
            return heed_fail(HEED_UNSUPPORTED,
                             "layer %lld compares no queries with keys, so that there is nothing "
                             "to calibrate by",
                             (long long)l);
    if (options->window < 0 || options->window > 1 << 16)
        return heed_fail(HEED_INVALID, "a window of %lld tokens: it may have 1 to 65536",
                         (long long)options->window);
    calibration c = {.model = model, .options = options, .params = calloc(1, sizeof *c.params)};
    const heed_status status =
        c.params ? calibrate(&c, tokens, count) : heed_fail(HEED_NO_MEMORY, "no memory to calibrate");
    heed_session_free(c.made);
    heed_session_free(c.own);
    for (int64_t l = 0; c.layer && l < model->config.layers; l++)
        for (int i = 0; i < c.layer[l].count; i++)
            free(c.layer[l].pupil[i].sums);
    free(c.layer);
    if (status)
        heed_params_free(c.params);
    else
        *params = c.params;
    return status;
}
