/* The learnable tensors of a plan: names, shapes, initial values. */
#include "attend/execute.h"
#include "attend/plan.h"
#include "base/arena.h"
#include "base/try.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* Whether two states are the same use of a form: same form, same arguments; they share parameters then. */
static bool same_form(const heed_form_state *a, const heed_form_state *b)
{
    if (a->form != b->form)
        return false;
    for (int i = 0; i < HEED_MAX_ARGS; i++) {
        const heed_value *x = &a->arg[i], *y = &b->arg[i];
        if (x->number != y->number && !(isnan(x->number) && isnan(y->number)))
            return false;
        for (int s = 0; s < HEED_MAX_SUBARGS; s++)
            if (x->sub[s] != y->sub[s] && !(isnan(x->sub[s]) && isnan(y->sub[s])))
                return false;
    }
    return true;
}

static bool known_size(const heed_form_state *form, const char *name, size_t length, int64_t *size)
{
    const heed_sizes *s = &form->sizes;
    const struct {
        char letter;
        int64_t size;
    } letters[] = {{'H', s->heads},   {'G', s->kv_heads}, {'D', s->dim},  {'E', s->value_dim},
                   {'N', s->queries}, {'M', s->keys},     {'B', s->batch}};
    if (length == 1)
        for (size_t i = 0; i < sizeof letters / sizeof *letters; i++)
            if (letters[i].letter == *name) {
                *size = letters[i].size;
                return true;
            }
    for (int i = 0; form->form->args && form->form->args[i].name; i++)
        if (strlen(form->form->args[i].name) == length &&
            memcmp(form->form->args[i].name, name, length) == 0) {
            *size = (int64_t)form->arg[i].number;
            return true;
        }
    return false;
}

/* One size of a shape: "H", "32", "buckets", "2*max+1", "B|1". */
static bool read_size(const heed_form_state *form, const char *text, size_t length, int64_t *size,
                      bool *free_size)
{
    *free_size = length > 2 && memcmp(text + length - 2, "|1", 2) == 0;
    length -= *free_size ? 2 : 0;
    int64_t factor = 1, more = 0;
    const char *star = memchr(text, '*', length), *plus = memchr(text, '+', length);
    const char *name = star ? star + 1 : text;
    const size_t name_length = (size_t)((plus ? plus : text + length) - name);
    if (star)
        factor = strtoll(text, NULL, 10);
    if (plus)
        more = strtoll(plus + 1, NULL, 10);
    if (*name >= '0' && *name <= '9')
        *size = strtoll(name, NULL, 10);
    else if (!known_size(form, name, name_length, size))
        return false;
    *size = factor * *size + more;
    return *size >= 0;
}

static heed_status read_shape(const heed_form_state *form, const heed_param *param, heed_plan_slot *slot)
{
    const char *at = param->shape;
    slot->floats = 1;
    while (*at) {
        const size_t length = strcspn(at, ",");
        const int d = slot->info.rank;
        if (d == 4 || !read_size(form, at, length, &slot->info.shape[d], &slot->info.free[d]))
            return heed_fail(HEED_INVALID, "the shape \"%s\" of parameter %s cannot be read", param->shape,
                             slot->info.name);
        if (__builtin_mul_overflow(slot->floats, slot->info.shape[d], &slot->floats) ||
            slot->floats > (1LL << 40))
            return heed_fail(HEED_INVALID, "%s would be too large", slot->info.name);
        slot->info.rank++;
        at += length + (at[length] == ',');
    }
    return HEED_OK;
}

static heed_status add_slot(heed_plan *plan, int p, int f, int i)
{
    heed_form_state *form = &plan->pipeline[p].form[f];
    const heed_param *param = &form->form->params[i];
    heed_plan_slot slot = {.pipeline = p, .form = f, .param = i};
    slot.info.required = param->required;
    snprintf(slot.info.name, sizeof slot.info.name, "%s.%s.%s", heed_stage_name(form->form->stage),
             form->form->name, param->name);
    for (int s = 0; s < plan->slots; s++) {
        const heed_plan_slot *other = &plan->slot[s];
        if (strcmp(other->info.name, slot.info.name) != 0)
            continue;
        if (same_form(form, &plan->pipeline[other->pipeline].form[other->form])) {
            plan->pipeline[p].slot[f][i] = (short)s;
            return HEED_OK;
        }
        return heed_fail(HEED_INVALID,
                         "%s=%s stands for different heads with different arguments, so %s would mean "
                         "two tensors",
                         heed_stage_name(form->form->stage), form->form->name, slot.info.name);
    }
    TRY(read_shape(form, param, &slot));
    memcpy(form->shape[i], (int64_t[]){1, 1, 1, 1}, sizeof form->shape[i]);
    memcpy(form->shape[i], slot.info.shape, (size_t)slot.info.rank * sizeof(int64_t));
    if (!param->required) {
        slot.initial = heed_allocate((size_t)(slot.floats ? slot.floats : 1), sizeof(float));
        if (!slot.initial)
            return heed_fail(HEED_NO_MEMORY, "no memory for %s", slot.info.name);
        if (param->fill)
            param->fill(form, slot.initial);
        else
            for (int64_t n = 0; n < slot.floats; n++)
                slot.initial[n] = param->initial;
    }
    heed_plan_slot *grown = realloc(plan->slot, (size_t)(plan->slots + 1) * sizeof *grown);
    if (!grown) {
        free(slot.initial);
        return heed_fail(HEED_NO_MEMORY, "no memory for the list of parameters");
    }
    slot.at = plan->slot_floats;
    plan->slot_floats += slot.floats;
    plan->pipeline[p].slot[f][i] = (short)plan->slots;
    plan->slot = grown;
    plan->slot[plan->slots++] = slot;
    return HEED_OK;
}

heed_status heed_list_params(heed_plan *plan)
{
    for (int p = 0; p < plan->pipelines; p++)
        for (int f = 0; f < plan->pipeline[p].forms; f++) {
            const heed_param *params = plan->pipeline[p].form[f].form->params;
            for (int i = 0; params && params[i].name; i++)
                TRY(add_slot(plan, p, f, i));
        }
    return HEED_OK;
}

int heed_plan_params(const heed_plan *plan)
{
    return plan->slots;
}

static heed_status check_slot(const heed_plan *plan, int i)
{
    if (i < 0 || i >= plan->slots)
        return heed_fail(HEED_INVALID, "parameter %d does not exist, the plan has %d", i, plan->slots);
    return HEED_OK;
}

heed_status heed_plan_param(const heed_plan *plan, int i, heed_plan_param_info *info)
{
    TRY(check_slot(plan, i));
    *info = plan->slot[i].info;
    return HEED_OK;
}

heed_status heed_plan_param_initial(const heed_plan *plan, int i, float *values)
{
    TRY(check_slot(plan, i));
    const heed_plan_slot *slot = &plan->slot[i];
    if (!slot->initial)
        return heed_fail(HEED_INVALID, "%s is required and has no initial value", slot->info.name);
    memcpy(values, slot->initial, (size_t)slot->floats * sizeof(float));
    return HEED_OK;
}
