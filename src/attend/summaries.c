/* What selectors make of keys once, kept beside a cache. */
#include "attend/summaries.h"
#include "base/try.h"

int64_t heed_plan_summary_floats(const heed_plan *plan, int64_t keys)
{
    int64_t floats = 0;
    for (int p = 0; plan && keys > 0 && p < plan->pipelines; p++)
        for (int n = 0; n < plan->pipeline[p].selects; n++) {
            const heed_form_state *form = &plan->pipeline[p].form[plan->pipeline[p].select[n]];
            if (form->form->summary_floats)
                floats += form->form->summary_floats(form, plan->pipeline[p].row_dim, keys);
        }
    return floats;
}

/* A form with its parameters, given ones or else initial values. */
static heed_form_state with_params(const heed_plan *plan, int p, int f, const heed_tensor *params)
{
    heed_form_state form = plan->pipeline[p].form[f];
    for (int i = 0; form.form->params && form.form->params[i].name; i++) {
        const int slot = plan->pipeline[p].slot[f][i];
        form.param[i] = params && params[slot].data ? params[slot].data : plan->slot[slot].initial;
    }
    return form;
}

heed_status heed_plan_summarise(const heed_plan *plan, const heed_tensor *params, int kv_head,
                                int64_t capacity, int64_t first, const float *keys, int64_t stride,
                                int64_t count, float *summary)
{
    if (!plan || !keys || !summary)
        return heed_fail(HEED_INVALID, "a plan, keys and a summary are needed");
    if (!(plan->problem.with & HEED_WITH_SUMMARIES))
        return heed_fail(HEED_INVALID, "the plan was made without HEED_WITH_SUMMARIES");
    if (kv_head < 0 || kv_head >= plan->problem.kv_heads)
        return heed_fail(HEED_INVALID, "there is no kv head %d, the plan has %lld", kv_head,
                         (long long)plan->problem.kv_heads);
    if (first < 0 || count < 0 || count > INT32_MAX || first > capacity - count || stride < plan->problem.dim)
        return heed_fail(HEED_INVALID,
                         "keys %lld to %lld with stride %lld: a summary of %lld keys of %lld "
                         "entries cannot take them",
                         (long long)first, (long long)(first + count - 1), (long long)stride,
                         (long long)capacity, (long long)plan->problem.dim);
    const heed_rows rows = {
        .count = (int)count, .dim = (int)plan->problem.dim, .head = kv_head, .in = keys, .in_stride = stride};
    for (int p = 0; p < plan->pipelines; p++)
        for (int n = 0; n < plan->pipeline[p].selects; n++) {
            const heed_form_state form = with_params(plan, p, plan->pipeline[p].select[n], params);
            if (!form.form->summary_floats)
                continue;
            form.form->summarise(&form, &rows, first, summary);
            summary += form.form->summary_floats(&form, plan->pipeline[p].row_dim, capacity);
        }
    return HEED_OK;
}

heed_status heed_check_summaries(const heed_plan *plan)
{
    if (!(plan->problem.with & HEED_WITH_SUMMARIES))
        return HEED_OK;
    for (int p = 0; p < plan->pipelines; p++) {
        const heed_pipeline *pipeline = &plan->pipeline[p];
        for (int n = 0; n < pipeline->selects; n++) {
            const heed_form *form = pipeline->form[pipeline->select[n]].form;
            if (form->summary_floats && !pipeline->plain_key)
                return heed_fail(HEED_UNSUPPORTED,
                                 "select=%s looks at prepared keys, so summaries can come with the keys only "
                                 "where these come prepared",
                                 form->name);
        }
    }
    return HEED_OK;
}

heed_status heed_bind_summaries(heed_run *run, const heed_extra *extra)
{
    const heed_problem *p = &run->plan->problem;
    const heed_tensor *given = &extra->summaries;
    if (!(p->with & HEED_WITH_SUMMARIES))
        return given->data ? heed_fail(HEED_INVALID, "summaries are given, but the plan was made without "
                                                     "HEED_WITH_SUMMARIES")
                           : HEED_OK;
    const int64_t all = heed_plan_summary_floats(run->plan, p->keys);
    const int64_t page = p->with & HEED_WITH_PAGES ? heed_plan_summary_floats(run->plan, p->page) : 0;
    if (all == 0)
        return HEED_OK;
    const bool fits = given->data && given->type == HEED_F32 && given->rank == 3 &&
                      given->shape[1] == p->kv_heads && given->stride[2] == sizeof(float);
    run->summaries_paged = fits && page > 0 && given->shape[0] == run->k.shape[0] && given->shape[2] == page;
    if (run->summaries_paged) {
        for (int g = 0; g < p->grades; g++) {
            const heed_tensor *of = &run->grade[g].summaries;
            if (!of->data || of->type != HEED_F32 || of->rank != 3 ||
                of->shape[0] != run->grade[g].k.shape[0] || of->shape[1] != p->kv_heads ||
                of->shape[2] != page || of->stride[2] != sizeof(float))
                return heed_fail(HEED_INVALID, "summaries of the pages of grade %d are missing", g + 1);
        }
        for (int i = 0; i < run->plan->pipelines; i++)
            for (int n = 0; n < run->pipeline[i].selects; n++) {
                const heed_form_state *form = &run->pipeline[i].form[run->pipeline[i].select[n]];
                if (form->form->block_rule && p->page % form->form->block_rule(form).keys != 0)
                    return heed_fail(
                        HEED_INVALID,
                        "summaries lie by pages of %lld keys, but select=%s has blocks of %lld: a "
                        "page must hold whole blocks",
                        (long long)p->page, form->form->name, (long long)form->form->block_rule(form).keys);
            }
        return HEED_OK;
    }
    if (!fits || given->shape[0] != p->batch || given->shape[2] != all)
        return heed_fail(HEED_INVALID, "summaries must be f32 [%lld, %lld, %lld]%s", (long long)p->batch,
                         (long long)p->kv_heads, (long long)all, page ? ", or by pages" : "");
    return HEED_OK;
}
