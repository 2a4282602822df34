#include "base/try.h"
#include "base/utf8.h"
#include "cli/run.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* The turns so far; texts are owned. */
typedef struct conversation {
    heed_message_turn *turn;
    int count;
} conversation;

static heed_status say(conversation *c, const char *role, const char *text, size_t size)
{
    heed_message_turn *grown = realloc(c->turn, ((size_t)c->count + 1) * sizeof *grown);
    char *copy = strndup(text, size);
    if (grown)
        c->turn = grown;
    if (!grown || !copy) {
        free(copy);
        return heed_fail(HEED_NO_MEMORY, "no memory for the conversation");
    }
    c->turn[c->count++] = (heed_message_turn){role, copy};
    return HEED_OK;
}

static void forget(conversation *c)
{
    for (int i = 0; i < c->count; i++)
        free((char *)(uintptr_t)c->turn[i].content);
    free(c->turn);
}

static heed_status template_tokens(run_state *run, const conversation *c)
{
    run->prompt.count = 0;
    return heed_chat_tokens(heed_model_tokenizer(run->model), c->turn, c->count, true,
                            run->options.use.parse_special ? HEED_PARSE_SPECIAL : 0, &run->prompt);
}

/* Each form answers; the first one's answer becomes part of the conversation. */
static heed_status answer(run_state *run, conversation *c)
{
    TRY(template_tokens(run, c));
    TRY(run_fit_prompt(run, run->form[0].session.limit));
    for (int i = 0; i < run->forms && !cli_interrupted(); i++) {
        if (run->forms > 1 && !run->options.use.json)
            printf("%s--- %s ---\n", i ? "\n" : "",
                   run->form[i].spec ? run->form[i].spec : "the model's own attention");
        TRY(cli_generate(&run->form[i].generation, &run->prompt));
        if (!run->options.use.json)
            putchar('\n');
    }
    TRY(run_save(run));
    const cli_generation *first = &run->form[0].generation;
    TRY(say(c, "assistant", first->text, first->size));
    if (run->forms > 1 && !cli_interrupted())
        TRY(run_compare(run));
    for (int i = 0; i < run->forms; i++)
        if (run->options.use.json)
            run_print_json(run, i);
    return HEED_OK;
}

static heed_status open_forms(run_state *run, bool once)
{
    const run_options *o = &run->options;
    const int64_t needed = run->prompt.count + o->most;
    const int64_t context = o->use.context                       ? o->use.context
                            : once && needed < run->info.context ? needed
                                                                 : run->info.context;
    TRY(run_open_form(run, context, o->use.attention));
    for (int i = 0; i < o->compare.count; i++)
        TRY(run_open_form(run, context, o->compare.word[i]));
    return run_load(run);
}

static heed_status answer_once(run_state *run, conversation *c)
{
    cli_text text;
    TRY(cli_read_text(&run->options.use, &text));
    heed_status status = say(c, "user", text.bytes, text.size);
    free(text.bytes);
    TRY(status);
    TRY(template_tokens(run, c));
    TRY(open_forms(run, true));
    TRY(answer(run, c));
    if (!run->options.use.json)
        run_print_text(run);
    return HEED_OK;
}

static heed_status converse(run_state *run, conversation *c)
{
    const bool person = isatty(STDIN_FILENO);
    char *line = NULL;
    size_t room = 0;
    heed_status status = open_forms(run, false);
    while (!status) {
        if (person) {
            fputs("> ", stderr);
            fflush(stderr);
        }
        const ssize_t size = getline(&line, &room, stdin);
        if (size < 0)
            break;
        const size_t length = strcspn(line, "\r\n");
        if (length == 0)
            continue;
        status = heed_utf8_valid(line, length) ? say(c, "user", line, length)
                                               : heed_fail(HEED_INVALID, "a line is not UTF-8");
        if (!status)
            status = answer(run, c);
        if (cli_interrupted() && !person)
            break;
        if (!status && !run->options.use.json)
            run_print_text(run);
        if (person)
            cli_interrupt_begin();
    }
    free(line);
    return status;
}

heed_status run_chat(run_state *run)
{
    conversation c = {.count = 0};
    heed_status status = HEED_OK;
    if (run->options.system)
        status = say(&c, "system", run->options.system, strlen(run->options.system));
    if (!status)
        status = run->options.use.prompt || run->options.use.file ? answer_once(run, &c) : converse(run, &c);
    forget(&c);
    return status;
}
