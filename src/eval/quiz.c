#include "eval/quiz.h"
#include "base/try.h"
#include "eval/book.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

static const char noise[] =
    " The grass is green. The sky is blue. The sun is yellow. Here we go. There and back again.";

void heed_quiz_free(heed_quiz *quiz)
{
    heed_tokens_free(&quiz->text);
    *quiz = (heed_quiz){.questions = 0};
}

heed_status heed_material_create(heed_material *material, const heed_tokenizer *tokenizer)
{
    size_t size;
    const char *book = heed_book(&size);
    const heed_special_tokens special = heed_tokenizer_special(tokenizer);
    *material = (heed_material){.tokenizer = tokenizer, .vocabulary = heed_tokenizer_size(tokenizer)};
    heed_status status = heed_tokenize(tokenizer, "\n", 1, 0, &material->anchor);
    if (!status && special.add_bos && special.bos >= 0)
        status = heed_tokens_add(&material->start, special.bos);
    if (!status)
        status = heed_tokenize(tokenizer, book, size, 0, &material->book);
    if (!status)
        status = heed_material_tokens(material, noise, &material->noise);
    if (status)
        heed_material_free(material);
    return status;
}

void heed_material_free(heed_material *material)
{
    heed_tokens_free(&material->start);
    heed_tokens_free(&material->book);
    heed_tokens_free(&material->noise);
    heed_tokens_free(&material->anchor);
}

/* A line break stands in front while the text is tokenised, and its tokens are left out. */
heed_status heed_material_tokens(const heed_material *material, const char *text, heed_tokens *tokens)
{
    const size_t anchor = (size_t)material->anchor.count;
    char line[600];
    heed_tokens all = {.id = NULL};
    if ((size_t)snprintf(line, sizeof line, "\n%s", text) >= sizeof line)
        return heed_fail(HEED_INVALID, "a piece of a prompt has %zu bytes, at most 500 are expected",
                         strlen(text));
    heed_status status = heed_tokenize(material->tokenizer, line, strlen(line), 0, &all);
    const bool apart = !status && all.count >= material->anchor.count &&
                       (!anchor || !memcmp(all.id, material->anchor.id, anchor * sizeof *all.id));
    if (!status && !apart) { /* the vocabulary joins line breaks with what follows them */
        all.count = 0;
        status = heed_tokenize(material->tokenizer, text, strlen(text), 0, &all);
    }
    for (int64_t i = apart ? material->anchor.count : 0; !status && i < all.count; i++)
        status = heed_tokens_add(tokens, all.id[i]);
    heed_tokens_free(&all);
    return status;
}

heed_status heed_material_say(const heed_material *material, heed_tokens *tokens, const char *format, ...)
{
    char text[501];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    return heed_material_tokens(material, text, tokens);
}

heed_status heed_tokens_join(heed_tokens *tokens, const heed_tokens *more)
{
    return heed_tokens_fill(tokens, more, 0, more->count);
}

heed_status heed_tokens_fill(heed_tokens *tokens, const heed_tokens *source, int64_t first, int64_t count)
{
    for (int64_t i = 0; i < count; i++)
        TRY(heed_tokens_add(tokens, source->id[(first + i) % source->count]));
    return HEED_OK;
}

int32_t heed_material_token(const heed_material *material, heed_dice *dice)
{
    int32_t id = (int32_t)heed_dice_throw(dice, material->vocabulary);
    for (int tries = 0; tries < 1000 && heed_token_is_control(material->tokenizer, id); tries++)
        id = (int32_t)heed_dice_throw(dice, material->vocabulary);
    return id;
}

static bool holds(const heed_question *question, int32_t right, int32_t token)
{
    bool found = token == right;
    for (int i = 0; i < question->rivals; i++)
        found |= question->rival[i] == token;
    return found;
}

heed_status heed_quiz_ask(const heed_material *material, heed_quiz *quiz, const char *answer,
                          const char *const *wrong, int rivals)
{
    if (quiz->questions == HEED_QUESTIONS)
        return heed_fail(HEED_INVALID, "a quiz has at most %d questions", HEED_QUESTIONS);
    heed_question *question = &quiz->question[quiz->questions];
    *question = (heed_question){.at = quiz->text.count};
    TRY(heed_material_tokens(material, answer, &quiz->text));
    question->count = quiz->text.count - question->at;
    if (question->count < 1 || question->at < 1)
        return heed_fail(HEED_INVALID, "the tokeniser makes nothing of the answer '%s'", answer);
    for (int i = 0; i < rivals && question->rivals < HEED_RIVALS; i++) {
        heed_tokens other = {.id = NULL};
        const heed_status status = heed_material_tokens(material, wrong[i], &other);
        if (!status && other.count && !holds(question, quiz->text.id[question->at], other.id[0]))
            question->rival[question->rivals++] = other.id[0];
        heed_tokens_free(&other);
        TRY(status);
    }
    quiz->questions++;
    return HEED_OK;
}

void heed_hidden_free(heed_hidden *hidden)
{
    heed_tokens_free(&hidden->head);
    for (int i = 0; i < HEED_QUESTIONS; i++)
        heed_tokens_free(&hidden->needle[i]);
    heed_quiz_free(&hidden->tail);
}

void heed_hidden_scatter(heed_hidden *hidden, heed_dice *dice)
{
    for (int i = 0; i < hidden->needles; i++)
        hidden->depth[i] = ((double)i + 1e-3 * (double)heed_dice_throw(dice, 1000)) / (double)hidden->needles;
}

heed_status heed_quiz_hide(const heed_material *material, const heed_hidden *hidden, int64_t length,
                           heed_quiz *quiz)
{
    int64_t fixed = material->start.count + hidden->head.count + hidden->tail.text.count, filled = 0;
    for (int i = 0; i < hidden->needles; i++)
        fixed += hidden->needle[i].count;
    const int64_t filler = length - fixed;
    if (filler < 0)
        return heed_fail(HEED_INVALID, "%lld tokens have no room for a task that takes %lld",
                         (long long)length, (long long)fixed);
    heed_tokens *text = &quiz->text;
    TRY(heed_tokens_join(text, &material->start));
    TRY(heed_tokens_join(text, &hidden->head));
    for (int i = 0; i <= hidden->needles; i++) {
        const int64_t until =
            i < hidden->needles ? (int64_t)llround(hidden->depth[i] * (double)filler) : filler;
        TRY(heed_tokens_fill(text, hidden->filler, hidden->first + filled, until - filled));
        filled = until;
        if (i < hidden->needles)
            TRY(heed_tokens_join(text, &hidden->needle[i]));
    }
    quiz->context = text->count;
    for (int i = 0; i < hidden->tail.questions; i++) {
        quiz->question[i] = hidden->tail.question[i];
        quiz->question[i].at += text->count;
    }
    quiz->questions = hidden->tail.questions;
    return heed_tokens_join(text, &hidden->tail.text);
}
