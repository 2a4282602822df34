#include "eval/reading.h"
#include "base/try.h"

#include <stdlib.h>

heed_status heed_readers_create(heed_reading *reading)
{
    for (int i = 0; i < reading->readers; i++) {
        heed_reader *reader = &reading->reader[i];
        reader->logits = malloc((size_t)HEED_READING_STEP * (size_t)reading->vocabulary * sizeof(float));
        if (!reader->logits)
            return heed_fail(HEED_NO_MEMORY, "no memory for the logits of %d tokens", HEED_READING_STEP);
    }
    return HEED_OK;
}

void heed_readers_free(heed_reading *reading)
{
    for (int i = 0; i < reading->readers; i++) {
        heed_reader *reader = &reading->reader[i];
        free(reader->logits);
        heed_divergence_free(&reader->window);
        heed_divergence_free(&reader->all);
        heed_divergence_free(&reader->last_quarter);
    }
}

/* The logits of tokens first .. first + rows - 1 against the tokens that follow them. */
static heed_status judge(heed_reading *reading, heed_reader *reader, const int32_t *tokens, int64_t first,
                         int64_t rows, int64_t count, heed_reading_part part)
{
    heed_difference difference[HEED_READING_STEP];
    const int64_t scored = first + rows < count ? rows : rows - 1; /* nothing follows the last token */
    heed_differ_rows(reading->reader->logits, reader->logits, scored, reading->vocabulary, tokens + first + 1,
                     reading->threads, difference);
    for (int64_t i = 0; i < scored; i++) {
        heed_divergence *to = part == HEED_READING_WINDOW ? &reader->window : &reader->all;
        TRY(heed_divergence_add(to, first + i, &difference[i]));
        if (part == HEED_READING_LONG && first + i >= count - count / 4)
            TRY(heed_divergence_add(&reader->last_quarter, first + i, &difference[i]));
    }
    return HEED_OK;
}

static void advance(const heed_reading *reading, int64_t tokens)
{
    if (reading->progress)
        reading->progress(reading->context, tokens * reading->readers);
}

/* The first half is a prompt, at whose end policies act. */
static heed_status read_prompt(heed_reading *reading, const int32_t *tokens, int64_t count)
{
    for (int i = 0; i < reading->readers && count; i++) {
        TRY(heed_session_cut(reading->reader[i].session, 0, 0));
        TRY(heed_feed(reading->reader[i].session, &(heed_feed_item){.tokens = tokens, .count = count}, 1,
                      NULL));
    }
    advance(reading, count);
    return HEED_OK;
}

heed_status heed_read_text(heed_reading *reading, const int32_t *tokens, int64_t count,
                           heed_reading_part part)
{
    TRY(read_prompt(reading, tokens, count / 2));
    for (int64_t first = count / 2; first < count; first += HEED_READING_STEP) {
        const int64_t rows = count - first < HEED_READING_STEP ? count - first : HEED_READING_STEP;
        for (int i = 0; i < reading->readers; i++) {
            heed_reader *reader = &reading->reader[i];
            const heed_feed_item item = {
                .tokens = tokens + first, .count = rows, .reading = HEED_READ_WRITTEN};
            TRY(heed_feed(reader->session, &item, 1,
                          &(heed_feed_wants){.logits = reader->logits, .all_logits = true}));
            TRY(judge(reading, reader, tokens, first, rows, count, part));
        }
        advance(reading, rows);
    }
    return HEED_OK;
}
