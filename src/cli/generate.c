#include "cli/generate.h"
#include "base/clock.h"
#include "base/try.h"
#include "cli/progress.h"

#include <signal.h>
#include <stdlib.h>
#include <string.h>

enum { READ_AT_ONCE = 512 };

static volatile sig_atomic_t interrupted;

static void interrupt(int signal)
{
    (void)signal;
    interrupted = 1;
}

void cli_interrupt_begin(void)
{
    struct sigaction action = {.sa_handler = interrupt};
    interrupted = 0;
    sigaction(SIGINT, &action, NULL);
}

void cli_interrupt_end(void)
{
    struct sigaction action = {.sa_handler = SIG_DFL};
    sigaction(SIGINT, &action, NULL);
}

bool cli_interrupted(void)
{
    return interrupted;
}

const char *cli_finish_word(cli_finish finish)
{
    static const char *const words[] = {"end", "stop", "length", "context", "interrupt"};
    return words[finish];
}

/* Adds to the text, and shows it. */
static heed_status put(cli_generation *g, const char *text, size_t size)
{
    if (g->size + size + 1 > g->room) {
        const size_t room = 2 * (g->size + size) + 256;
        char *grown = realloc(g->text, room);
        if (!grown)
            return heed_fail(HEED_NO_MEMORY, "no memory for the text");
        g->text = grown;
        g->room = room;
    }
    memcpy(g->text + g->size, text, size);
    g->size += size;
    g->text[g->size] = 0;
    if (g->show && size) {
        fwrite(text, 1, size, stdout);
        fflush(stdout);
    }
    return HEED_OK;
}

/* What a token adds goes past the stop strings. */
static heed_status put_token(cli_generation *g, heed_detokenizer *detokenizer, int32_t id)
{
    char few[256], *text = few;
    const size_t size = heed_detokenize(detokenizer, id, few, 0);
    if (size >= sizeof few && !(text = malloc(size + 1)))
        return heed_fail(HEED_NO_MEMORY, "no memory for the text of a token");
    heed_detokenize(detokenizer, id, text, size + 1);
    const char *out = text;
    size_t out_size = size;
    heed_status status = g->stops ? heed_stops_push(g->stops, text, size, &out, &out_size) : HEED_OK;
    if (!status)
        status = put(g, out, out_size);
    if (text != few)
        free(text);
    return status;
}

static heed_status finish_text(cli_generation *g, heed_detokenizer *detokenizer)
{
    if (g->stops && heed_stops_met(g->stops) >= 0)
        return HEED_OK;
    TRY(put_token(g, detokenizer, -1));
    if (!g->stops)
        return HEED_OK;
    const char *out;
    size_t size;
    heed_stops_flush(g->stops, &out, &size);
    return put(g, out, size);
}

/* All tokens that the session does not hold yet; the logits of the last. */
static heed_status read_tokens(cli_generation *g, float *logits)
{
    cli_progress progress = {.what = "reading", .unit = "tokens", .scale = 1.0};
    heed_status status = HEED_OK;
    const bool prompt = g->all.count - g->held > 1;
    heed_session_info info;
    heed_session_get_info(g->session, &info);
    const int64_t room = heed_session_room(g->session, 0);
    if (prompt && g->all.count - g->held > room)
        return heed_fail(
            HEED_INVALID,
            "the prompt has %lld tokens, but there is room for %lld keys before the policy acts at its end; "
            "with `> chunked(n)` it acts while the prompt is read",
            (long long)(g->all.count - g->held), (long long)room);
    while (g->held < g->all.count && !status && !interrupted) {
        const int64_t left = g->all.count - g->held;
        const int64_t count = left < READ_AT_ONCE || info.whole_prompts ? left : READ_AT_ONCE;
        const heed_feed_item item = {.tokens = g->all.id + g->held,
                                     .count = count,
                                     .reading = !prompt        ? HEED_READ_WRITTEN
                                                : count < left ? HEED_READ_PROMPT_PART
                                                               : HEED_READ_PROMPT_END};
        if (left > READ_AT_ONCE)
            cli_progress_show(&progress, (double)g->held, (double)g->all.count);
        status = heed_feed(g->session, &item, 1, &(heed_feed_wants){.logits = count == left ? logits : NULL});
        g->held += status ? 0 : count;
    }
    cli_progress_end(&progress);
    return status;
}

/* Draws the next token; `over` when the text is. */
static heed_status write_token(cli_generation *g, heed_detokenizer *detokenizer, const float *logits,
                               bool *over)
{
    heed_session_info info;
    heed_session_get_info(g->session, &info);
    int32_t id = 0;
    *over = true;
    if (interrupted)
        g->finish = CLI_FINISH_INTERRUPT;
    else if (g->written == g->most)
        g->finish = CLI_FINISH_LENGTH;
    else if (g->held == info.limit)
        g->finish = CLI_FINISH_CONTEXT;
    else
        *over = false;
    if (*over)
        return HEED_OK;
    TRY(heed_sample(g->sampler, logits, g->all.id, g->all.count, 0, (uint64_t)g->all.count, &id));
    if (heed_token_ends(heed_model_tokenizer(g->model), id)) {
        g->finish = CLI_FINISH_END;
        *over = true;
        return HEED_OK;
    }
    TRY(heed_tokens_add(&g->all, id));
    g->written++;
    TRY(put_token(g, detokenizer, id));
    if (g->stops && heed_stops_met(g->stops) >= 0) {
        g->finish = CLI_FINISH_STOP;
        *over = true;
    }
    return HEED_OK;
}

/* What the session holds becomes a beginning of the prompt, short of its last token, whose logits are wanted.
 */
static heed_status take_prompt(cli_generation *g, const heed_tokens *prompt)
{
    int64_t same = 0;
    while (same < g->held && same + 1 < prompt->count && g->all.id[same] == prompt->id[same])
        same++;
    g->anew = 0;
    if (heed_session_cut(g->session, 0, same)) { /* keys that are needed there are gone: all is read anew */
        g->anew = same;
        same = 0;
        TRY(heed_session_cut(g->session, 0, same));
    }
    g->held = g->reused = g->all.count = same;
    g->read = prompt->count - same;
    for (int64_t i = same; i < prompt->count; i++)
        TRY(heed_tokens_add(&g->all, prompt->id[i]));
    return HEED_OK;
}

static heed_status write_on(cli_generation *g, heed_detokenizer *detokenizer, float *logits)
{
    for (;;) {
        bool over;
        TRY(write_token(g, detokenizer, logits, &over));
        if (over)
            return finish_text(g, detokenizer);
        TRY(read_tokens(g, logits));
    }
}

heed_status cli_generate(cli_generation *g, const heed_tokens *prompt)
{
    heed_model_info info;
    heed_model_get_info(g->model, &info);
    heed_detokenizer detokenizer = {.tokenizer = heed_model_tokenizer(g->model), .tokens = 1};
    float *logits = malloc((size_t)info.vocabulary * sizeof *logits);
    g->size = 0;
    g->written = 0;
    if (g->stops)
        heed_stops_restart(g->stops);
    heed_status status =
        logits ? put(g, "", 0) : heed_fail(HEED_NO_MEMORY, "no memory for the logits of a token");
    if (!status)
        status = take_prompt(g, prompt);
    const double start = heed_seconds();
    if (!status)
        status = read_tokens(g, logits);
    const double between = heed_seconds();
    if (!status)
        status = write_on(g, &detokenizer, logits);
    g->read_seconds = between - start;
    g->write_seconds = heed_seconds() - between;
    free(logits);
    return status;
}

void cli_generation_free(cli_generation *g)
{
    heed_tokens_free(&g->all);
    free(g->text);
    heed_session_free(g->session);
    heed_sampler_free(g->sampler);
    heed_stops_free(g->stops);
    *g = (cli_generation){.held = 0};
}
