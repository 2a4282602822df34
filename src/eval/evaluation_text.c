/* The part of an evaluation that reads a text: the model's own attention once for several specs. */
#include "base/try.h"
#include "eval/evaluation_parts.h"
#include "eval/reading.h"

#define MOST_CACHE 1073741824.0 /* bytes of caches of readers that go side by side */
enum { READERS = 9 };

static void advance_reading(void *context, int64_t tokens)
{
    heed_eval_advance(context, NULL, (double)tokens);
}

/* Short texts from all over the book, then the long one from its beginning. */
static heed_status read_texts(heed_eval_run *r, heed_reading *reading)
{
    const heed_suite *suite = &r->wanted->suite;
    heed_status status = HEED_OK;
    for (int64_t w = 0; w <= suite->windows && !status; w++) {
        const bool whole = w == suite->windows;
        const int64_t length = whole ? suite->text : suite->window;
        heed_tokens text = {.id = NULL};
        status = heed_tokens_join(&text, &r->material.start);
        if (!status)
            status = heed_tokens_fill(&text, &r->material.book,
                                      whole ? 0 : r->material.book.count * (w + 1) / (suite->windows + 1),
                                      length - text.count);
        if (!status)
            status =
                heed_read_text(reading, text.id, length, whole ? HEED_READING_LONG : HEED_READING_WINDOW);
        heed_tokens_free(&text);
    }
    return status;
}

static heed_status take_reading(heed_eval_run *r, heed_reader *reader, const char *spec)
{
    heed_result *result = heed_results_of(r->results, spec);
    if (!result)
        return HEED_NO_MEMORY;
    result->read = true;
    result->reading =
        (heed_read_result){.window = heed_divergence_perplexity(&reader->window, 1),
                           .text = heed_divergence_perplexity(&reader->all, 1),
                           .last_quarter = heed_divergence_perplexity(&reader->last_quarter, 1),
                           .kl_mean = heed_divergence_mean(&reader->all),
                           .kl_999 = heed_divergence_quantile(&reader->all, 0.999),
                           .same_top = (double)reader->all.same_top / (double)reader->all.positions,
                           .positions = reader->all.positions};
    return HEED_OK;
}

/* The reference and specs[0..count) side by side. */
static heed_status read_group(heed_eval_run *r, const int *specs, int count)
{
    heed_reader reader[READERS] = {{.session = NULL}};
    heed_reading reading = {.reader = reader,
                            .readers = count + 1,
                            .vocabulary = r->info.vocabulary,
                            .progress = advance_reading,
                            .context = r};
    heed_session_info info;
    heed_status status = HEED_OK;
    r->what = "text";
    for (int i = 0; i <= count && !status; i++)
        status = heed_eval_session(r, heed_eval_spec(r, i ? specs[i - 1] : -1), &reader[i].session);
    if (!status) {
        heed_session_get_info(reader->session, &info);
        reading.threads = info.threads;
        status = heed_readers_create(&reading);
    }
    if (!status)
        status = read_texts(r, &reading);
    for (int i = 0; i <= count && !status; i++)
        status = take_reading(r, &reader[i], heed_eval_spec(r, i ? specs[i - 1] : -1));
    heed_readers_free(&reading);
    for (int i = 0; i <= count; i++)
        heed_session_free(reader[i].session);
    return status ? status : heed_eval_save(r);
}

/* How many specs go side by side with the reference, which is read once for all of them. */
static heed_status room_for_readers(const heed_eval_run *r, int *most)
{
    heed_session *session;
    heed_session_info info;
    TRY(heed_eval_session(r, "", &session));
    heed_session_get_info(session, &info);
    heed_session_free(session);
    const double each = info.cache_token_bytes * (double)r->wanted->suite.text + 1.0;
    *most = MOST_CACHE / each < READERS ? (int)(MOST_CACHE / each) - 1 : READERS - 1;
    *most = *most < 1 ? 1 : *most;
    return HEED_OK;
}

/* Specs whose reading is not done, a group at a time; the first group also when only the reference is not. */
heed_status heed_eval_text(heed_eval_run *r)
{
    int group[READERS], count = 0, most;
    const heed_result *own = heed_results_of(r->results, "");
    if (!own)
        return HEED_NO_MEMORY;
    bool missing = !own->read;
    TRY(room_for_readers(r, &most));
    for (int i = 0; i <= r->wanted->specs; i++) {
        if (i < r->wanted->specs) {
            const heed_result *result = heed_results_of(r->results, r->wanted->spec[i]);
            if (!result)
                return HEED_NO_MEMORY;
            if (!result->read)
                group[count++] = i;
        }
        if (count == most || (i == r->wanted->specs && (count || missing))) {
            TRY(read_group(r, group, count));
            missing = false;
            count = 0;
        }
    }
    return HEED_OK;
}
