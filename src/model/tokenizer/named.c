/* The splitting rules that GGUF files name in tokenizer.ggml.pre. A rule is a list of patterns, applied one
 * after the other, each within the words that those before it left; matches and what lies between them are
 * words. New names are new lines.
 */
#include "base/try.h"
#include "model/tokenizer/parts.h"

#include <stdio.h>
#include <string.h>

#define CONTRACTIONS "'s|'t|'re|'ve|'m|'ll|'d"
#define LINES_AND_SPACES "\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+"
#define GPT2 CONTRACTIONS "| ?\\p{L}+| ?\\p{N}+| ?[^\\s\\p{L}\\p{N}]+|\\s+(?!\\S)|\\s+"
/* cl100k's, digits in groups of at most N */
#define GPT4(digits)                                                                                         \
    "(?i:" CONTRACTIONS ")|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|" digits                                            \
    "| ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|" LINES_AND_SPACES
#define UPPER "[\\p{Lu}\\p{Lt}\\p{Lm}\\p{Lo}\\p{M}]"
#define LOWER "[\\p{Ll}\\p{Lm}\\p{Lo}\\p{M}]"
/* o200k's: words also break where a capital follows a small letter */
#define CASED(contractions, digits)                                                                          \
    "[^\\r\\n\\p{L}\\p{N}]?" UPPER "*" LOWER "+" contractions "|[^\\r\\n\\p{L}\\p{N}]?" UPPER "+" LOWER      \
    "*" contractions "|" digits "| ?[^\\s\\p{L}\\p{N}]+[\\r\\n/]*|" LINES_AND_SPACES
#define DEEPSEEK3                                                                                            \
    "[!\"#$%&'()*+,\\-./:;<=>?@\\[\\\\\\]^_`{|}~][A-Za-z]+|[^\\r\\n\\p{L}\\p{P}\\p{S}]?[\\p{L}\\p{M}]+|"     \
    " ?[\\p{P}\\p{S}]+[\\r\\n]*|" LINES_AND_SPACES

static const struct rule {
    const char *name;
    const char *pattern[3];
    bool ignore_merges; /* a word that is a token is that token */
} rules[] = {
    {"gpt-2", {GPT2}, false},
    {"gpt2", {GPT2}, false},
    {"default", {GPT2}, false},
    {"phi-2", {GPT2}, false},
    {"mpt", {GPT2}, false},
    {"olmo", {GPT2}, false},
    {"jais", {GPT2}, false},
    {"roberta-bpe", {GPT2}, false},
    {"smollm", {"\\p{N}", GPT2}, false},
    {"starcoder", {"\\p{N}", GPT2}, false},
    {"refact", {"\\p{N}", GPT2}, false},
    {"command-r", {"\\p{N}", GPT2}, false},
    {"codeshell", {"\\p{N}", GPT2}, false},
    {"exaone", {"\\p{N}", GPT2}, false},
    {"llama3", {GPT4("\\p{N}{1,3}")}, true},
    {"llama-v3", {GPT4("\\p{N}{1,3}")}, true},
    {"llama-bpe", {GPT4("\\p{N}{1,3}")}, true},
    {"dbrx", {GPT4("\\p{N}{1,3}")}, false},
    {"smaug-bpe", {GPT4("\\p{N}{1,3}")}, false},
    {"chatglm-bpe", {GPT4("\\p{N}{1,3}")}, false},
    {"glm4", {GPT4("\\p{N}{1,3}")}, false},
    {"qwen2", {GPT4("\\p{N}")}, false},
    {"deepseek-r1-qwen", {GPT4("\\p{N}")}, false},
    {"stablelm2", {GPT4("\\p{N}")}, false},
    {"tekken", {CASED("", "\\p{N}")}, true},
    {"gpt-4o", {CASED("(?i:" CONTRACTIONS ")?", "\\p{N}{1,3}")}, false},
    {"llama4", {CASED("(?i:" CONTRACTIONS ")?", "\\p{N}{1,3}")}, false},
    {"falcon", {"[\\p{P}\\$\\+<=>\\^~\\|`]+", GPT2, "[0-9][0-9][0-9]"}, false},
    {"deepseek-v3", {"\\p{N}{1,3}", "[\u4e00-\u9fa5\u3040-\u309f\u30a0-\u30ff]+", DEEPSEEK3}, false},
};

heed_status heed_split_named(heed_tokenizer *tokenizer, const char *name)
{
    char known[600] = "";
    for (size_t i = 0; i < sizeof rules / sizeof *rules; i++) {
        const size_t length = strlen(known);
        if (strcmp(name, rules[i].name)) {
            snprintf(known + length, sizeof known - length, "%s%s", length ? ", " : "", rules[i].name);
            continue;
        }
        for (int k = 0; k < 3 && rules[i].pattern[k]; k++)
            TRY(heed_split_step_add(tokenizer, HEED_SPLIT_ISOLATED, rules[i].pattern[k], false));
        tokenizer->ignore_merges = rules[i].ignore_merges;
        return HEED_OK;
    }
    return heed_fail(HEED_UNSUPPORTED,
                     "the tokeniser splits words by the rule '%.60s', which is not known; known are %s", name,
                     known);
}
