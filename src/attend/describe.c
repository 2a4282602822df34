/* What a plan says of itself. */
#include "attend/execute.h"
#include "attend/plan.h"
#include "tensor/rotate.h"
#include <stdarg.h>
#include <string.h>

const char *heed_kernel_name(heed_kernel kernel)
{
    static const char *const names[] = {"auto", "flash", "rows", "sparse", "decode", "gather"};
    return (size_t)kernel < sizeof names / sizeof *names ? names[kernel] : "unknown";
}

static double type_bytes(heed_type type, double n, int64_t dim)
{
    return n / (double)dim * (double)heed_type_bytes(type, dim);
}

void heed_plan_get_info(const heed_plan *plan, heed_plan_info *info)
{
    const heed_problem *p = &plan->problem;
    const double queries = (double)p->batch * (double)p->heads * (double)p->queries;
    const double keys = (double)p->batch * (double)p->kv_heads * (double)p->keys;
    const double all = queries * (double)p->keys;
    double open = 0.0;
    for (int i = 0; i < plan->pipelines; i++) {
        const heed_pipeline *pipeline = &plan->pipeline[i];
        double here = plan->kernels->open_pairs(plan, pipeline);
        if (here < 0.0)
            here = (double)p->queries * (double)p->keys;
        open += here * (double)pipeline->heads_here * (double)p->batch;
    }
    *info = (heed_plan_info){.kernel = plan->pipeline[0].kernel,
                             .isa = plan->isa,
                             .threads = p->threads,
                             .query_block = plan->pipeline[0].query_block,
                             .key_block = HEED_KEYS,
                             .open_pairs = open,
                             .open_share = all > 0.0 ? open / all : 0.0,
                             .flops = 2.0 * (double)(p->dim + p->value_dim) * open,
                             .bytes = type_bytes(p->q_type, queries * (double)p->dim, p->dim) +
                                      type_bytes(p->k_type, keys * (double)p->dim, p->dim) +
                                      type_bytes(p->v_type, keys * (double)p->value_dim, p->value_dim) +
                                      4.0 * queries * (double)p->value_dim,
                             .scratch_bytes = heed_plan_scratch(plan),
                             .scratch_per_thread = plan->forward.per_thread > plan->backward.per_thread
                                                       ? plan->forward.per_thread
                                                       : plan->backward.per_thread,
                             .fast_products = plan->pipeline[0].fast_products};
}

typedef struct writer {
    char *text;
    size_t size, used;
} writer;

static void HEED_PRINTF(2, 3) say(writer *w, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    const bool room = w->used < w->size;
    const int n = vsnprintf(room ? w->text + w->used : NULL, room ? w->size - w->used : 0, format, arguments);
    va_end(arguments);
    w->used += n > 0 ? (size_t)n : 0;
}

static void say_amount(writer *w, double x, const char *unit)
{
    static const char *const prefix[] = {"", "k", "M", "G", "T", "P", "E"};
    size_t i = 0;
    while (x >= 1000.0 && i + 1 < sizeof prefix / sizeof *prefix) {
        x /= 1000.0;
        i++;
    }
    say(w, i ? "%.3g %s%s" : "%.4g %s%s", x, prefix[i], unit);
}

static void say_heads(writer *w, const heed_pipeline *pipeline)
{
    say(w, "heads ");
    for (int n = 0; n < pipeline->heads_here; n++) {
        int last = n;
        while (last + 1 < pipeline->heads_here && pipeline->head[last + 1] == pipeline->head[last] + 1)
            last++;
        say(w, "%s%d", n ? "," : "", pipeline->head[n]);
        if (last > n)
            say(w, "-%d", pipeline->head[last]);
        n = last;
    }
}

static void say_pipeline(writer *w, const heed_plan *plan, const heed_pipeline *pipeline)
{
    if (plan->pipelines > 1) {
        say_heads(w, pipeline);
        say(w, ": ");
    }
    say(w, "kernel %s: %s\n", heed_kernel_name(pipeline->kernel), pipeline->why);
    if (pipeline->query_block > 0)
        say(w, "tiles: %d queries of a head at a time, in strips of %d, against %d keys\n",
            pipeline->query_block, plan->kernels->rows, HEED_KEYS);
    if (pipeline->fast_products && pipeline->kernel == HEED_KERNEL_DECODE)
        say(w,
            "products: whole numbers, queries and weights with 16 bits; within 1e-4 of products in fp32\n");
    else if (pipeline->fast_products)
        say(w, "products: 16-bit pairs with fp32 sums, weights as two bf16 numbers each\n");
}

static void say_params(writer *w, const heed_plan *plan)
{
    for (int s = 0; s < plan->slots; s++) {
        const heed_plan_param_info *info = &plan->slot[s].info;
        say(w, "parameter %s [", info->name);
        for (int d = 0; d < info->rank; d++)
            say(w, "%s%lld%s", d ? ", " : "", (long long)info->shape[d], info->free[d] ? " or 1" : "");
        say(w, "]%s\n", info->required ? ", required" : "");
    }
}

/* Types that decoding has no products for: a tile of them is turned into floats first. */
static void say_slow_type(writer *w, const heed_plan *plan, const char *name, heed_type type)
{
    const heed_type plain = heed_type_unrotated(type);
    bool decodes = false;
    for (int i = 0; i < plan->pipelines; i++)
        decodes |= plan->pipeline[i].kernel == HEED_KERNEL_DECODE;
    if (decodes && (plain == HEED_Q2 || plain == HEED_Q3))
        say(w, "note: %s is %s, for which there are no products: it is turned into floats a tile at a time\n",
            name, heed_type_name(type));
}

/* Everything that is slower or looser than it might seem. */
static void say_warnings(writer *w, const heed_plan *plan)
{
    const heed_problem *p = &plan->problem;
    for (int i = 0; i < plan->pipelines; i++) {
        const heed_pipeline *pipeline = &plan->pipeline[i];
        if (pipeline->kernel == HEED_KERNEL_ROWS)
            say(w, "note: memory grows with the number of keys, since whole rows of scores are kept\n");
        if (pipeline->keys_by_head)
            say(w, "note: keys are prepared anew for each query head\n");
        if (p->with & HEED_WITH_KEY_SUMS && pipeline->kernel != HEED_KERNEL_ROWS)
            say(w, "note: weights of a block of queries are kept until their rows are complete, for the "
                   "statistics\n");
        for (int f = 0; f < pipeline->forms; f++)
            if (pipeline->form[f].form->flags & (HEED_NEEDS_MASK | HEED_NEEDS_SEGMENTS))
                say(w, "note: what %s closes is known only when executing; the figures count it as open\n",
                    pipeline->form[f].form->name);
    }
    say_slow_type(w, plan, "k", p->k_type);
    say_slow_type(w, plan, "v", p->v_type);
    if (p->k_type != p->v_type)
        say(w, "note: k is %s and v is %s\n", heed_type_name(p->k_type), heed_type_name(p->v_type));
}

size_t heed_plan_describe(const heed_plan *plan, char *text, size_t size)
{
    writer w = {.text = text, .size = size};
    heed_plan_info info;
    heed_plan_get_info(plan, &info);
    say(&w, "%s\n", plan->spec);
    for (int i = 0; i < plan->pipelines; i++)
        say_pipeline(&w, plan, &plan->pipeline[i]);
    say(&w, "instruction set %s, %d thread%s\n", heed_isa_name(info.isa), info.threads,
        info.threads == 1 ? "" : "s");
    say(&w, "work: ");
    say_amount(&w, info.flops, "flop");
    say(&w, " over ");
    say_amount(&w, info.open_pairs, "open pairs");
    say(&w, " (%.3g %% of all), ", 100.0 * info.open_share);
    say_amount(&w, info.bytes, "B read and written\n");
    say(&w, "scratch: ");
    say_amount(&w, (double)info.scratch_bytes, "B");
    say(&w, ", of which ");
    say_amount(&w, (double)info.scratch_per_thread, "B a thread\n");
    say_params(&w, plan);
    say_warnings(&w, plan);
    if (size > 0)
        text[w.used < size ? w.used : size - 1] = '\0';
    return w.used;
}
