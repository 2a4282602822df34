/* A model goes on with a text, each token the likeliest: generate MODEL TEXT [ATTENTION] */
#include <heed/heed.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { CONTEXT = 512, TOKENS = 40 };

static int failed(void)
{
    return fprintf(stderr, "%s\n", heed_message()), 1;
}

int main(int argc, char **argv)
{
    if (argc < 3)
        return fprintf(stderr, "usage: %s MODEL TEXT [ATTENTION]\n", argv[0]), 2;
    heed_model *model;
    heed_session *session;
    heed_sampler *sampler;
    heed_tokens text = {0};
    heed_model_info info;
    const heed_session_options wanted = {.context = CONTEXT, .attention = argc > 3 ? argv[3] : NULL};
    if (heed_model_open(&model, argv[1], &(heed_model_options){0}))
        return failed();
    heed_model_get_info(model, &info);
    const heed_tokenizer *tokenizer = heed_model_tokenizer(model);
    float *logits = malloc((size_t)info.vocabulary * sizeof *logits);
    if (!logits || heed_session_create(&session, model, &wanted) ||
        heed_sampler_create(&sampler, &(heed_sampling){0}, info.vocabulary) ||
        heed_tokenize(tokenizer, argv[2], strlen(argv[2]), HEED_ADD_SPECIAL, &text))
        return failed();

    heed_detokenizer reader = {.tokenizer = tokenizer};
    heed_feed_item item = {.tokens = text.id, .count = text.count};
    int32_t next;
    for (int t = 0; t < TOKENS; t++) {
        char piece[256];
        if (heed_feed(session, &item, 1, &(heed_feed_wants){.logits = logits}) ||
            heed_sample(sampler, logits, NULL, 0, 0, (uint64_t)t, &next))
            return failed();
        if (heed_token_ends(tokenizer, next))
            break;
        if (heed_detokenize(&reader, next, piece, sizeof piece) < sizeof piece)
            fputs(piece, stdout);
        item = (heed_feed_item){.tokens = &next, .count = 1};
    }
    putchar('\n');
    heed_tokens_free(&text);
    heed_sampler_free(sampler);
    heed_session_free(session);
    heed_model_close(model);
    free(logits);
}
