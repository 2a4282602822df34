/* heed run --selective: what a model expects of the text is left out before it is read. */
#include "base/try.h"
#include "base/utf8.h"
#include "cli/run.h"

#include <stdlib.h>
#include <string.h>

const char *run_unit_word(int i)
{
    static const char *const words[] = {"token", "phrase", "sentence"};
    return i >= 0 && i < 3 ? words[i] : NULL;
}

const char *run_measure_word(int i)
{
    static const char *const words[] = {"sum", "mean", "lot"};
    return i >= 0 && i < 3 ? words[i] : NULL;
}

static heed_status put_behind(cli_text *text, const char *question)
{
    const size_t more = strlen(question);
    char *grown = realloc(text->bytes, text->size + more + 1);
    if (!grown)
        return heed_fail(HEED_NO_MEMORY, "no memory for the text");
    memcpy(grown + text->size, question, more + 1);
    text->bytes = grown;
    text->size += more;
    return HEED_OK;
}

static heed_status select_text(run_state *run, cli_text *text, const heed_model *model)
{
    const run_options *o = &run->options;
    const heed_selective wanted = {.model = model,
                                   .drop = o->selective,
                                   .unit = (heed_unit_kind)o->unit,
                                   .measure = (heed_unit_measure)o->measure,
                                   .seed = (uint64_t)o->seed,
                                   .threads = (int)o->use.threads};
    TRY(heed_select_context(&run->selection, &wanted, text->bytes, text->size));
    char *copy = malloc(run->selection.size + 1);
    if (!copy)
        return heed_fail(HEED_NO_MEMORY, "no memory for the text");
    memcpy(copy, run->selection.text, run->selection.size + 1);
    free(text->bytes);
    *text = (cli_text){copy, run->selection.size};
    return HEED_OK;
}

heed_status run_select_text(run_state *run, cli_text *text)
{
    const run_options *o = &run->options;
    heed_model *other = NULL;
    heed_status status = HEED_OK;
    if (o->selective < 0.0 && o->selective_model)
        return heed_fail(HEED_INVALID, "--selective-model goes with --selective");
    if (o->selective >= 0.0 && o->selective_model) {
        cli_language use = o->use;
        use.model = o->selective_model;
        status = cli_open_model(&cli_run, &use, &other);
    }
    if (!status && o->selective >= 0.0)
        status = select_text(run, text, other ? other : run->model);
    heed_model_close(other);
    if (!status && o->question)
        status = put_behind(text, o->question);
    return status;
}

void run_print_selection(const run_state *run)
{
    const heed_selection *s = &run->selection;
    if (s->units > 0)
        fprintf(stderr, "%lld of %lld units stay, %lld of %lld tokens with %.1f %% of the information\n",
                (long long)s->kept_units, (long long)s->units, (long long)s->kept_tokens,
                (long long)s->tokens, s->all > 0.0 ? 100.0 * s->kept / s->all : 100.0);
}

void run_add_selection(const run_state *run, cJSON *line)
{
    const heed_selection *s = &run->selection;
    if (s->units == 0)
        return;
    cJSON *to = cJSON_AddObjectToObject(line, "selective"), *units = cJSON_CreateArray();
    char *text = heed_utf8_copy(s->text, s->size);
    cJSON_AddNumberToObject(to, "tokens", (double)s->tokens);
    cJSON_AddNumberToObject(to, "kept_tokens", (double)s->kept_tokens);
    cJSON_AddNumberToObject(to, "information", s->all);
    cJSON_AddNumberToObject(to, "kept_information", s->kept);
    cJSON_AddStringToObject(to, "text", text ? text : "");
    for (int64_t u = 0; u < s->units; u++) {
        cJSON *unit = cJSON_CreateObject();
        cJSON_AddNumberToObject(unit, "first", (double)s->unit[u].first);
        cJSON_AddNumberToObject(unit, "tokens", (double)s->unit[u].count);
        cJSON_AddNumberToObject(unit, "information", s->unit[u].information);
        cJSON_AddBoolToObject(unit, "kept", s->unit[u].stays);
        cJSON_AddItemToArray(units, unit);
    }
    cJSON_AddItemToObject(to, "units", units);
    cJSON_AddNumberToObject(line, "selective_kept", (double)s->kept_tokens / (double)s->tokens);
    cJSON_AddNumberToObject(line, "selective_information", s->all > 0.0 ? s->kept / s->all : 1.0);
    free(text);
}
