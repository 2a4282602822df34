/* Fragments of a text and the session that holds it. */
#include "eval/sculptor.h"
#include "base/try.h"
#include "eval/sculptor_parts.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static heed_status no_memory(void)
{
    return heed_fail(HEED_NO_MEMORY, "no memory for the fragments of a text");
}

/* Where tokens begin in the text that they write. */
static heed_status write_text(heed_sculptor *s, const heed_tokenizer *tokenizer, size_t *at)
{
    heed_detokenizer d = {.tokenizer = tokenizer, .raw = true};
    size_t size = 0, room = 0;
    for (int64_t t = 0; t <= s->tokens.count; t++) {
        const size_t here = t < s->tokens.count ? heed_detokenize(&d, s->tokens.id[t], NULL, 0) : 0;
        at[t] = size;
        if (size + here + 1 > room) {
            room = 2 * (size + here + 1);
            char *grown = realloc(s->text, room);
            if (!grown)
                return no_memory();
            s->text = grown;
        }
        s->text[size] = 0;
        if (t < s->tokens.count)
            heed_detokenize(&d, s->tokens.id[t], s->text + size, here + 1);
        size += here;
    }
    return HEED_OK;
}

/* A fragment begins at a token that follows the end of a line. */
static bool follows_line(const heed_sculptor *s, const size_t *at, int64_t t)
{
    return t > 0 && at[t] > 0 && s->text[at[t] - 1] == '\n';
}

static heed_status cut(heed_sculptor *s, const heed_tokenizer *tokenizer, int64_t each)
{
    size_t *at = malloc(((size_t)s->tokens.count + 1) * sizeof *at);
    s->fragment = calloc((size_t)s->tokens.count + 1, sizeof *s->fragment);
    heed_status status = at && s->fragment ? write_text(s, tokenizer, at) : no_memory();
    for (int64_t t = 0; t < s->tokens.count && !status; t++) {
        if (t == 0 || (each ? s->fragment[s->fragments - 1].count == each : follows_line(s, at, t)))
            s->fragment[s->fragments++] = (heed_fragment){.first = t, .at = at[t]};
        heed_fragment *fragment = &s->fragment[s->fragments - 1];
        fragment->count++;
        fragment->size = at[t + 1] - fragment->at;
    }
    free(at);
    return status;
}

static heed_status make_session(heed_sculptor *s, const heed_model *model,
                                const heed_sculptor_options *wanted)
{
    char attention[2048];
    const int length = snprintf(attention, sizeof attention, "%s%scache=fifo(share=1)",
                                wanted->attention ? wanted->attention : "", wanted->attention ? "; " : "");
    if (length < 0 || (size_t)length >= sizeof attention)
        return heed_fail(HEED_INVALID, "an attention of %d bytes is too long", length);
    TRY(heed_session_create(&s->session, model,
                            &(heed_session_options){.context = s->tokens.count + wanted->room,
                                                    .sequences = 2,
                                                    .attention = attention,
                                                    .cache = wanted->cache,
                                                    .cache_given = wanted->cache_given,
                                                    .threads = wanted->threads}));
    return heed_feed(s->session, &(heed_feed_item){.tokens = s->tokens.id, .count = s->tokens.count}, 1,
                     NULL);
}

static heed_status build(heed_sculptor *s, const heed_model *model, const heed_sculptor_options *wanted)
{
    const heed_tokenizer *tokenizer = heed_model_tokenizer(model);
    if (!tokenizer)
        return heed_fail(HEED_UNSUPPORTED, "the model has no tokeniser, so a text has no fragments");
    if (wanted->fragment < 0 || wanted->room < 1)
        return heed_fail(HEED_INVALID, "fragments of %lld tokens and room for %lld more make no sense",
                         (long long)wanted->fragment, (long long)wanted->room);
    s->tokenizer = tokenizer;
    TRY(heed_tokenize(tokenizer, wanted->text, strlen(wanted->text), HEED_ADD_SPECIAL, &s->tokens));
    if (s->tokens.count == 0)
        return heed_fail(HEED_INVALID, "the text has no tokens");
    TRY(cut(s, tokenizer, wanted->fragment));
    return make_session(s, model, wanted);
}

heed_status heed_sculptor_create(heed_sculptor **sculptor, const heed_model *model,
                                 const heed_sculptor_options *options)
{
    heed_sculptor *s = calloc(1, sizeof *s);
    *sculptor = NULL;
    if (!s)
        return no_memory();
    const heed_status status = build(s, model, options);
    if (status)
        heed_sculptor_free(s);
    else
        *sculptor = s;
    return status;
}

void heed_sculptor_free(heed_sculptor *s)
{
    if (!s)
        return;
    for (int i = 0; i < s->fragments; i++)
        heed_tokens_free(&s->fragment[i].brief);
    heed_session_free(s->session);
    heed_tokens_free(&s->tokens);
    free(s->fragment);
    free(s->text);
    free(s);
}

int heed_sculptor_fragments(const heed_sculptor *s)
{
    return s->fragments;
}

const heed_fragment *heed_sculptor_fragment(const heed_sculptor *s, int id)
{
    return id >= 0 && id < s->fragments ? &s->fragment[id] : NULL;
}

char *heed_sculptor_get(const heed_sculptor *s, int id)
{
    const heed_fragment *fragment = heed_sculptor_fragment(s, id);
    char *copy = fragment ? malloc(fragment->size + 1) : NULL;
    if (!copy)
        return NULL;
    memcpy(copy, s->text + fragment->at, fragment->size);
    copy[fragment->size] = 0;
    return copy;
}

static heed_status find(heed_sculptor *s, int id, heed_fragment **fragment)
{
    if (id < 0 || id >= s->fragments)
        return heed_fail(HEED_INVALID, "there is no fragment %d, the text has %d", id, s->fragments);
    *fragment = &s->fragment[id];
    return HEED_OK;
}

heed_status heed_sculptor_hide(heed_sculptor *s, int id)
{
    heed_fragment *fragment = NULL;
    TRY(find(s, id, &fragment));
    fragment->hidden = true;
    return HEED_OK;
}

heed_status heed_sculptor_restore(heed_sculptor *s, int id)
{
    heed_fragment *fragment = NULL;
    TRY(find(s, id, &fragment));
    fragment->hidden = false;
    heed_tokens_free(&fragment->brief);
    fragment->brief = (heed_tokens){.count = 0};
    return HEED_OK;
}

heed_status heed_sculptor_summarise(heed_sculptor *s, int id, const char *brief)
{
    heed_fragment *fragment = NULL;
    heed_tokens tokens = {.count = 0};
    TRY(find(s, id, &fragment));
    const heed_status status = heed_tokenize(s->tokenizer, brief, strlen(brief), 0, &tokens);
    if (status || tokens.count == 0) {
        heed_tokens_free(&tokens);
        return status ? status : heed_fail(HEED_INVALID, "fragment %d: a short form has some words", id);
    }
    heed_tokens_free(&fragment->brief);
    fragment->brief = tokens;
    fragment->hidden = false;
    return HEED_OK;
}

/* Sequence 1 holds the whole text without the keys of hidden fragments. */
static heed_status mask(heed_sculptor *s)
{
    TRY(heed_session_share(s->session, 0, HEED_SCULPTED, s->tokens.count));
    for (int i = 0; i < s->fragments; i++)
        if (s->fragment[i].hidden)
            TRY(heed_session_hide(s->session, HEED_SCULPTED, s->fragment[i].first, s->fragment[i].count));
    return HEED_OK;
}

/* It reads what is visible, short forms in place of what they stand for. */
static heed_status render(heed_sculptor *s)
{
    heed_tokens all = {.count = 0};
    heed_status status = heed_session_cut(s->session, HEED_SCULPTED, 0);
    for (int i = 0; i < s->fragments && !status; i++) {
        const heed_fragment *f = &s->fragment[i];
        const int32_t *from = f->brief.count ? f->brief.id : s->tokens.id + f->first;
        const int64_t count = f->hidden ? 0 : f->brief.count ? f->brief.count : f->count;
        for (int64_t t = 0; t < count && !status; t++)
            status = heed_tokens_add(&all, from[t]);
    }
    const heed_feed_item item = {.sequence = HEED_SCULPTED, .tokens = all.id, .count = all.count};
    if (!status && all.count)
        status = heed_feed(s->session, &item, 1, NULL);
    heed_tokens_free(&all);
    return status;
}

heed_status heed_sculptor_ask(heed_sculptor *s, const int32_t *tokens, int64_t count, float *logits)
{
    bool brief = false;
    for (int i = 0; i < s->fragments; i++)
        brief |= s->fragment[i].brief.count > 0;
    TRY(brief ? render(s) : mask(s));
    const heed_feed_item item = {.sequence = HEED_SCULPTED, .tokens = tokens, .count = count};
    return heed_feed(s->session, &item, 1, &(heed_feed_wants){.logits = logits});
}

heed_session *heed_sculptor_session(heed_sculptor *s)
{
    return s->session;
}
