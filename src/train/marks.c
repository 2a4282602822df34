#include "train/marks.h"

static int64_t period(const heed_data *data)
{
    return data->between + data->marks;
}

/* Marks in front of the first token of a run: of one mark none, of two the first. */
static int64_t before(const heed_data *data)
{
    return data->marks - 1;
}

int64_t heed_marks_tokens(const heed_data *data, int64_t context)
{
    if (!data->marks)
        return context;
    const int64_t left = context % period(data) - before(data);
    return context / period(data) * data->between + (left < 0               ? 0
                                                     : left > data->between ? data->between
                                                                            : left);
}

static int64_t place_of(const heed_data *data, int64_t i)
{
    return i / data->between * period(data) + before(data) + i % data->between;
}

int64_t heed_marks_places(const heed_data *data, int64_t tokens)
{
    return data->marks && tokens ? place_of(data, tokens - 1) + 1 : tokens;
}

void heed_marks_put(const heed_data *data, int64_t context, int32_t *token, int32_t *target)
{
    int64_t end = context;
    if (!data->marks)
        return;
    for (int64_t i = heed_marks_tokens(data, context) - 1; i >= -1; i--) {
        const int64_t place = i < 0 ? -1 : place_of(data, i);
        const int32_t moved = i < 0 ? 0 : token[i], asked = i < 0 ? 0 : target[i];
        for (int64_t p = place + 1; p < end; p++) {
            const bool first = data->marks == 2 && p % period(data) == 0;
            token[p] = (int32_t)(data->vocabulary - data->marks + !first * (data->marks - 1));
            target[p] = -1;
        }
        if (i >= 0) {
            token[place] = moved;
            target[place] = asked;
        }
        end = place;
    }
}

heed_status heed_marks_open(heed_data *data, int64_t landmarks, int64_t sentinels)
{
    if (!landmarks && !sentinels)
        return HEED_OK;
    if (landmarks && sentinels)
        return heed_fail(HEED_INVALID, "landmarks = %lld and sentinels = %lld: a text has one or the other",
                         (long long)landmarks, (long long)sentinels);
    if (data->objective != HEED_OBJECTIVE_NEXT || data->records.count || data->source_context)
        return heed_fail(HEED_INVALID,
                         "landmarks and sentinels stand in texts and tasks of objective = next");
    data->marks = landmarks ? 1 : 2;
    data->between = landmarks ? landmarks : sentinels;
    data->vocabulary += data->marks;
    data->context = heed_marks_places(data, data->context);
    return HEED_OK;
}
