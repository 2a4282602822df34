/* heed run --passage: texts before the prompt that are read each by itself. */
#include "base/clock.h"
#include "base/try.h"
#include "cli/run.h"

#include <stdlib.h>

heed_status run_read_passages(run_state *run)
{
    const cli_list *files = &run->options.passage;
    heed_tokens all = {.id = NULL};
    heed_status status = HEED_OK;
    if (files->count == 0)
        return HEED_OK;
    run->passage = calloc((size_t)files->count, sizeof *run->passage);
    if (!run->passage)
        return heed_fail(HEED_NO_MEMORY, "no memory for passages");
    for (int p = 0; p < files->count && !status; p++) {
        cli_text text = {.bytes = NULL};
        heed_tokens *tokens = &run->passage[p].tokens;
        status = cli_read_file(files->word[p], &text);
        if (!status)
            status = cli_tokens_of(run->model, &run->options.use, &text, tokens);
        if (!status && tokens->count == 0)
            status = heed_fail(HEED_INVALID, "%s has no tokens", files->word[p]);
        free(text.bytes);
        for (int64_t t = 0; t < tokens->count && !status; t++)
            status = heed_tokens_add(&all, tokens->id[t]);
    }
    for (int64_t t = 0; t < run->prompt.count && !status; t++)
        status = heed_tokens_add(&all, run->prompt.id[t]);
    heed_tokens_free(&run->prompt);
    run->prompt = all;
    return status;
}

heed_status run_splice_passages(run_state *run)
{
    const int count = run->options.passage.count;
    cli_generation *g = &run->form[0].generation;
    heed_passages *passages;
    heed_status status = HEED_OK;
    if (count == 0)
        return HEED_OK;
    const double start = heed_seconds();
    TRY(heed_passages_create(&passages, g->session, 1, count, SIZE_MAX, run->options.passage_cache));
    for (int p = 0; p < count && !status && !cli_interrupted(); p++) {
        run_passage *one = &run->passage[p];
        status = heed_passages_add(passages, 0, one->tokens.id, one->tokens.count, &one->source);
        for (int64_t t = 0; t < one->tokens.count && !status; t++)
            status = heed_tokens_add(&g->all, one->tokens.id[t]);
        g->held += status ? 0 : one->tokens.count;
    }
    heed_passages_free(passages);
    run->passage_seconds = heed_seconds() - start;
    return status;
}

static int64_t tokens_from(const run_state *run, heed_passage_source source)
{
    int64_t tokens = 0;
    for (int p = 0; p < run->options.passage.count; p++)
        tokens += run->passage[p].source == source ? run->passage[p].tokens.count : 0;
    return tokens;
}

void run_print_passages(const run_state *run)
{
    const int count = run->options.passage.count;
    if (count == 0)
        return;
    fprintf(
        stderr,
        "%d passages: %lld tokens read, %lld used again, %lld from the folder, in %.3f s; first token after "
        "%.3f s\n",
        count, (long long)tokens_from(run, HEED_PASSAGE_READ), (long long)tokens_from(run, HEED_PASSAGE_KEPT),
        (long long)tokens_from(run, HEED_PASSAGE_FILE), run->passage_seconds,
        run->passage_seconds + run->form[0].generation.read_seconds);
}

void run_add_passages(const run_state *run, cJSON *line)
{
    static const char *const words[] = {"read", "kept", "file"};
    const int count = run->options.passage.count;
    if (count == 0)
        return;
    cJSON *list = cJSON_AddArrayToObject(line, "passages");
    for (int p = 0; p < count; p++) {
        cJSON *one = cJSON_CreateObject();
        cJSON_AddStringToObject(one, "file", run->options.passage.word[p]);
        cJSON_AddNumberToObject(one, "tokens", (double)run->passage[p].tokens.count);
        cJSON_AddStringToObject(one, "from", words[run->passage[p].source]);
        cJSON_AddItemToArray(list, one);
    }
    cJSON_AddNumberToObject(line, "passage_seconds", run->passage_seconds);
    cJSON_AddNumberToObject(line, "first_token_seconds",
                            run->passage_seconds + run->form[0].generation.read_seconds);
}

void run_free_passages(run_state *run)
{
    for (int p = 0; run->passage && p < run->options.passage.count; p++)
        heed_tokens_free(&run->passage[p].tokens);
    free(run->passage);
    run->passage = NULL;
}
