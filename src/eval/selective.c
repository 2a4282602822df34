/* What a model foresees of a text, and what of it stays. */
#include "eval/selective.h"
#include "base/try.h"
#include "eval/dice.h"
#include "eval/divergence.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { WINDOW = 1024, STEP = 32 };

static heed_status no_memory(void)
{
    return heed_fail(HEED_NO_MEMORY, "no memory to weigh a text");
}

/* A text on its way. */
typedef struct weighing {
    const heed_selective *wanted;
    heed_model_info info;
    heed_session *session;
    heed_tokens tokens;
    size_t *at; /* [tokens + 1] where their bytes begin in text */
    char *text;
    float *logits; /* [STEP, vocabulary] */
} weighing;

/* Information of the tokens from `scored` on of a window that begins at token `first`. */
static heed_status read_window(weighing *w, int64_t first, int64_t count, int64_t scored, double *information)
{
    TRY(heed_session_cut(w->session, 0, 0));
    for (int64_t t = first, n; t < first + count - 1; t += n) {
        n = first + count - 1 - t < STEP ? first + count - 1 - t : STEP;
        const heed_feed_item item = {
            .tokens = w->tokens.id + t, .count = n, .reading = HEED_READ_PROMPT_PART};
        const bool wanted = t + n >= scored;
        TRY(heed_feed(w->session, &item, 1,
                      &(heed_feed_wants){.logits = wanted ? w->logits : NULL, .all_logits = wanted}));
        for (int64_t i = 0; wanted && i < n; i++)
            if (t + i + 1 >= scored)
                information[t + i + 1] = heed_surprise(w->logits + i * w->info.vocabulary, w->info.vocabulary,
                                                       w->tokens.id[t + i + 1]);
    }
    return HEED_OK;
}

static heed_status read_all(weighing *w, double *information)
{
    const int64_t count = w->tokens.count, asked = w->wanted->window ? w->wanted->window : WINDOW,
                  window = asked < w->info.context ? asked : w->info.context, half = window / 2;
    const heed_session_options options = {.context = window, .threads = w->wanted->threads};
    TRY(heed_session_create(&w->session, w->wanted->model, &options));
    for (int64_t first = 0, scored = 1; scored < count; first += half) {
        const int64_t n = count - first < window ? count - first : window;
        TRY(read_window(w, first, n, scored, information));
        scored = first + n;
    }
    return HEED_OK;
}

/* The bytes of all tokens, and where each begins. */
static heed_status write_tokens(weighing *w)
{
    heed_detokenizer d = {.tokenizer = heed_model_tokenizer(w->wanted->model), .raw = true};
    size_t size = 0, room = 0;
    for (int64_t t = 0; t <= w->tokens.count; t++) {
        const bool more = t < w->tokens.count;
        const size_t here = more ? heed_detokenize(&d, w->tokens.id[t], NULL, 0) : 0;
        w->at[t] = size;
        if (size + here + 1 > room) {
            room = 2 * (size + here + 1);
            char *grown = realloc(w->text, room);
            if (!grown)
                return no_memory();
            w->text = grown;
        }
        w->text[size] = 0;
        if (more)
            heed_detokenize(&d, w->tokens.id[t], w->text + size, here + 1);
        size += here;
    }
    return HEED_OK;
}

static bool is_fixed(const weighing *w, int64_t token)
{
    return heed_token_is_control(heed_model_tokenizer(w->wanted->model), w->tokens.id[token]);
}

static heed_status make_units(weighing *w, heed_selection *s)
{
    const int64_t count = s->tokens;
    uint8_t *start = malloc((size_t)count);
    s->unit = calloc((size_t)count, sizeof *s->unit);
    if (!start || !s->unit) {
        free(start);
        return no_memory();
    }
    heed_cut_units(w->wanted->unit, w->text, w->at, count, start);
    for (int64_t t = 0; t < count; t++) {
        if (start[t] || is_fixed(w, t) || (t > 0 && is_fixed(w, t - 1)))
            s->unit[s->units++] = (heed_text_unit){.first = t, .at = w->at[t]};
        heed_text_unit *unit = &s->unit[s->units - 1];
        unit->count++;
        unit->size = w->at[t + 1] - unit->at;
        unit->information += s->information[t];
    }
    free(start);
    return HEED_OK;
}

double heed_percentile(double *x, int64_t count, double percent)
{
    qsort(x, (size_t)count, sizeof *x, heed_by_size);
    const double place = percent / 100.0 * (double)(count - 1);
    const int64_t below = (int64_t)place, above = below + 1 < count ? below + 1 : below;
    return x[below] + (place - (double)below) * (x[above] - x[below]);
}

static double value_of(const heed_selective *wanted, const heed_text_unit *unit, heed_dice *dice)
{
    return wanted->measure == HEED_BY_LOT    ? (double)(heed_dice_next(dice) >> 11)
           : wanted->measure == HEED_BY_MEAN ? unit->information / (double)unit->count
                                             : unit->information;
}

static heed_status choose(weighing *w, heed_selection *s, const char *text, size_t size)
{
    double *value = malloc((size_t)s->units * sizeof *value),
           *sorted = malloc((size_t)s->units * sizeof *sorted);
    heed_dice dice = heed_dice_for(w->wanted->seed, 217);
    int64_t free_units = 0;
    s->text = malloc((w->at[s->tokens] > size ? w->at[s->tokens] : size) + 1);
    if (!value || !sorted || !s->text) {
        free(value);
        free(sorted);
        return no_memory();
    }
    for (int64_t u = 0; u < s->units; u++) {
        value[u] = is_fixed(w, s->unit[u].first) ? INFINITY : value_of(w->wanted, &s->unit[u], &dice);
        if (value[u] < INFINITY)
            sorted[free_units++] = value[u];
    }
    const double least = free_units ? heed_percentile(sorted, free_units, w->wanted->drop) : 0.0;
    for (int64_t u = 0; u < s->units; u++) {
        heed_text_unit *unit = &s->unit[u];
        unit->stays = value[u] >= least;
        s->all += unit->information;
        if (!unit->stays)
            continue;
        s->kept_units++;
        s->kept_tokens += unit->count;
        s->kept += unit->information;
        memcpy(s->text + s->size, w->text + unit->at, unit->size);
        s->size += unit->size;
    }
    if (s->kept_units == s->units) { /* bytes that a vocabulary writes in another way stay too */
        memcpy(s->text, text, size);
        s->size = size;
    }
    s->text[s->size] = 0;
    free(value);
    free(sorted);
    return HEED_OK;
}

static heed_status weigh(weighing *w, heed_selection *s, const char *text, size_t size)
{
    const heed_tokenizer *tokenizer = heed_model_tokenizer(w->wanted->model);
    heed_model_get_info(w->wanted->model, &w->info);
    if (!w->info.generates || !tokenizer)
        return heed_fail(HEED_UNSUPPORTED,
                         "%s models foresee no tokens of a text, so they cannot say what "
                         "of it is expected",
                         w->info.architecture);
    if (!(w->wanted->drop >= 0.0 && w->wanted->drop <= 100.0))
        return heed_fail(HEED_INVALID, "%g percent of a text cannot be left out, only 0 to 100",
                         w->wanted->drop);
    if (w->wanted->window && w->wanted->window < 2)
        return heed_fail(HEED_INVALID, "a window of %lld tokens foresees none, it must be 2 or more",
                         (long long)w->wanted->window);
    TRY(heed_tokenize(tokenizer, text, size, HEED_ADD_SPECIAL, &w->tokens));
    s->tokens = w->tokens.count;
    if (s->tokens == 0)
        return heed_fail(HEED_INVALID, "the text has no tokens");
    s->information = calloc((size_t)s->tokens, sizeof *s->information);
    w->at = malloc(((size_t)s->tokens + 1) * sizeof *w->at);
    w->logits = malloc((size_t)STEP * (size_t)w->info.vocabulary * sizeof *w->logits);
    if (!s->information || !w->at || !w->logits)
        return no_memory();
    TRY(read_all(w, s->information));
    TRY(write_tokens(w));
    TRY(make_units(w, s));
    return choose(w, s, text, size);
}

heed_status heed_select_context(heed_selection *selection, const heed_selective *wanted, const char *text,
                                size_t size)
{
    weighing w = {.wanted = wanted};
    *selection = (heed_selection){.units = 0};
    const heed_status status = weigh(&w, selection, text, size);
    heed_session_free(w.session);
    heed_tokens_free(&w.tokens);
    free(w.at);
    free(w.text);
    free(w.logits);
    if (status)
        heed_selection_free(selection);
    return status;
}

void heed_selection_free(heed_selection *selection)
{
    free(selection->unit);
    free(selection->information);
    free(selection->text);
    *selection = (heed_selection){.units = 0};
}
