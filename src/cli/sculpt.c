/* heed sculpt: a question to a text of which fragments are hidden, restored or put shortly beforehand. */
#include "base/try.h"
#include "cli/language.h"
#include "eval/divergence.h"
#include "eval/score.h"
#include "eval/sculptor.h"

#include <stdlib.h>
#include <string.h>

typedef struct sculpt_options {
    cli_language use;
    const char *question, *answer, *calls;
    int64_t fragment, keep, most;
    bool latest;
} sculpt_options;

static const cli_option options[] = {
    CLI_MODEL_OPTION(sculpt_options),
    CLI_PROMPT_OPTIONS(sculpt_options),
    CLI_TEXT_OPTION(sculpt_options, question, "question", "TEXT", "what is read behind the text"),
    CLI_TEXT_OPTION(sculpt_options, answer, "answer", "TEXT",
                    "say how unexpected this one is behind the question, in nats"),
    CLI_WHOLE_OPTION(sculpt_options, fragment, "fragment", 0, 1 << 24,
                     "tokens of a fragment; 0: lines are fragments; 256"),
    CLI_WHOLE_OPTION(sculpt_options, keep, "keep", 0, 1 << 24,
                     "hide all but the N fragments most like the question; 0: hide none so; 0"),
    CLI_FLAG_OPTION(sculpt_options, latest, "latest",
                    "of fragments that begin with the same words before a colon hide all but the last"),
    CLI_TEXT_OPTION(sculpt_options, calls, "calls", "FILE",
                    "calls of tools, a JSON object a line: {\"tool\": \"hide\", \"id\": 3}"),
    CLI_OPTION(sculpt_options, most, .kind = CLI_WHOLE, .name = "tokens", .letter = 'n', .value = "N",
               .summary = "write at most N tokens; 64", .least = 0, .most = 1 << 24),
    CLI_RUN_OPTIONS(sculpt_options),
    CLI_FLAG_OPTION(sculpt_options, use.json, "json", "a JSON object instead of text"),
    {0},
};

typedef struct sculpt_run {
    sculpt_options options;
    heed_model *model;
    heed_model_info info;
    heed_sculptor *sculptor;
    heed_tokens question, answer;
    double surprise; /* of the answer */
    float *logits;
    cJSON *answers; /* of calls */
    char *text;     /* that was written */
    size_t size;
} sculpt_run;

static heed_status run_calls(sculpt_run *run)
{
    cli_text text;
    heed_status status = HEED_OK;
    if (!run->options.calls)
        return HEED_OK;
    TRY(cli_read_file(run->options.calls, &text));
    for (char *line = text.bytes, *next; line && *line && !status; line = next) {
        char *answer;
        next = strchr(line, '\n');
        if (next)
            *next++ = 0;
        if (line[strspn(line, " \t\r")] == 0)
            continue;
        status = heed_sculptor_call(run->sculptor, line, &answer);
        cJSON_AddItemToArray(run->answers, cJSON_CreateRaw(answer ? answer : "null"));
        free(answer);
    }
    free(text.bytes);
    return status;
}

static heed_status sculpt(sculpt_run *run)
{
    const sculpt_options *o = &run->options;
    cli_text text;
    TRY(heed_tokenize(heed_model_tokenizer(run->model), o->question, strlen(o->question), 0, &run->question));
    if (run->question.count == 0)
        return heed_fail(HEED_INVALID, "the question has no tokens");
    if (o->answer)
        TRY(heed_tokenize(heed_model_tokenizer(run->model), o->answer, strlen(o->answer), 0, &run->answer));
    TRY(cli_read_text(&o->use, &text));
    const heed_session_options session = cli_session_options(&o->use, 0);
    const heed_sculptor_options wanted = {.text = text.bytes,
                                          .fragment = o->fragment,
                                          .room = run->question.count + run->answer.count + o->most,
                                          .attention = o->use.attention,
                                          .cache = session.cache,
                                          .cache_given = session.cache_given,
                                          .threads = session.threads};
    const heed_status status = heed_sculptor_create(&run->sculptor, run->model, &wanted);
    free(text.bytes);
    TRY(status);
    if (o->keep > 0)
        TRY(heed_sculptor_focus(run->sculptor, o->question, (int)o->keep));
    if (o->latest)
        TRY(heed_sculptor_latest(run->sculptor));
    return run_calls(run);
}

static heed_status read_on(sculpt_run *run, int32_t token)
{
    return heed_feed(heed_sculptor_session(run->sculptor),
                     &(heed_feed_item){.sequence = HEED_SCULPTED, .tokens = &token, .count = 1}, 1,
                     &(heed_feed_wants){.logits = run->logits});
}

static heed_status weigh_answer(sculpt_run *run)
{
    TRY(heed_sculptor_ask(run->sculptor, run->question.id, run->question.count, run->logits));
    for (int64_t i = 0; i < run->answer.count; i++) {
        run->surprise += heed_surprise(run->logits, run->info.vocabulary, run->answer.id[i]);
        TRY(read_on(run, run->answer.id[i]));
    }
    return HEED_OK;
}

/* The likeliest tokens, up to the end that the model sees. */
static heed_status write_answer(sculpt_run *run)
{
    const heed_tokenizer *tokenizer = heed_model_tokenizer(run->model);
    heed_detokenizer d = {.tokenizer = tokenizer, .tokens = 1};
    run->logits = malloc((size_t)run->info.vocabulary * sizeof *run->logits);
    run->text = calloc(1, 1);
    if (!run->logits || !run->text)
        return heed_fail(HEED_NO_MEMORY, "no memory for an answer");
    if (run->answer.count)
        TRY(weigh_answer(run));
    TRY(heed_sculptor_ask(run->sculptor, run->question.id, run->question.count, run->logits));
    for (int64_t n = 0; n < run->options.most; n++) {
        const int32_t token = heed_likeliest(run->logits, run->info.vocabulary);
        if (heed_token_ends(tokenizer, token))
            break;
        const size_t here = heed_detokenize(&d, token, NULL, 0);
        char *grown = realloc(run->text, run->size + here + 1);
        if (!grown)
            return heed_fail(HEED_NO_MEMORY, "no memory for an answer");
        run->text = grown;
        heed_detokenize(&d, token, run->text + run->size, here + 1);
        run->size += here;
        if (n + 1 < run->options.most)
            TRY(read_on(run, token));
    }
    return HEED_OK;
}

static void print(sculpt_run *run)
{
    const int fragments = heed_sculptor_fragments(run->sculptor);
    int hidden = 0;
    int64_t tokens = 0, seen = 0;
    cJSON *ids = cJSON_CreateArray();
    for (int i = 0; i < fragments; i++) {
        const heed_fragment *f = heed_sculptor_fragment(run->sculptor, i);
        hidden += f->hidden;
        tokens += f->count;
        seen += f->hidden ? 0 : f->brief.count ? f->brief.count : f->count;
        if (f->hidden)
            cJSON_AddItemToArray(ids, cJSON_CreateNumber(i));
    }
    if (!run->options.use.json) {
        printf("%s\n", run->text);
        fprintf(stderr, "%d of %d fragments hidden; %lld of %lld tokens of the text seen\n", hidden,
                fragments, (long long)seen, (long long)tokens);
        cJSON_Delete(ids);
        return;
    }
    cJSON *line = cJSON_CreateObject();
    cJSON_AddStringToObject(line, "text", run->text);
    cJSON_AddNumberToObject(line, "fragments", fragments);
    cJSON_AddNumberToObject(line, "hidden", hidden);
    cJSON_AddNumberToObject(line, "tokens", (double)tokens);
    cJSON_AddNumberToObject(line, "seen", (double)seen);
    if (run->answer.count)
        cJSON_AddNumberToObject(line, "surprise", run->surprise);
    cJSON_AddItemToObject(line, "hidden_ids", ids);
    cJSON_AddItemToObject(line, "answers", run->answers);
    run->answers = NULL;
    cli_print_json(line);
}

static heed_status run_all(sculpt_run *run)
{
    if (!run->options.question)
        return heed_fail(HEED_INVALID, "--question TEXT is missing");
    TRY(cli_open_model(&cli_sculpt, &run->options.use, &run->model));
    heed_model_get_info(run->model, &run->info);
    if (!run->info.generates || !heed_model_tokenizer(run->model))
        return heed_fail(HEED_UNSUPPORTED, "%s models write no answers", run->info.architecture);
    TRY(sculpt(run));
    TRY(write_answer(run));
    print(run);
    return HEED_OK;
}

static int sculpt_command(int argc, char **argv)
{
    sculpt_run run = {.options = {.use = CLI_LANGUAGE(), .fragment = 256, .most = 64}};
    cli_arguments arguments;
    int status;
    if (!cli_parse(&cli_sculpt, argc, argv, &run.options, &arguments, 0, 0, &status))
        return status;
    run.answers = cJSON_CreateArray();
    status = run_all(&run) ? cli_fail_message("sculpt") : CLI_OK;
    heed_sculptor_free(run.sculptor);
    heed_tokens_free(&run.question);
    heed_tokens_free(&run.answer);
    heed_model_close(run.model);
    cJSON_Delete(run.answers);
    free(run.logits);
    free(run.text);
    return status;
}

const cli_command cli_sculpt = {
    .name = "sculpt",
    .arguments = "-m MODEL -f FILE --question TEXT",
    .summary = "a question to a text of which fragments are hidden, restored or put shortly",
    .details =
        "Hidden fragments lose their keys for this question only; the others keep their positions. "
        "Tools of --calls:\nhide, restore, get {id}; summarise {id, text}; search {words, exact}; focus "
        "{question, keep}; latest.\n",
    .example =
        "heed sculpt -m smollm2 -p \"Oslo: red. Oslo: blue.\" --fragment 4 --question \" Oslo:\" -n 2\n",
    .options = options,
    .run = sculpt_command,
};
