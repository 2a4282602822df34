#include "cli/tokenize_train.h"
#include "base/clock.h"
#include "cli/language.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

static void print(const heed_tokenizer_learnt *learnt, const char *path, double seconds, bool json)
{
    const double each = (double)learnt->bytes / (double)learnt->text_tokens;
    if (json)
        printf("{\"tokens\": %d, \"bytes\": %lld, \"words\": %lld, \"different_words\": %lld, "
               "\"text_tokens\": %lld, "
               "\"bytes_per_token\": %.6g, \"seconds\": %.3f}\n",
               learnt->tokens, (long long)learnt->bytes, (long long)learnt->words,
               (long long)learnt->different_words, (long long)learnt->text_tokens, each, seconds);
    else
        printf("%s: %d tokens, learnt in %.1f s from %.1f MB with %lld different words; %.2f bytes a token\n",
               path, learnt->tokens, seconds, 1e-6 * (double)learnt->bytes,
               (long long)learnt->different_words, each);
}

heed_status cli_tokenize_train(const cli_arguments *files, int32_t vocabulary, const char *folder, bool json)
{
    const double start = heed_seconds();
    cli_text text[CLI_ARGUMENTS] = {{NULL, 0}};
    heed_text given[CLI_ARGUMENTS];
    char path[1200];
    heed_tokenizer_learnt learnt;
    heed_status status = HEED_OK;
    if (snprintf(path, sizeof path, "%s/tokenizer.json", folder) >= (int)sizeof path)
        return heed_fail(HEED_INVALID, "%.60s...: the path is too long", folder);
    for (int i = 0; i < files->count && !status; i++) {
        status = cli_read_file(files->word[i], &text[i]);
        given[i] = (heed_text){text[i].bytes, text[i].size};
    }
    if (!status && mkdir(folder, 0777) && errno != EEXIST)
        status = heed_fail(HEED_IO, "the folder '%.300s' cannot be made: %s", folder, strerror(errno));
    if (!status)
        status = heed_tokenizer_learn(given, files->count, vocabulary, path, &learnt);
    if (!status)
        print(&learnt, path, heed_seconds() - start, json);
    for (int i = 0; i < files->count; i++)
        free(text[i].bytes);
    return status;
}
