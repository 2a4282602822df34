/* heed tokenize: a text to tokens and back, as the model's own tokeniser does it. */
#include "attend/spec_reader.h"
#include "base/try.h"
#include "cli/cli.h"
#include "cli/json_text.h"
#include "cli/model.h"
#include "cli/tokenize_train.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

typedef struct tokenize_options {
    const char *model, *file, *decode, *output;
    bool json, no_special, parse_special, chat, train;
    int64_t vocabulary;
} tokenize_options;

static const cli_option options[] = {
    CLI_OPTION(tokenize_options, model, .kind = CLI_TEXT, .name = "model", .letter = 'm', .value = "MODEL",
               .summary =
                   "whose tokeniser; a GGUF file, a folder, a tokenizer.json, or a fetched model's name"),
    CLI_OPTION(tokenize_options, file, .kind = CLI_TEXT, .name = "file", .letter = 'f', .value = "FILE",
               .summary = "the text is in this file"),
    CLI_FLAG_OPTION(tokenize_options, no_special, "no-special",
                    "nothing around the text, as begin- and end-tokens"),
    CLI_FLAG_OPTION(tokenize_options, parse_special, "parse-special",
                    "control tokens that are written in the text are control tokens"),
    CLI_FLAG_OPTION(tokenize_options, chat, "chat", "as a user's message in the model's chat template"),
    CLI_TEXT_OPTION(tokenize_options, decode, "decode", "IDS",
                    "the text of these tokens, \"9259,1902\"; - reads them"),
    CLI_FLAG_OPTION(tokenize_options, train, "train", "learn a vocabulary from the texts in these files"),
    CLI_WHOLE_OPTION(tokenize_options, vocabulary, "vocab", 257, 1 << 24, "--train: tokens at most; 4096"),
    CLI_OPTION(tokenize_options, output, .kind = CLI_TEXT, .name = "output", .letter = 'o', .value = "FOLDER",
               .summary = "--train: where tokenizer.json goes"),
    CLI_FLAG_OPTION(tokenize_options, json, "json", "as JSON: {\"ids\":[..],\"text\":[..]}"),
    {0},
};

typedef struct text_buffer {
    char *data;
    size_t size;
} text_buffer;

static heed_status read_all(FILE *file, const char *name, text_buffer *text)
{
    size_t capacity = 0;
    *text = (text_buffer){0};
    for (;;) {
        if (capacity - text->size < 2) {
            char *wider = realloc(text->data, capacity = capacity ? 2 * capacity : 1 << 16);
            if (!wider)
                return heed_fail(HEED_NO_MEMORY, "no memory to read %s", name);
            text->data = wider;
        }
        const size_t read = fread(text->data + text->size, 1, capacity - text->size - 1, file);
        text->size += read;
        text->data[text->size] = 0;
        if (!read)
            return ferror(file) ? heed_fail(HEED_IO, "%s cannot be read: %s", name, strerror(errno))
                                : HEED_OK;
    }
}

/* The text of the command line, of the file, or of standard input; freed by the caller. */
static heed_status find_text(const tokenize_options *wanted, const char *word, text_buffer *text)
{
    *text = (text_buffer){0};
    if (word) {
        text->size = strlen(word);
        text->data = strdup(word);
        return text->data ? HEED_OK : heed_fail(HEED_NO_MEMORY, "no memory for the text");
    }
    if (!wanted->file)
        return read_all(stdin, "standard input", text);
    FILE *file = fopen(wanted->file, "rb");
    if (!file)
        return heed_fail(HEED_IO, "'%.300s' cannot be opened: %s", wanted->file, strerror(errno));
    const heed_status status = read_all(file, wanted->file, text);
    fclose(file);
    return status;
}

/* What each token adds to the text: `size` bytes at `start` of `text`. */
typedef struct piece_texts {
    char *text;
    size_t *end;
} piece_texts;

static heed_status write_pieces(const heed_tokenizer *tokenizer, const heed_tokens *tokens, bool control,
                                bool raw, piece_texts *pieces)
{
    heed_detokenizer detokenizer = {.tokenizer = tokenizer, .control = control, .raw = raw};
    size_t capacity = 64, size = 0;
    pieces->text = malloc(capacity);
    pieces->end = calloc((size_t)tokens->count + 1, sizeof *pieces->end);
    for (int64_t i = 0; pieces->text && pieces->end && i <= tokens->count; i++) {
        const int32_t id = i < tokens->count ? tokens->id[i] : -1;
        const size_t length = heed_detokenize(&detokenizer, id, NULL, 0);
        if (size + length + 1 > capacity) {
            char *wider = realloc(pieces->text, capacity = 2 * (size + length + 1));
            if (!wider)
                break;
            pieces->text = wider;
        }
        heed_detokenize(&detokenizer, id, pieces->text + size, length + 1);
        size += length;
        if (i < tokens->count)
            pieces->end[i] = size;
        else if (tokens->count)
            pieces->end[tokens->count - 1] = size; /* what was left of a broken character */
        if (i == tokens->count)
            return HEED_OK;
    }
    return heed_fail(HEED_NO_MEMORY, "no memory for the text of %lld tokens", (long long)tokens->count);
}

static void print_json(const heed_tokens *tokens, const piece_texts *pieces)
{
    printf("{\"ids\":[");
    for (int64_t i = 0; i < tokens->count; i++)
        printf("%s%d", i ? "," : "", tokens->id[i]);
    printf("],\"text\":[");
    for (int64_t i = 0; i < tokens->count; i++) {
        const size_t start = i ? pieces->end[i - 1] : 0;
        printf("%s", i ? "," : "");
        cli_json_text(stdout, pieces->text + start, pieces->end[i] - start);
    }
    printf("]}\n");
}

static void print_lines(const heed_tokenizer *tokenizer, const heed_tokens *tokens, const piece_texts *pieces)
{
    for (int64_t i = 0; i < tokens->count; i++) {
        const size_t start = i ? pieces->end[i - 1] : 0;
        printf("%8d  ", tokens->id[i]);
        cli_json_text(stdout, pieces->text + start, pieces->end[i] - start);
        printf("%s\n", heed_token_is_control(tokenizer, tokens->id[i]) ? "  control" : "");
    }
    printf("%lld %s; %s\n", (long long)tokens->count, tokens->count == 1 ? "token" : "tokens",
           heed_tokenizer_kind(tokenizer));
}

/* A begin-token typed where one is added anyway stands once; that it was typed deserves a word. */
static void warn_of_typed_begin(const heed_tokenizer *tokenizer, const text_buffer *text, unsigned flags)
{
    const heed_special_tokens special = heed_tokenizer_special(tokenizer);
    const char *begin = heed_token_name(tokenizer, special.bos);
    const unsigned both = HEED_ADD_SPECIAL | HEED_PARSE_SPECIAL;
    if (special.add_bos && begin && *begin && (flags & both) == both &&
        !strncmp(text->data, begin, strlen(begin)))
        fprintf(
            stderr,
            "heed tokenize: the text begins with %s, which is put in front of every text; it stands once\n",
            begin);
}

static heed_status encode(const heed_tokenizer *tokenizer, const tokenize_options *wanted,
                          const text_buffer *text, heed_tokens *tokens)
{
    const unsigned flags =
        (wanted->no_special ? 0u : HEED_ADD_SPECIAL) | (wanted->parse_special ? HEED_PARSE_SPECIAL : 0u);
    if (wanted->chat) {
        const heed_message_turn turn = {"user", text->data};
        if (strlen(text->data) != text->size)
            return heed_fail(HEED_INVALID, "the message has a zero byte at %zu", strlen(text->data));
        return heed_chat_tokens(tokenizer, &turn, 1, true, flags & HEED_PARSE_SPECIAL, tokens);
    }
    warn_of_typed_begin(tokenizer, text, flags);
    return heed_tokenize(tokenizer, text->data, text->size, flags, tokens);
}

/* Numbers between commas, white space or brackets. */
static heed_status read_ids(const heed_tokenizer *tokenizer, const char *text, heed_tokens *tokens)
{
    while (*(text += strspn(text, ", \t\r\n[]"))) {
        const size_t length = strcspn(text, ", \t\r\n[]");
        char number[24] = "";
        int64_t id;
        if (length < sizeof number)
            memcpy(number, text, length);
        if (!cli_whole(number, 0, heed_tokenizer_size(tokenizer) - 1, &id))
            return heed_fail(HEED_INVALID, "'%.*s' is no token; there are 0 to %d",
                             (int)(length < 40 ? length : 40), text, heed_tokenizer_size(tokenizer) - 1);
        TRY(heed_tokens_add(tokens, (int32_t)id));
        text += length;
    }
    return HEED_OK;
}

static heed_status run_with(const heed_tokenizer *tokenizer, const tokenize_options *wanted,
                            const text_buffer *text)
{
    heed_tokens tokens = {0};
    piece_texts pieces = {0};
    heed_status status =
        wanted->decode ? read_ids(tokenizer, text->data, &tokens) : encode(tokenizer, wanted, text, &tokens);
    const bool plain = wanted->decode && !wanted->json;
    if (!status)
        status = write_pieces(tokenizer, &tokens, !wanted->no_special, plain, &pieces);
    if (!status && wanted->json)
        print_json(&tokens, &pieces);
    else if (!status && plain)
        fwrite(pieces.text, 1, tokens.count ? pieces.end[tokens.count - 1] : 0, stdout);
    else if (!status)
        print_lines(tokenizer, &tokens, &pieces);
    free(pieces.text);
    free(pieces.end);
    heed_tokens_free(&tokens);
    return status;
}

static heed_status tokenize(const tokenize_options *wanted, const char *word)
{
    cli_model_path path;
    heed_tokenizer *tokenizer;
    text_buffer text = {0};
    if (wanted->decode && strcmp(wanted->decode, "-"))
        word = wanted->decode;
    TRY(cli_find_model(wanted->model, &path));
    TRY(heed_tokenizer_load(&tokenizer, path.text));
    heed_status status = find_text(wanted, word, &text);
    if (!status)
        status = run_with(tokenizer, wanted, &text);
    free(text.data);
    heed_tokenizer_free(tokenizer);
    return status;
}

static int train(const tokenize_options *wanted, const cli_arguments *arguments)
{
    if (!wanted->output)
        return cli_fail("tokenize", "--train needs -o FOLDER: where tokenizer.json goes");
    if (!arguments->count)
        return cli_fail("tokenize", "--train needs files with texts: heed tokenize --train TEXT -o FOLDER");
    if (wanted->model || wanted->file || wanted->decode || wanted->no_special || wanted->parse_special ||
        wanted->chat)
        return cli_fail("tokenize", "--train goes with files, --vocab, -o and --json only");
    return cli_tokenize_train(arguments, (int32_t)wanted->vocabulary, wanted->output, wanted->json)
               ? cli_fail_message("tokenize")
               : CLI_OK;
}

static int run(int argc, char **argv)
{
    tokenize_options wanted = {.vocabulary = 0};
    cli_arguments arguments;
    int status;
    if (!cli_parse(&cli_tokenize, argc, argv, &wanted, &arguments, 0, CLI_ARGUMENTS, &status))
        return status;
    if (wanted.train) {
        wanted.vocabulary = wanted.vocabulary ? wanted.vocabulary : 4096;
        return train(&wanted, &arguments);
    }
    if (wanted.vocabulary || wanted.output)
        return cli_fail("tokenize", "--vocab and --output belong to --train");
    if (arguments.count > 1)
        return cli_fail("tokenize", "'%s' is one argument too many; put a text in quotes",
                        heed_quoted(arguments.word[1], (int)strnlen(arguments.word[1], 100)).text);
    const char *word = arguments.count ? arguments.word[0] : NULL;
    if (!wanted.model)
        return cli_fail("tokenize", "-m MODEL is missing");
    if ((word != NULL) + (wanted.file != NULL) + (wanted.decode != NULL) > 1)
        return cli_fail("tokenize", "there is more than one of TEXT, --file and --decode");
    return tokenize(&wanted, word) ? cli_fail_message("tokenize") : CLI_OK;
}

const cli_command cli_tokenize = {
    .name = "tokenize",
    .arguments = "-m MODEL [TEXT] | --train TEXTFILE... -o FOLDER",
    .summary = "A text as the tokens of a model, or tokens as a text; learns vocabularies.",
    .details =
        "Without TEXT, --file or --decode the text is read from standard input. Each token stands "
        "with what it adds to the\n"
        "text; a character of several tokens stands with the last of them. What is written in a text "
        "stays text, also where\n"
        "it looks like a control token, unless --parse-special says otherwise.\n"
        "With --train the texts give a byte-level BPE vocabulary, which other programs read too: all bytes, "
        "\"<|endoftext|>\" as\n"
        "token 0, and the pairs that stood together most often; the same texts give the same file.\n",
    .example = "heed tokenize -m smollm2 \"It's 12 o'clock.\"\n"
               "heed tokenize -m smollm2 --json --chat \"Hello\"\n"
               "heed tokenize -m smollm2 --decode 19556,905\n"
               "heed tokenize --train book.txt --vocab 2048 -o words",
    .options = options,
    .run = run,
};
