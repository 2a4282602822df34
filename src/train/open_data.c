/* From a config's keys to data. */
#include "base/try.h"
#include "train/examples.h"
#include "train/marks.h"
#include "train/trainer.h"

#include <stdio.h>
#include <string.h>

static heed_status open_task(const heed_train_config *c, heed_data *data)
{
    TRY(heed_data_task(data, c->data));
    if (data->objective > HEED_OBJECTIVE_DISTIL && data->objective != HEED_OBJECTIVE_SEQUENCE &&
        data->objective != HEED_OBJECTIVE_DENOISE)
        return heed_fail(HEED_INVALID, "objective = %s needs data = text, not a task",
                         heed_objective_name((int)data->objective));
    return c->model == HEED_MODEL_ENCODER_DECODER ? heed_data_split_task(data) : HEED_OK;
}

static heed_status check_objective(const heed_train_config *c, const heed_data *data)
{
    const bool records = data->records.count > 0, apart = c->model == HEED_MODEL_ENCODER_DECODER;
    const heed_objective objective = data->objective;
    const char *name = heed_objective_name((int)objective);
    const bool any = objective == HEED_OBJECTIVE_NEXT || objective == HEED_OBJECTIVE_MASKED ||
                     objective == HEED_OBJECTIVE_DISTIL || objective == HEED_OBJECTIVE_SPAN;
    if (!records && !any && !data->task)
        return heed_fail(HEED_INVALID, "objective = %s needs %s", name,
                         objective == HEED_OBJECTIVE_CLASS ? "a task or records (.jsonl or .csv), not text"
                                                           : "records: a .jsonl or .csv file");
    if (apart && objective != HEED_OBJECTIVE_SEQUENCE && objective != HEED_OBJECTIVE_SPAN)
        return heed_fail(HEED_INVALID, "model = encoder_decoder learns objective = sequence or span, not %s",
                         name);
    if (apart && records && objective == HEED_OBJECTIVE_SEQUENCE && data->end < 0)
        return heed_fail(HEED_INVALID,
                         "the tokeniser has no token that ends a text, with which answers begin");
    return HEED_OK;
}

static heed_status read_file(const heed_train_config *c, heed_data *data)
{
    heed_tokenizer *tokenizer = NULL;
    if (*c->labels)
        return heed_data_pictures(data, c->file, c->labels, c->held_out);
    if (strcmp(c->tokenizer, "bytes") != 0 && !heed_data_is_packed(c->file))
        TRY(heed_tokenizer_load(&tokenizer, c->tokenizer));
    const heed_status status = heed_is_records(c->file)
                                   ? heed_data_records(data, c->file, tokenizer, c->held_out)
                                   : heed_data_text(data, c->file, tokenizer, c->held_out);
    heed_tokenizer_free(tokenizer);
    return status;
}

static heed_status check_length(const heed_train_config *c, const heed_data *data)
{
    const int64_t context = data->source_context > c->context ? data->source_context : c->context;
    if (data->tokens - data->held_out < context + 2)
        return heed_fail(HEED_INVALID, "%s: %lld tokens to train with are too few for context = %lld",
                         c->file, (long long)(data->tokens - data->held_out), (long long)context);
    if (heed_data_evaluations(data, context) < 1)
        return heed_fail(HEED_INVALID, "%s: the held-out %lld tokens are too few for context = %lld", c->file,
                         (long long)data->held_out, (long long)context);
    return HEED_OK;
}

heed_status heed_trainer_open_data(heed_train_config *c, heed_data *data)
{
    *data = (heed_data){.seed = (uint64_t)c->seed, .objective = (heed_objective)c->objective, .end = -1};
    const bool apart = c->model == HEED_MODEL_ENCODER_DECODER;
    if (!*c->data && *c->base)
        strcpy(c->data, "text");
    if (!*c->data)
        return heed_fail(HEED_INVALID,
                         "data is missing: a task, as in data = copy(length=16), or data = text");
    if (strcmp(c->data, "text") != 0) {
        TRY(open_task(c, data));
        TRY(heed_marks_open(data, c->landmarks, c->sentinels));
        if (c->context && c->context < data->context)
            return heed_fail(HEED_INVALID, "context = %lld: %s needs %lld tokens", (long long)c->context,
                             c->data, (long long)data->context);
        c->context = c->context && !apart ? c->context : data->context;
        return check_objective(c, data);
    }
    if (!*c->file)
        return heed_fail(HEED_INVALID, "file is missing: data = text needs file = PATH");
    if (*c->base && !strcmp(c->tokenizer, "bytes"))
        snprintf(c->tokenizer, sizeof c->tokenizer, "%s", c->base);
    TRY(read_file(c, data));
    c->context = c->context ? c->context : data->context ? data->context : 128;
    data->source_context = !apart ? 0 : c->source_context ? c->source_context : c->context;
    TRY(check_objective(c, data));
    TRY(heed_marks_open(data, c->landmarks, c->sentinels));
    return data->records.count ? HEED_OK : check_length(c, data);
}
