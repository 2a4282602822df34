/* Executing a plan: checks the tensors, lays positions and parameters into scratch, and hands over to the
 * kernels. */
#include "attend/execute.h"
#include "attend/memory.h"
#include "attend/place.h"
#include "attend/summaries.h"
#include "base/try.h"
#include <math.h>
#include <string.h>

size_t heed_run_tables(const heed_plan *plan)
{
    return heed_take_setup(plan, NULL).arena.used;
}

static heed_status check_shape(const char *name, const heed_tensor *tensor, heed_type type,
                               const int64_t *shape)
{
    if (!tensor->data) {
        for (int d = 0; d < 4; d++)
            if (shape[d] == 0)
                return HEED_OK;
        return heed_fail(HEED_INVALID, "%s is missing", name);
    }
    if (tensor->type != type)
        return heed_fail(HEED_INVALID, "%s is %s, the plan was made for %s", name,
                         heed_type_name(tensor->type), heed_type_name(type));
    if (tensor->rank != 4)
        return heed_fail(HEED_INVALID, "%s has %d dimensions, it needs 4", name, tensor->rank);
    for (int d = 0; d < 4; d++)
        if (shape[d] >= 0 && tensor->shape[d] != shape[d])
            return heed_fail(HEED_INVALID, "%s has %lld entries in dimension %d, the plan was made for %lld",
                             name, (long long)tensor->shape[d], d, (long long)shape[d]);
    return HEED_OK;
}

static heed_status check_inputs(const heed_plan *plan, const heed_tensor *q, const heed_tensor *k,
                                const heed_tensor *v)
{
    const heed_problem *p = &plan->problem;
    const bool paged = p->with & HEED_WITH_PAGES;
    const int64_t first = paged ? -1 : p->batch, rows = paged ? p->page : p->keys;
    const int64_t heads = paged && heed_keys_by_kv_head(plan) ? 1 : p->kv_heads;
    TRY(check_shape("q", q, p->q_type, (int64_t[]){p->batch, p->heads, p->queries, p->dim}));
    TRY(check_shape("k", k, p->k_type, (int64_t[]){first, heads, rows, p->dim}));
    TRY(check_shape("v", v, p->v_type, (int64_t[]){first, heads, rows, p->value_dim}));
    return HEED_OK;
}

static heed_status bind_segments(heed_run *run, const heed_extra *extra)
{
    const heed_problem *p = &run->plan->problem;
    if (!(p->with & HEED_WITH_SEGMENTS))
        return HEED_OK;
    const heed_tensor *q = &extra->q_segment, *k = &extra->k_segment;
    if (!q->data || !k->data)
        return heed_fail(HEED_INVALID, "%s is missing", q->data ? "k_segment" : "q_segment");
    TRY(heed_check_list("q_segment", q, p->batch, p->queries, true));
    TRY(heed_check_list("k_segment", k, p->batch, p->keys, true));
    const heed_tensor *both[] = {q, k};
    for (int i = 0; i < 2; i++)
        if (both[i]->stride[both[i]->rank - 1] != sizeof(int32_t))
            return heed_fail(HEED_INVALID, "%s must be contiguous in its last dimension",
                             i ? "k_segment" : "q_segment");
    heed_inputs *inputs = run->inputs;
    inputs->query_segment = q->data;
    inputs->key_segment = k->data;
    inputs->query_segment_stride =
        q->rank == 2 && q->shape[0] > 1 ? q->stride[0] / (int64_t)sizeof(int32_t) : 0;
    inputs->key_segment_stride =
        k->rank == 2 && k->shape[0] > 1 ? k->stride[0] / (int64_t)sizeof(int32_t) : 0;
    return HEED_OK;
}

static heed_status bind_mask(heed_run *run, const heed_extra *extra)
{
    const heed_problem *p = &run->plan->problem;
    if (!(p->with & HEED_WITH_MASK))
        return HEED_OK;
    const heed_tensor *mask = &extra->mask;
    if (!mask->data)
        return heed_fail(HEED_INVALID, "mask is missing");
    if (mask->type != HEED_U8)
        return heed_fail(HEED_INVALID, "mask is %s, it must be u8", heed_type_name(mask->type));
    const int r = mask->rank;
    const bool pairs = r >= 2 && mask->shape[r - 2] == p->queries && mask->shape[r - 1] == p->keys;
    const bool batch = r == 3 ? mask->shape[0] == p->batch || mask->shape[0] == 1
                              : r == 2 || mask->shape[0] == p->batch || mask->shape[0] == 1;
    const bool heads = r != 4 || mask->shape[1] == p->heads || mask->shape[1] == 1;
    if (!pairs || !batch || !heads || mask->stride[r - 1] != 1)
        return heed_fail(HEED_INVALID,
                         "mask must be [%lld, %lld], with the batch in front, or [batch or 1, heads or 1] "
                         "in front, its last dimension contiguous",
                         (long long)p->queries, (long long)p->keys);
    run->inputs->mask = mask->data;
    run->inputs->mask_row_stride = mask->stride[r - 2];
    run->inputs->mask_head_stride = r == 4 && mask->shape[1] > 1 ? mask->stride[1] : 0;
    run->inputs->mask_batch_stride = r >= 3 && mask->shape[0] > 1 ? mask->stride[0] : 0;
    return HEED_OK;
}

static heed_status check_page_shapes(const heed_run *run, const heed_tensor *table)
{
    const heed_problem *p = &run->plan->problem;
    const bool by_head = heed_keys_by_kv_head(run->plan);
    const int64_t pages = (p->keys + p->page - 1) / p->page;
    const int last = by_head ? 2 : 1;
    if (!table->data || table->type != HEED_I32 || table->rank != last + 1 || table->shape[0] != p->batch ||
        (by_head && table->shape[1] != p->kv_heads) || table->shape[last] < pages) {
        char heads[32] = "";
        if (by_head)
            snprintf(heads, sizeof heads, "%lld, ", (long long)p->kv_heads);
        return heed_fail(HEED_INVALID, "page_table must be i32 [%lld, %sat least %lld]", (long long)p->batch,
                         heads, (long long)pages);
    }
    if (run->k.shape[0] != run->v.shape[0])
        return heed_fail(HEED_INVALID, "k has %lld pages, v has %lld", (long long)run->k.shape[0],
                         (long long)run->v.shape[0]);
    return HEED_OK;
}

static heed_status bind_grades(heed_run *run, const heed_extra *extra)
{
    const heed_problem *p = &run->plan->problem;
    if (p->grades > 0 && !extra->grade)
        return heed_fail(HEED_INVALID, "the plan was made for %d grades of pages more, which are missing",
                         p->grades);
    for (int g = 0; g < p->grades; g++) {
        const heed_grade *given = &extra->grade[g];
        const int64_t heads = heed_keys_by_kv_head(run->plan) ? 1 : p->kv_heads;
        TRY(check_shape("k of a grade", &given->k, p->grade[g].k, (int64_t[]){-1, heads, p->page, p->dim}));
        TRY(check_shape("v of a grade", &given->v, p->grade[g].v,
                        (int64_t[]){given->k.shape[0], heads, p->page, p->value_dim}));
        run->grade[g] = *given;
    }
    return HEED_OK;
}

/* Whether an entry of a page table names a page that is there. */
static heed_status check_page(const heed_run *run, int64_t batch, int64_t i, int32_t entry)
{
    const int grades = run->plan->problem.grades;
    int64_t page = entry;
    const heed_tensor *pool = &run->k;
    if (entry >= 0 && grades > 0 && entry >> HEED_GRADE_SHIFT <= grades)
        pool = heed_pool_of(run, &run->k, entry, &page);
    if (page < 0 || page >= pool->shape[0])
        return heed_fail(HEED_INVALID, "page_table[%lld, %lld] is %d, there are %lld pages", (long long)batch,
                         (long long)i, (int)entry, (long long)pool->shape[0]);
    return HEED_OK;
}

static heed_status bind_pages(heed_run *run, const heed_extra *extra)
{
    const heed_problem *p = &run->plan->problem;
    if (!(p->with & HEED_WITH_PAGES))
        return HEED_OK;
    const heed_tensor *table = &extra->page_table;
    const bool by_head = heed_keys_by_kv_head(run->plan);
    TRY(check_page_shapes(run, table));
    TRY(bind_grades(run, extra));
    for (int64_t n = 0; n < p->batch * (by_head ? p->kv_heads : 1); n++) {
        const int64_t b = n % p->batch, g = n / p->batch;
        for (int64_t i = 0; i * p->page < heed_key_count(run, b, g); i++)
            TRY(check_page(run, b, i, heed_list_entry(table, b, g, i)));
    }
    run->page_table = table->data;
    run->page_step[0] = table->stride[0];
    run->page_step[1] = by_head ? table->stride[1] : 0;
    run->page_step[2] = table->stride[table->rank - 1];
    if (by_head) /* a page is of one kv head */
        run->k.stride[1] = run->v.stride[1] = 0;
    for (int g = 0; by_head && g < p->grades; g++)
        run->grade[g].k.stride[1] = run->grade[g].v.stride[1] = 0;
    return HEED_OK;
}

/* Masses of the keys that exist: a mass of 0 or below has no logarithm. */
static heed_status check_masses(const heed_run *run, int64_t batch, int64_t kv_head)
{
    const float *mass = heed_masses(run, batch, kv_head);
    for (int64_t j = 0; j < heed_key_count(run, batch, kv_head); j++)
        if (!(mass[j] > 0.0f && mass[j] < INFINITY))
            return heed_fail(HEED_INVALID, "mass[%lld] is %g, it must be a number above 0", (long long)j,
                             (double)mass[j]);
    return HEED_OK;
}

static heed_status bind_mass(heed_run *run, const heed_extra *extra)
{
    const heed_problem *p = &run->plan->problem;
    const heed_tensor *mass = &extra->mass;
    const bool by_head = heed_keys_by_kv_head(run->plan);
    if (!mass->data)
        return HEED_OK;
    if (!(p->with & HEED_WITH_MASS))
        return heed_fail(HEED_INVALID, "mass is given, but the plan was made without HEED_WITH_MASS");
    const int last = by_head ? 2 : 1;
    if (mass->type != HEED_F32 || mass->rank != last + 1 || mass->shape[0] != p->batch ||
        (by_head && mass->shape[1] != p->kv_heads) || mass->shape[last] != p->keys ||
        mass->stride[last] != sizeof(float))
        return heed_fail(HEED_INVALID, "mass must be f32 [%lld, %s%lld], its last dimension contiguous",
                         (long long)p->batch, by_head ? "kv heads, " : "", (long long)p->keys);
    run->mass = mass->data;
    run->mass_step[0] = mass->stride[0];
    run->mass_step[1] = by_head ? mass->stride[1] : 0;
    for (int64_t n = 0; n < p->batch * (by_head ? p->kv_heads : 1); n++)
        TRY(check_masses(run, n % p->batch, n / p->batch));
    return HEED_OK;
}

/* What kv heads share of the inputs. */
static void share_inputs(heed_run *run)
{
    const int64_t kinds = heed_keys_by_kv_head(run->plan) ? run->plan->problem.kv_heads : 1;
    for (int64_t g = 1; g < kinds; g++) {
        const int32_t *end = run->inputs[g].key_end, *count = run->inputs[g].key_count;
        run->inputs[g] = run->inputs[0];
        run->inputs[g].key_end = end;
        run->inputs[g].key_count = count;
    }
}

/* Points every form at its parameters: given ones, else initial values. */
static heed_status bind_params(heed_run *run, const heed_extra *extra)
{
    const heed_plan *plan = run->plan;
    for (int s = 0; s < plan->slots; s++) {
        const heed_plan_slot *slot = &plan->slot[s];
        const heed_tensor *given = extra->params ? &extra->params[s] : NULL;
        int64_t shape[4] = {1, 1, 1, 1};
        const float *values = slot->initial;
        memcpy(shape, slot->info.shape, (size_t)slot->info.rank * sizeof *shape);
        if (given && given->data) {
            if (given->type != HEED_F32)
                return heed_fail(HEED_INVALID, "%s is %s, it must be f32", slot->info.name,
                                 heed_type_name(given->type));
            bool fits = given->rank == slot->info.rank;
            int64_t step = sizeof(float);
            for (int d = slot->info.rank - 1; fits && d >= 0; d--) {
                fits = given->shape[d] == slot->info.shape[d] || (slot->info.free[d] && given->shape[d] == 1);
                fits = fits && (given->stride[d] == step || given->shape[d] <= 1);
                step *= given->shape[d];
                shape[d] = given->shape[d];
            }
            if (!fits) {
                char text[64] = "";
                for (int d = 0; d < slot->info.rank; d++) {
                    const size_t used = strlen(text);
                    snprintf(text + used, sizeof text - used, "%s%lld%s", d ? ", " : "",
                             (long long)slot->info.shape[d], slot->info.free[d] ? " or 1" : "");
                }
                return heed_fail(HEED_INVALID, "%s must be dense f32 [%s]", slot->info.name, text);
            }
            values = given->data;
        } else if (!values && slot->floats > 0) {
            return heed_fail(HEED_INVALID, "%s is required and was not given", slot->info.name);
        }
        for (int i = 0; i < plan->pipelines; i++)
            for (int f = 0; f < plan->pipeline[i].forms; f++) {
                heed_form_state *form = &run->pipeline[i].form[f];
                const bool has = form->form->params && plan->pipeline[i].slot[f][slot->param] == s &&
                                 form->form == plan->pipeline[slot->pipeline].form[slot->form].form;
                if (!has)
                    continue;
                form->param[slot->param] = values;
                memcpy(form->shape[slot->param], shape, sizeof shape);
            }
    }
    for (int i = 0; i < plan->pipelines; i++)
        for (int f = 0; f < plan->pipeline[i].forms; f++) {
            const heed_form_state *form = &run->pipeline[i].form[f];
            if (form->form->begin)
                TRY(form->form->begin(form));
        }
    return HEED_OK;
}

static heed_status check_capture(const heed_plan *plan, const heed_capture *capture)
{
    const unsigned with = plan->problem.with;
    const struct {
        const void *asked;
        unsigned flag;
        const char *name;
    } each[] = {{capture->entropy, HEED_WITH_ENTROPY, "entropy"},
                {capture->key_sums, HEED_WITH_KEY_SUMS, "key sums"},
                {capture->top_weight, HEED_WITH_TOP, "top links"},
                {capture->top_key, HEED_WITH_TOP, "top links"},
                {(const void *)(uintptr_t)capture->sink, HEED_WITH_WEIGHTS, "weights"}};
    for (size_t i = 0; i < sizeof each / sizeof *each; i++)
        if (each[i].asked && !(with & each[i].flag))
            return heed_fail(HEED_INVALID, "%s asked for, but the plan was made without them", each[i].name);
    if (!capture->top_weight != !capture->top_key)
        return heed_fail(HEED_INVALID, "top_weight and top_key go together");
    return HEED_OK;
}

/* Rows and statistics that no kernel will touch: queries that do not exist. */
static void clear_outputs(const heed_run *run)
{
    const heed_problem *p = &run->plan->problem;
    const heed_capture *capture = &run->extra->capture;
    for (int64_t b = 0; b < p->batch; b++)
        for (int64_t h = 0; h < p->heads; h++)
            for (int64_t i = run->query_count[b]; i < p->queries; i++) {
                char *row = (char *)run->out.data + b * run->out.stride[0] + h * run->out.stride[1] +
                            i * run->out.stride[2];
                for (int64_t e = 0; e < p->value_dim; e++)
                    memset(row + e * run->out.stride[3], 0, sizeof(float));
                const int64_t at = (b * p->heads + h) * p->queries + i;
                if (run->row_state) {
                    run->row_state[2 * at] = INFINITY;
                    run->row_state[2 * at + 1] = -INFINITY;
                }
                const heed_tensor *lse = &run->extra->lse;
                if (lse->data)
                    *(float *)((char *)lse->data + b * lse->stride[0] + h * lse->stride[1] +
                               i * lse->stride[2]) = -INFINITY;
            }
    const size_t rows = (size_t)(p->batch * p->heads * p->queries);
    if (capture->entropy)
        memset(capture->entropy, 0, rows * sizeof(float));
    bool decodes = true; /* that kernel clears the sums itself, piece by piece, where there are queries */
    for (int i = 0; i < run->plan->pipelines; i++)
        decodes &= run->plan->pipeline[i].kernel == HEED_KERNEL_DECODE;
    for (int64_t i = 0; capture->key_sums && i < p->batch * p->heads; i++) {
        if (decodes && run->query_count[i / p->heads] > 0 && p->page)
            continue;
        const int64_t there = heed_key_count(run, i / p->heads, i % p->heads / (p->heads / p->kv_heads));
        memset(capture->key_sums + i * p->keys, 0, (size_t)(p->page ? there : p->keys) * sizeof(float));
    }
    if (capture->top_weight) {
        memset(capture->top_weight, 0, rows * (size_t)p->top * sizeof(float));
        memset(capture->top_key, 0xff, rows * (size_t)p->top * sizeof(int32_t));
    }
}

static const heed_extra no_extra = {.scratch = NULL};

/* Everything forward and backward have in common. The run lies in scratch. */
static heed_status start(const heed_plan *plan, const heed_tensor *q, const heed_tensor *k,
                         const heed_tensor *v, const heed_extra *extra, void *scratch, heed_run **run_out)
{
    TRY(check_inputs(plan, q, k, v));
    TRY(check_capture(plan, &extra->capture));
    heed_setup s = heed_take_setup(plan, scratch);
    heed_run *run = s.run;
    run->q = *q;
    run->k = *k;
    run->v = *v;
    run->extra = extra;
    run->row_state = extra->row_state;
    TRY(heed_place(&s, extra));
    TRY(bind_segments(run, extra));
    TRY(bind_mask(run, extra));
    TRY(bind_pages(run, extra));
    TRY(heed_bind_summaries(run, extra));
    TRY(heed_bind_memory(run, extra));
    TRY(bind_mass(run, extra));
    share_inputs(run);
    TRY(bind_params(run, extra));
    run->shared = (char *)scratch + s.arena.used;
    *run_out = run;
    return HEED_OK;
}

static heed_status claim_scratch(const heed_plan *plan, const heed_extra *extra, void **scratch)
{
    *scratch = extra->scratch;
    if (*scratch) {
        if ((uintptr_t)*scratch % 64 != 0)
            return heed_fail(HEED_INVALID, "scratch must be aligned to 64 bytes");
        return HEED_OK;
    }
    if (!plan->scratch)
        return heed_fail(HEED_INVALID,
                         "the plan was made with HEED_WITH_SCRATCH, so scratch must be brought");
    if (atomic_flag_test_and_set(plan->busy))
        return heed_fail(HEED_INVALID,
                         "the plan's own scratch is in use by another thread; pass scratch of your own");
    *scratch = plan->scratch;
    return HEED_OK;
}

static void release_scratch(const heed_plan *plan, const heed_extra *extra)
{
    if (!extra->scratch)
        atomic_flag_clear(plan->busy);
}

static heed_status forward(const heed_plan *plan, const heed_tensor *q, const heed_tensor *k,
                           const heed_tensor *v, const heed_tensor *out, const heed_extra *extra,
                           void *scratch)
{
    const heed_problem *p = &plan->problem;
    heed_run *run;
    TRY(start(plan, q, k, v, extra, scratch, &run));
    TRY(check_shape("out", out, HEED_F32, (int64_t[]){p->batch, p->heads, p->queries, p->value_dim}));
    const heed_tensor *lse = &extra->lse;
    if (lse->data && (lse->type != HEED_F32 || lse->rank != 3 || lse->shape[0] != p->batch ||
                      lse->shape[1] != p->heads || lse->shape[2] != p->queries))
        return heed_fail(HEED_INVALID, "lse must be f32 [%lld, %lld, %lld]", (long long)p->batch,
                         (long long)p->heads, (long long)p->queries);
    run->out = *out;
    run->threads = run->shared + plan->forward.shared;
    run->per_thread = plan->forward.per_thread;
    clear_outputs(run);
    return plan->kernels->forward(run);
}

heed_status heed_attend(const heed_plan *plan, const heed_tensor *q, const heed_tensor *k,
                        const heed_tensor *v, const heed_tensor *out, const heed_extra *extra)
{
    if (!plan || !q || !k || !v || !out)
        return heed_fail(HEED_INVALID, "plan, q, k, v and out must not be NULL");
    extra = extra ? extra : &no_extra;
    void *scratch;
    TRY(claim_scratch(plan, extra, &scratch));
    const heed_status status = forward(plan, q, k, v, out, extra, scratch);
    release_scratch(plan, extra);
    return status;
}

static heed_status check_gradients(const heed_plan *plan, const heed_gradients *g)
{
    const heed_problem *p = &plan->problem;
    const int64_t q[] = {p->batch, p->heads, p->queries, p->dim},
                  k[] = {p->batch, p->kv_heads, p->keys, p->dim};
    const int64_t v[] = {p->batch, p->kv_heads, p->keys, p->value_dim};
    const int64_t out[] = {p->batch, p->heads, p->queries, p->value_dim};
    TRY(check_shape("dout", &g->dout, HEED_F32, out));
    if (g->out.data)
        TRY(check_shape("out", &g->out, HEED_F32, out));
    if (g->dq.data)
        TRY(check_shape("dq", &g->dq, HEED_F32, q));
    if (g->dk.data)
        TRY(check_shape("dk", &g->dk, HEED_F32, k));
    if (g->dv.data)
        TRY(check_shape("dv", &g->dv, HEED_F32, v));
    return HEED_OK;
}

static heed_status check_param_gradients(const heed_run *run, const heed_gradients *g)
{
    const heed_plan *plan = run->plan;
    for (int s = 0; g->dparams && s < plan->slots; s++) {
        const heed_plan_slot *slot = &plan->slot[s];
        const heed_tensor *d = &g->dparams[s];
        if (!d->data)
            continue;
        bool fits = d->type == HEED_F32 && d->rank == slot->info.rank;
        const int64_t *shape = run->pipeline[slot->pipeline].form[slot->form].shape[slot->param];
        int64_t step = sizeof(float);
        for (int n = slot->info.rank - 1; fits && n >= 0; n--) {
            fits = d->shape[n] == shape[n] && (d->stride[n] == step || shape[n] <= 1);
            step *= shape[n];
        }
        if (!fits)
            return heed_fail(HEED_INVALID, "the gradient of %s must be dense f32 of the parameter's shape",
                             slot->info.name);
    }
    return HEED_OK;
}

static heed_status backward(const heed_plan *plan, const heed_gradients *g, const heed_extra *extra,
                            void *scratch)
{
    heed_run *run;
    TRY(check_gradients(plan, g));
    TRY(start(plan, &g->q, &g->k, &g->v, extra, scratch, &run));
    TRY(check_param_gradients(run, g));
    run->gradients = g;
    run->threads = run->shared + plan->backward.shared;
    run->per_thread = plan->backward.per_thread;
    return plan->kernels->backward(run);
}

heed_status heed_attend_backward(const heed_plan *plan, const heed_gradients *gradients)
{
    if (!plan || !gradients)
        return heed_fail(HEED_INVALID, "plan and gradients must not be NULL");
    if (!(plan->problem.with & HEED_WITH_BACKWARD))
        return heed_fail(HEED_INVALID, "the plan was made without HEED_WITH_BACKWARD");
    const heed_extra *extra = gradients->extra ? gradients->extra : &no_extra;
    void *scratch;
    TRY(claim_scratch(plan, extra, &scratch));
    const heed_status status = backward(plan, gradients, extra, scratch);
    release_scratch(plan, extra);
    return status;
}
