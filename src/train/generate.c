/* What a model answers when it goes on from its own words: the likeliest token each time. */
#include "base/try.h"
#include "nn/graph.h"
#include "train/trainer.h"

#include <stdlib.h>
#include <string.h>

/* The likeliest token behind place i of a row. */
static int32_t likeliest(const heed_pass *p, int64_t row, int64_t i)
{
    const int64_t classes = p->of->model->vocabulary;
    const float *x =
        (const float *)heed_graph_data(p->graph, p->scores) + (row * p->of->model->context + i) * classes;
    int64_t best = 0;
    for (int64_t c = 1; c < classes; c++)
        best = x[c] > x[best] ? c : best;
    return (int32_t)best;
}

/* Says the answers of a batch: where the token behind is the one that is asked for, the model's own stands
 * instead. */
static heed_status answer(heed_pass *p, int32_t *said)
{
    const int64_t context = p->of->model->context, batch = p->of->config->batch;
    int32_t *token = heed_graph_data(p->graph, p->nodes.tokens);
    const int32_t *target = heed_graph_data(p->graph, p->targets);
    for (int64_t i = 0; i < context; i++) {
        bool asked = false;
        for (int64_t b = 0; b < batch; b++)
            asked |= target[b * context + i] >= 0;
        if (!asked)
            continue;
        TRY(heed_graph_forward(p->graph));
        for (int64_t b = 0; b < batch; b++) {
            const int64_t at = b * context + i;
            if (target[at] < 0)
                continue;
            said[at] = likeliest(p, b, i);
            if (i + 1 < context && token[at + 1] == target[at])
                token[at + 1] = said[at];
        }
    }
    return HEED_OK;
}

static heed_status generate(heed_pass *p, int64_t sequences, heed_generated *out,
                            void (*show)(void *, const heed_answer *), void *context)
{
    const int64_t n = p->of->model->context, batch = p->of->config->batch,
                  read = p->of->model->source_context;
    int32_t *said = malloc(2 * (size_t)(batch * n) * sizeof *said), *given = said + batch * n;
    heed_status status = said ? HEED_OK : heed_fail(HEED_NO_MEMORY, "no memory for answers");
    for (int64_t first = 0; first < sequences && !status; first += batch) {
        heed_pass_fill(p, true, first, sequences);
        memcpy(given, heed_graph_data(p->graph, p->nodes.tokens), (size_t)(batch * n) * sizeof *given);
        memset(said, -1, (size_t)(batch * n) * sizeof *said);
        status = answer(p, said);
        const int32_t *target = heed_graph_data(p->graph, p->targets);
        for (int64_t b = 0; b < batch && first + b < sequences && !status; b++) {
            const heed_answer one = {
                .tokens = n,
                .given = given + b * n,
                .target = target + b * n,
                .said = said + b * n,
                .sources = read,
                .source =
                    read ? (const int32_t *)heed_graph_data(p->graph, p->nodes.source) + b * read : NULL};
            bool right = true;
            for (int64_t i = 0; i < n; i++)
                right &= one.target[i] < 0 || one.target[i] == one.said[i];
            out->sequences++;
            out->exact += right;
            if (show)
                show(context, &one);
        }
    }
    free(said);
    return status;
}

heed_status heed_trainer_generate(heed_trainer *trainer, int64_t sequences, heed_generated *out,
                                  void (*show)(void *, const heed_answer *), void *context)
{
    heed_pass *p = heed_trainer_judge(trainer);
    const heed_objective objective = p->of->data->objective;
    *out = (heed_generated){.sequences = 0};
    if (!heed_objective_says_next(objective) && objective != HEED_OBJECTIVE_SPAN)
        return heed_fail(HEED_INVALID, "objective = %s: such a model says nothing",
                         heed_objective_name((int)objective));
    if (heed_data_rows(p->of->data) > 1)
        return heed_fail(HEED_INVALID, "objective = %s: there is more than one answer",
                         heed_objective_name((int)objective));
    const int64_t all = heed_data_evaluations(p->of->data, p->of->model->context);
    heed_trainer_swap(trainer);
    const heed_status status = generate(p, sequences < all ? sequences : all, out, show, context);
    heed_trainer_swap(trainer);
    return status;
}
