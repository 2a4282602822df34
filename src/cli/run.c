/* heed run: a model goes on with a text. */
#include "cli/run.h"
#include "base/try.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const cli_option options[] = {
    CLI_MODEL_OPTION(run_options),
    CLI_PROMPT_OPTIONS(run_options),
    CLI_OPTION(run_options, most, .kind = CLI_WHOLE, .name = "tokens", .letter = 'n', .value = "N",
               .summary = "write at most N tokens; 256", .least = 0, .most = 1 << 24),
    CLI_FLAG_OPTION(run_options, chat, "chat",
                    "a conversation by the model's chat template; with -p one answer"),
    CLI_TEXT_OPTION(run_options, system, "system", "TEXT", "with --chat: what the model is told beforehand"),
    CLI_RUN_OPTIONS(run_options),
    CLI_LIST_OPTION(run_options, compare, "compare", "SPEC",
                    "answer with this attention too, and compare; several times"),
    CLI_TEXT_OPTION(run_options, session, "session", "FILE",
                    "go on from a saved session as far as the prompt agrees with it, and save at the end"),
    CLI_LIST_OPTION(run_options, passage, "passage", "FILE",
                    "a text before the prompt that is read by itself, and kept; several times"),
    CLI_TEXT_OPTION(run_options, passage_cache, "passage-cache", "FOLDER",
                    "keep read passages there for other runs, and take them from there"),
    CLI_NUMBER_OPTION(run_options, selective, "selective", 0.0, 100.0,
                      "leave out that percent of the text's units, those that a model expects most"),
    CLI_CHOICE_OPTION(run_options, unit, "selective-unit", "UNIT", run_unit_word,
                      "units of the text: token, phrase or sentence; phrase"),
    CLI_CHOICE_OPTION(run_options, measure, "selective-by", "MEASURE", run_measure_word,
                      "what stays: units by the sum or mean of their tokens' information, or by lot; sum"),
    CLI_TEXT_OPTION(run_options, selective_model, "selective-model", "MODEL",
                    "the model that says what it expects; the one that reads"),
    CLI_TEXT_OPTION(run_options, question, "question", "TEXT", "follows the text, whole"),
    CLI_NUMBER_OPTION(run_options, temperature, "temperature", 0.0, 100.0, "0 takes the likeliest token; 0"),
    CLI_WHOLE_OPTION(run_options, top_k, "top-k", 0, 1 << 24, "draw among the N likeliest tokens; 0: all"),
    CLI_NUMBER_OPTION(run_options, top_p, "top-p", 0.0, 1.0,
                      "among the likeliest that have this probability together; 1"),
    CLI_NUMBER_OPTION(run_options, min_p, "min-p", 0.0, 1.0,
                      "among those with this share of the likeliest's probability; 0"),
    CLI_NUMBER_OPTION(run_options, repetition, "repetition", 0.01, 100.0,
                      "penalty on tokens that were there; 1: none"),
    CLI_NUMBER_OPTION(run_options, frequency, "frequency", -100.0, 100.0,
                      "penalty for each time a token was there; 0"),
    CLI_NUMBER_OPTION(run_options, presence, "presence", -100.0, 100.0,
                      "penalty for a token that was there; 0"),
    CLI_WHOLE_OPTION(run_options, penalty_window, "penalty-window", 0, 1 << 24,
                     "tokens that penalties look back at; 0: all"),
    CLI_WHOLE_OPTION(run_options, seed, "seed", 0, INT64_MAX, "of what is drawn; 0"),
    CLI_LIST_OPTION(run_options, stop, "stop", "TEXT", "end before this text; several times"),
    CLI_WHOLE_OPTION(run_options, use.context, "context", 1, 1 << 28, "tokens the session has room for"),
    CLI_CHOICE_OPTION(run_options, use.truncate, "truncate", "PLACE", cli_cut_word,
                      "of a prompt that is too long drop the head, middle or tail; never when not given"),
    CLI_SPECIAL_OPTION(run_options),
    CLI_FLAG_OPTION(run_options, use.json, "json", "a JSON object a line and attention instead of text"),
    {0},
};

heed_status run_open_form(run_state *run, int64_t context, const char *spec)
{
    const run_options *o = &run->options;
    run_form *form = &run->form[run->forms++];
    cli_generation *g = &form->generation;
    const heed_sampling sampling = {.temperature = (float)o->temperature,
                                    .top_k = (int32_t)o->top_k,
                                    .top_p = (float)o->top_p,
                                    .min_p = (float)o->min_p,
                                    .repetition = (float)o->repetition,
                                    .frequency = (float)o->frequency,
                                    .presence = (float)o->presence,
                                    .penalty_window = o->penalty_window,
                                    .seed = (uint64_t)o->seed};
    heed_session_options wanted = cli_session_options(&o->use, context);
    wanted.attention = spec;
    wanted.sequences = 1 + o->passage.count;
    form->spec = spec;
    g->model = run->model;
    g->most = o->most;
    g->show = !o->use.json;
    TRY(cli_create_session(&cli_run, &g->session, run->model, &wanted));
    heed_session_get_info(g->session, &form->session);
    TRY(heed_sampler_create(&g->sampler, &sampling, run->info.vocabulary));
    return o->stop.count ? heed_stops_create(&g->stops, o->stop.word, o->stop.count) : HEED_OK;
}

heed_status run_load(run_state *run)
{
    cli_generation *g = &run->form[0].generation;
    const char *path = run->options.session;
    if (!path || access(path, F_OK) != 0)
        return HEED_OK;
    TRY(heed_session_load(g->session, 0, path));
    const int32_t *tokens = heed_session_tokens(g->session, 0);
    for (; g->held < heed_session_length(g->session, 0); g->held++)
        TRY(heed_tokens_add(&g->all, tokens[g->held]));
    return HEED_OK;
}

heed_status run_save(const run_state *run)
{
    return run->options.session ? heed_session_save(run->form[0].generation.session, 0, run->options.session)
                                : HEED_OK;
}

heed_status run_fit_prompt(run_state *run, int64_t context)
{
    const int cut = run->options.use.truncate;
    const int64_t first = heed_tokenizer_special(heed_model_tokenizer(run->model)).add_bos;
    if (run->prompt.count == 0)
        return heed_fail(HEED_INVALID, "the prompt has no tokens");
    if (run->prompt.count > context && cut == CLI_CUT_NOTHING)
        return heed_fail(
            HEED_INVALID,
            "the prompt has %lld tokens, the context has room for %lld; --truncate head, middle or tail "
            "says what may be dropped",
            (long long)run->prompt.count, (long long)context);
    const int64_t room =
        run->options.most < context / 2 ? context - run->options.most : context - context / 2;
    run->dropped = run->prompt.count > context ? cli_cut(&run->prompt, room, cut, first, 0) : 0;
    return HEED_OK;
}

static heed_status read_prompt(run_state *run)
{
    cli_text text;
    TRY(cli_read_text(&run->options.use, &text));
    const run_options *o = &run->options;
    heed_status status = run_select_text(run, &text);
    if (!status)
        status = o->passage.count ? heed_tokenize(heed_model_tokenizer(run->model), text.bytes, text.size,
                                                  o->use.parse_special ? HEED_PARSE_SPECIAL : 0, &run->prompt)
                                  : cli_tokens_of(run->model, &o->use, &text, &run->prompt);
    free(text.bytes);
    return status;
}

static int64_t context_for(const run_state *run)
{
    const int64_t needed = run->prompt.count + run->options.most;
    if (run->options.use.context)
        return run->options.use.context;
    return needed < run->info.context ? needed : run->info.context;
}

static int64_t shortest_limit(const run_state *run)
{
    int64_t limit = run->form[0].session.limit;
    for (int i = 1; i < run->forms; i++)
        limit = run->form[i].session.limit < limit ? run->form[i].session.limit : limit;
    return limit;
}

static heed_status write_forms(run_state *run)
{
    const char *specs[RUN_MOST_FORMS] = {run->options.use.attention};
    const int forms = 1 + run->options.compare.count;
    for (int i = 1; i < forms; i++)
        specs[i] = run->options.compare.word[i - 1];
    const int64_t context = context_for(run);
    for (int i = 0; i < forms; i++)
        TRY(run_open_form(run, context, specs[i]));
    TRY(run_load(run));
    TRY(run_fit_prompt(run, shortest_limit(run)));
    TRY(run_splice_passages(run));
    for (int i = 0; i < forms && !cli_interrupted(); i++) {
        if (forms > 1 && !run->options.use.json)
            printf("%s--- %s ---\n", i ? "\n" : "", specs[i] ? specs[i] : "the model's own attention");
        TRY(cli_generate(&run->form[i].generation, &run->prompt));
        if (!run->options.use.json)
            putchar('\n');
    }
    TRY(run_save(run));
    return forms > 1 && !cli_interrupted() ? run_compare(run) : HEED_OK;
}

static heed_status run_model(run_state *run)
{
    TRY(cli_open_model(&cli_run, &run->options.use, &run->model));
    heed_model_get_info(run->model, &run->info);
    if (!run->info.generates)
        return heed_fail(HEED_UNSUPPORTED, "%s models write no text; `heed embed` runs them",
                         run->info.architecture);
    if (run->options.use.context > run->info.context)
        fprintf(stderr, "heed run: note: a context of %lld, but the model was made for %lld tokens\n",
                (long long)run->options.use.context, (long long)run->info.context);
    if (run->options.system && !run->options.chat)
        return heed_fail(HEED_INVALID, "--system goes with --chat");
    if (run->options.passage.count && (run->options.chat || run->options.compare.count ||
                                       run->options.session || run->options.use.truncate != CLI_CUT_NOTHING))
        return heed_fail(
            HEED_INVALID,
            "--passage goes without --chat, --compare, --session and --truncate: passages stand before "
            "one prompt, whole");
    if (run->options.passage_cache && !run->options.passage.count)
        return heed_fail(HEED_INVALID, "--passage-cache goes with --passage");
    if (run->options.chat && (run->options.question || run->options.selective >= 0.0))
        return heed_fail(HEED_INVALID, "--selective and --question go without --chat");
    if (run->options.chat)
        return run_chat(run);
    TRY(read_prompt(run));
    TRY(run_read_passages(run));
    TRY(write_forms(run));
    for (int i = 0; i < run->forms && run->options.use.json; i++)
        run_print_json(run, i);
    if (!run->options.use.json)
        run_print_text(run);
    return HEED_OK;
}

static int run_command(int argc, char **argv)
{
    run_state run = {.options = {.use = CLI_LANGUAGE(),
                                 .most = 256,
                                 .top_p = 1.0,
                                 .repetition = 1.0,
                                 .selective = -1.0,
                                 .unit = HEED_UNIT_PHRASE}};
    cli_arguments arguments;
    int status;
    if (!cli_parse(&cli_run, argc, argv, &run.options, &arguments, 0, 0, &status))
        return status;
    cli_interrupt_begin();
    status = run_model(&run) ? cli_fail_message("run") : CLI_OK;
    cli_interrupt_end();
    if (!status && cli_interrupted())
        status = cli_fail("run", "interrupted after %lld tokens were written",
                          (long long)(run.forms ? run.form[run.forms - 1].generation.written : 0));
    for (int i = 0; i < run.forms; i++) {
        cli_generation_free(&run.form[i].generation);
        heed_divergence_free(&run.form[i].difference);
    }
    run_free_passages(&run);
    heed_selection_free(&run.selection);
    heed_tokens_free(&run.prompt);
    heed_model_close(run.model);
    return status;
}

const cli_command cli_run = {
    .name = "run",
    .arguments = "-m MODEL -p PROMPT",
    .summary = "a model goes on with a text",
    .details =
        "The text comes on standard output, figures on standard error. Ctrl-C ends it with what was "
        "written.\n"
        "Passages are read from position 0 each and moved to their places; the prompt sees them all.\n",
    .example = "heed run -m smollm2 -p \"The capital of France is\" -n 20\n"
               "heed run -m smollm2 --chat -p \"Name three colours.\" -n 30 --compare \"where=causal & "
               "window(32)\"\n",
    .options = options,
    .run = run_command,
};
