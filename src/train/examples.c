#include "train/examples.h"

#include <stdlib.h>
#include <string.h>

int64_t heed_data_rows(const heed_data *data)
{
    if (data->objective == HEED_OBJECTIVE_CONTRASTIVE)
        return data->records.fields >> HEED_FIELD_OTHER & 1u ? 3 : 2;
    return data->objective == HEED_OBJECTIVE_PREFERENCE ? 2 : 1;
}

bool heed_objective_pools(heed_objective objective)
{
    return objective == HEED_OBJECTIVE_CLASS || objective == HEED_OBJECTIVE_CONTRASTIVE ||
           objective == HEED_OBJECTIVE_REGRESSION || objective == HEED_OBJECTIVE_DENOISE;
}

/* A text on its way into a row. */
typedef struct row {
    int32_t *token, *target;
    int64_t context, count;
} row;

/* `prompt`, of which nothing is asked, then `answer` and the end, which are. What does not fit goes from the
 * front of the prompt. */
static int32_t put_answer(const heed_data *data, const int32_t *prompt, int64_t prompts,
                          const int32_t *answer, int64_t answers, row to)
{
    const int64_t end = data->end >= 0, most = to.context + 1;
    const int64_t asked = answers + end < most ? answers + end : most - 1;
    const int64_t before = prompts < most - asked ? prompts : most - asked;
    int32_t last = -1;
    for (int64_t i = 0; i < before + asked; i++) {
        const int64_t j = i - before;
        const int32_t token = j < 0 ? prompt[prompts - before + i] : j < answers ? answer[j] : data->end;
        if (i < to.context)
            to.token[i] = token;
        if (i > 0)
            to.target[i - 1] = j >= 0 ? token : -1;
        last = (int32_t)i;
    }
    return last < (int32_t)to.context ? last + 1 : (int32_t)to.context;
}

/* All of a text is asked for. */
static int32_t put_text(const heed_data *data, const int32_t *text, int64_t count, row to)
{
    const int64_t end = data->end >= 0;
    const int64_t all = count + end < to.context + 1 ? count + end : to.context + 1;
    for (int64_t i = 0; i < all; i++) {
        const int32_t token = i < count ? text[i] : data->end;
        if (i < to.context)
            to.token[i] = token;
        if (i > 0)
            to.target[i - 1] = token;
    }
    return (int32_t)(all < to.context ? all : to.context);
}

/* A text to be judged as a whole. */
static int32_t put_whole(const int32_t *text, int64_t count, row to)
{
    const int64_t all = count < to.context ? count : to.context;
    memcpy(to.token, text, (size_t)all * sizeof *text);
    return (int32_t)all;
}

/* Words hidden in n tokens: spans of 1 to 5, one in each of equal parts, about 15 % of all (Raffel et al.:
 * T5, 2020). */
static int64_t spans_in(int64_t n)
{
    const int64_t spans = n / 20;
    return spans < 1 ? 1 : spans < HEED_SENTINELS - 1 ? spans : HEED_SENTINELS - 1;
}

/* Most tokens of which what is left, a mark and the spans fit into `context`. */
static int64_t text_that_fits(int64_t context)
{
    int64_t n = context;
    while (n > 1 && n + 2 * spans_in(n) + 2 > context)
        n--;
    return n;
}

/* Text with marks for spans to `left`; marks with their spans, and an end, to `hidden`. */
static void hide_spans(const heed_data *data, heed_draw *draw, const int32_t *text, int64_t n, int32_t *left,
                       int64_t *lefts, int32_t *hidden, int64_t *hiddens)
{
    const int64_t spans = spans_in(n), part = n / spans;
    int64_t at = 0;
    *lefts = *hiddens = 0;
    for (int64_t s = 0; s < spans; s++) {
        int64_t length = 1 + heed_draw_below(draw, 5);
        length = length < part ? length : part > 1 ? part - 1 : 1;
        const int64_t from = s * part + heed_draw_below(draw, part - length + 1);
        const int32_t mark = (int32_t)(data->sentinel + s);
        while (at < from)
            left[(*lefts)++] = text[at++];
        left[(*lefts)++] = mark;
        hidden[(*hiddens)++] = mark;
        for (; at < from + length && at < n; at++)
            hidden[(*hiddens)++] = text[at];
    }
    while (at < n)
        left[(*lefts)++] = text[at++];
    hidden[(*hiddens)++] = (int32_t)(data->sentinel + HEED_SENTINELS - 1);
}

/* An encoder reads `source`; the decoder begins with `start` and says `answer`. */
static void put_pair(const heed_data *data, const int32_t *source, int64_t sources, int32_t start,
                     const int32_t *answer, int64_t answers, row to, heed_example *example)
{
    const int64_t all = sources < data->source_context ? sources : data->source_context;
    memcpy(example->source, source, (size_t)all * sizeof *source);
    example->source_length = (int32_t)all;
    const int64_t end = data->end >= 0, asked = answers + end < to.context ? answers + end : to.context;
    for (int64_t i = 0; i < asked; i++) {
        const int32_t token = i < answers ? answer[i] : data->end;
        to.target[i] = token;
        to.token[i] = i == 0 ? start : i - 1 < answers ? answer[i - 1] : data->end;
    }
    *example->length = (int32_t)asked;
}

/* The text that an example is made of, where it is one: a record's, or a stretch. */
static const int32_t *text_of(const heed_data *data, heed_draw *draw, bool held_out, uint64_t which,
                              int64_t record, int64_t most, int64_t *count)
{
    if (data->records.count)
        return heed_record_text(&data->records, record, HEED_FIELD_TEXT, count);
    const int64_t first = data->tokens - data->held_out;
    *count = most;
    return data->text + (held_out ? first + (int64_t)which * most : heed_draw_below(draw, first - most));
}

static void make_spans(const heed_data *data, heed_draw *draw, bool held_out, uint64_t which, int64_t record,
                       row to, heed_example *example, int32_t *room)
{
    const bool apart = data->source_context > 0;
    const int64_t most = text_that_fits(apart ? data->source_context : to.context);
    const int32_t separator = (int32_t)(data->sentinel + HEED_SENTINELS - 1);
    int64_t count, lefts, hiddens;
    const int32_t *text = text_of(data, draw, held_out, which, record, most, &count);
    int32_t *left = room, *hidden = room + to.context + data->source_context;
    hide_spans(data, draw, text, count < most ? count : most, left, &lefts, hidden, &hiddens);
    if (apart) {
        put_pair(data, left, lefts, separator, hidden, hiddens, to, example);
        return;
    }
    left[lefts++] = separator;
    *example->length = put_answer(&(heed_data){.end = -1}, left, lefts, hidden, hiddens, to);
}

static void make_record(const heed_data *data, int64_t record, row to, heed_example *example)
{
    int64_t count[HEED_FIELDS];
    const int32_t *text[HEED_FIELDS];
    const heed_records *all = &data->records;
    for (int f = 0; f < HEED_FIELDS; f++)
        text[f] = heed_record_text(all, record, f, &count[f]);
    const row second = {to.token + to.context, to.target + to.context, to.context, 0};
    switch (data->objective) {
    case HEED_OBJECTIVE_CONTRASTIVE:
        *example->target = 0;
        for (int f = 0; f < (int)heed_data_rows(data); f++)
            example->length[f] =
                put_whole(text[f], count[f], (row){to.token + f * to.context, NULL, to.context, 0});
        return;
    case HEED_OBJECTIVE_CLASS:
    case HEED_OBJECTIVE_REGRESSION:
        *example->length = put_whole(text[0], count[0], to);
        *example->target = data->objective == HEED_OBJECTIVE_CLASS ? all->label[record] : 0;
        example->number = all->number[record];
        return;
    case HEED_OBJECTIVE_PREFERENCE:
        example->length[0] = put_answer(data, text[0], count[0], text[1], count[1], to);
        example->length[1] = put_answer(data, text[0], count[0], text[2], count[2], second);
        return;
    default:
        if (data->source_context > 0)
            put_pair(data, text[0], count[0], data->end, text[1], count[1], to, example);
        else if (all->fields >> HEED_FIELD_ANSWER & 1u)
            *example->length = put_answer(data, text[0], count[0], text[1], count[1], to);
        else
            *example->length = put_text(data, text[0], count[0], to);
    }
}

/* An encoder reads what stands before the first answer, the decoder says the rest. */
static void make_split_task(const heed_data *data, bool held_out, uint64_t which, row to,
                            heed_example *example, int32_t *room)
{
    const int64_t n = data->source_context + to.context - 1;
    int32_t *token = room, *target = room + n;
    heed_draw draw = {.seed = data->seed, .which = which << 1 | held_out};
    for (int64_t i = 0; i < n; i++) {
        token[i] = 0;
        target[i] = -1;
    }
    data->task->make(data->arg, &draw, token, target);
    const int64_t first = data->source_context - 1;
    memcpy(example->source, token, (size_t)data->source_context * sizeof *token);
    memcpy(to.token, token + first, (size_t)to.context * sizeof *token);
    memcpy(to.target, target + first, (size_t)to.context * sizeof *target);
    example->source_length = (int32_t)data->source_context;
    *example->length = (int32_t)to.context;
}

heed_status heed_data_split_task(heed_data *data)
{
    heed_draw draw = {.seed = data->seed, .which = 1};
    const int64_t n = data->context;
    int64_t first = 0;
    int32_t *token = calloc(2 * (size_t)n + 1, sizeof *token);
    if (!token)
        return heed_fail(HEED_NO_MEMORY, "no memory for a sequence");
    for (int64_t i = 0; i < n; i++)
        token[n + i] = -1;
    data->task->make(data->arg, &draw, token, token + n);
    while (first + 1 < n && token[n + first] < 0)
        first++;
    free(token);
    data->source_context = first + 1;
    data->context = n - first;
    return HEED_OK;
}

static void clear(const heed_data *data, int64_t context, heed_example *to)
{
    const int64_t rows = heed_data_rows(data);
    memset(to->token, 0, (size_t)(rows * context) * sizeof *to->token);
    for (int64_t i = 0; i < (heed_objective_pools(data->objective) ? 1 : rows * context); i++)
        to->target[i] = -1;
    for (int64_t i = 0; i < rows; i++)
        to->length[i] = (int32_t)context;
    if (to->source)
        memset(to->source, 0, (size_t)data->source_context * sizeof *to->source);
    to->source_length = (int32_t)data->source_context;
    to->number = 0.0f;
}

/* Training draws records, evaluation goes through those behind the others. */
static int64_t record_of(const heed_data *data, bool held_out, uint64_t which)
{
    heed_draw draw = {.seed = data->seed, .which = which << 1, .place = UINT64_C(1) << 40};
    const int64_t first = data->records.count - data->held_out;
    return held_out ? first + (int64_t)which % (data->held_out ? data->held_out : 1)
                    : heed_draw_below(&draw, first);
}

void heed_data_example(const heed_data *data, bool held_out, uint64_t which, int64_t context,
                       heed_example *to, int32_t *room)
{
    heed_draw draw = {.seed = data->seed, .which = which << 1 | held_out};
    const row first = {to->token, to->target, context, 0};
    const int64_t record = data->records.count ? record_of(data, held_out, which) : 0;
    clear(data, context, to);
    if (data->objective == HEED_OBJECTIVE_SPAN) {
        make_spans(data, &draw, held_out, which, record, first, to, room);
    } else if (data->records.count) {
        make_record(data, record, first, to);
        if (data->objective == HEED_OBJECTIVE_MASKED)
            heed_data_mask(data, &draw, *to->length, to->token, to->target);
    } else if (data->source_context > 0) {
        make_split_task(data, held_out, which, first, to, room);
    } else {
        memset(room, 0, 2 * (size_t)context * sizeof *room);
        heed_data_make(data, held_out, which, context, room, to->target);
        memcpy(to->token, room, (size_t)context * sizeof *room);
    }
}
