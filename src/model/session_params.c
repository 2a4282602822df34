/* Learnt tensors that come beside a model: which belong to which layer's plans. */
#include "model/session_params.h"
#include "attend/plan.h"
#include "attend/spec_reader.h"
#include "base/try.h"
#include "model/params.h"

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* The name of a form's parameter as plans write it. */
static void write_name(const heed_form *form, const heed_param *param, char *text, size_t size)
{
    snprintf(text, size, "%s.%s.%s", heed_stage_name(form->stage), form->name, param->name);
}

typedef struct search {
    const char *name;
    char nearest[96]; /* of all that there are */
    int distance;
} search;

static void compare(void *context, const heed_form *form)
{
    search *s = context;
    for (int i = 0; form->params && form->params[i].name; i++) {
        char text[sizeof s->nearest];
        heed_names one;
        write_name(form, &form->params[i], text, sizeof text);
        heed_names_start(&one, (heed_word){HEED_WORD_NAME, s->name, (int)strnlen(s->name, 100)});
        heed_names_add(&one, text);
        if (one.distance >= s->distance && strcmp(text, s->name) != 0)
            continue;
        s->distance = strcmp(text, s->name) != 0 ? one.distance : -1;
        memcpy(s->nearest, text, sizeof text);
    }
}

static heed_status check_name(const heed_param_tensor *tensor, const heed_form *const *forms)
{
    search s = {.name = tensor->of_plan, .distance = INT_MAX};
    heed_forms_visit(compare, &s);
    for (int i = 0; forms && forms[i]; i++)
        compare(&s, forms[i]);
    if (!strcmp(s.name, s.nearest))
        return HEED_OK;
    return heed_fail(HEED_INVALID, "tensor %s: no form has such a parameter; the nearest is '%s'",
                     heed_quoted(tensor->name, (int)strnlen(tensor->name, 100)).text, s.nearest);
}

/* Tensors that the user gives go before those beside the model. */
static heed_status add_given(heed_session *session, const char *path)
{
    heed_params *given, *own = session->params;
    TRY(heed_params_open(&given, path));
    session->params = given;
    if (!own)
        return HEED_OK;
    heed_param_tensor *all =
        realloc(given->tensor, (size_t)(given->count + own->count + 1) * sizeof *given->tensor);
    if (all) {
        memcpy(all + given->count, own->tensor, (size_t)own->count * sizeof *all);
        given->tensor = all;
        given->count += own->count;
        own->count = 0; /* theirs now */
    }
    heed_params_free(own);
    return all ? HEED_OK : heed_fail(HEED_NO_MEMORY, "%s: no memory for its tensors", path);
}

heed_status heed_session_open_params(heed_session *session, const heed_session_options *options)
{
    const int64_t layers = session->model->config.layers;
    if (*session->model->config.attention)
        TRY(heed_params_beside(&session->params, heed_model_file_path(session->model->file)));
    if (options->params)
        TRY(add_given(session, options->params));
    if (!session->params)
        return HEED_OK;
    for (int i = 0; i < session->params->count; i++) {
        const heed_param_tensor *tensor = &session->params->tensor[i];
        if (tensor->layer >= layers)
            return heed_fail(HEED_INVALID, "tensor %s: the model has %lld layers, 0 to %lld",
                             heed_quoted(tensor->name, (int)strnlen(tensor->name, 100)).text,
                             (long long)layers, (long long)layers - 1);
        TRY(check_name(tensor, options->forms));
    }
    return HEED_OK;
}

static void print_shape(const int64_t *shape, int rank, char *text, size_t size)
{
    text[0] = 0;
    for (int d = 0; d < rank; d++) {
        const size_t used = strlen(text);
        snprintf(text + used, size - used, "%s%lld", d ? ", " : "", (long long)shape[d]);
    }
}

static heed_status check_shape(const heed_param_tensor *found, const heed_plan_param_info *info)
{
    bool fits = found->tensor.rank == info->rank;
    for (int d = 0; fits && d < info->rank; d++)
        fits = found->tensor.shape[d] == info->shape[d] || (info->free[d] && found->tensor.shape[d] == 1);
    if (fits)
        return HEED_OK;
    char have[100], need[100];
    print_shape(found->tensor.shape, found->tensor.rank, have, sizeof have);
    print_shape(info->shape, info->rank, need, sizeof need);
    return heed_fail(HEED_INVALID, "tensor %s is [%s], the attention of the model's layer %lld takes [%s]",
                     found->name, have, (long long)found->layer, need);
}

/* A layer that carries something along has no plan. */
static int count_of(const heed_plan *plan)
{
    return plan ? heed_plan_params(plan) : 0;
}

heed_status heed_session_bind_params(heed_session *session, int64_t l)
{
    heed_session_layer *layer = &session->layer[l];
    const heed_plan *plan = session->kind[layer->kind].rung[0];
    const int count = count_of(plan);
    if (count == 0)
        return HEED_OK;
    layer->param = calloc((size_t)count, sizeof *layer->param);
    if (!layer->param)
        return heed_fail(HEED_NO_MEMORY, "no memory for a list of %d tensors", count);
    for (int i = 0; i < count; i++) {
        heed_plan_param_info info;
        TRY(heed_plan_param(plan, i, &info));
        const heed_param_tensor *found = heed_params_find(session->params, l, info.name);
        if (found) {
            TRY(check_shape(found, &info));
            layer->param[i] = found->tensor;
        } else if (info.required) {
            return heed_fail(HEED_UNSUPPORTED,
                             "`%s` needs the learnt tensor %s, which the model does not have", plan->spec,
                             info.name);
        }
    }
    return HEED_OK;
}

/* Layers whose attention has the tensor without a value that was found for it; their number, and in *all how
 * many have it at all. */
static int64_t lacking(const heed_session *session, const char *name, bool *lacks, int64_t *all)
{
    int64_t count = 0;
    *all = 0;
    for (int64_t l = 0; l < session->model->config.layers; l++) {
        const heed_plan *plan = session->kind[session->layer[l].kind].rung[0];
        heed_plan_param_info info;
        lacks[l] = false;
        for (int i = 0; i < count_of(plan); i++)
            if (!heed_plan_param(plan, i, &info) && !strcmp(info.name, name)) {
                lacks[l] = !session->layer[l].param[i].data;
                (*all)++;
            }
        count += lacks[l];
    }
    return count;
}

static void put_layers(heed_out *out, const bool *lacks, int64_t layers)
{
    const char *before = " (layers ";
    for (int64_t l = 0; l < layers; l++) {
        if (!lacks[l])
            continue;
        heed_put(out, before);
        heed_put_number(out, (double)l);
        before = ", ";
    }
    heed_put(out, ")");
}

/* Whether a kind before `kind` has a parameter of that name. */
static bool known(const heed_session *session, int kind, const char *name)
{
    for (int k = 0; k < kind; k++) {
        const heed_plan *plan = session->kind[k].rung[0];
        heed_plan_param_info info;
        for (int i = 0; i < count_of(plan); i++)
            if (!heed_plan_param(plan, i, &info) && !strcmp(info.name, name))
                return true;
    }
    return false;
}

size_t heed_session_untrained(const heed_session *session, char *text, size_t size)
{
    const int64_t layers = session->model->config.layers;
    heed_out out = {text, size, 0};
    bool *lacks = calloc((size_t)layers, sizeof *lacks);
    if (size)
        text[0] = 0;
    for (int k = 0; lacks && k < session->kinds; k++) {
        const heed_plan *plan = session->kind[k].rung[0];
        heed_plan_param_info info;
        for (int i = 0; i < count_of(plan); i++) {
            int64_t all = 0;
            if (heed_plan_param(plan, i, &info) || known(session, k, info.name) ||
                lacking(session, info.name, lacks, &all) == 0)
                continue;
            heed_put(&out, out.length ? ", " : "");
            heed_put(&out, info.name);
            if (lacking(session, info.name, lacks, &all) < all)
                put_layers(&out, lacks, layers);
        }
    }
    free(lacks);
    return out.length;
}
