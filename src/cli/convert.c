/* heed convert: a model file in another format, or with numbers of another type. */
#include "model/convert.h"
#include "base/try.h"
#include "cli/cli.h"
#include "cli/model.h"
#include "cli/progress.h"

#include <cjson/cJSON.h>
#include <stdlib.h>
#include <string.h>

typedef struct convert_options {
    int type, embedding;
    int64_t threads;
    bool json;
} convert_options;

static const struct {
    const char *word;
    heed_type type;
} types[] = {{"keep", HEED_TYPES}, {"f32", HEED_F32},   {"f16", HEED_F16},       {"bf16", HEED_BF16},
             {"q8_0", HEED_Q8},    {"q5_1", HEED_Q5_1}, {"q5_0", HEED_Q5_0},     {"q4_1", HEED_Q4_1},
             {"q4_0", HEED_Q4},    {"q6_k", HEED_Q6_K}, {"q5_k", HEED_Q5_K},     {"q4_k", HEED_Q4_K},
             {"q3_k", HEED_Q3_K},  {"q2_k", HEED_Q2_K}, {"iq4_nl", HEED_IQ4_NL}, {"iq4_xs", HEED_IQ4_XS},
             {"mxfp4", HEED_MXFP4}};

static const char *type_word(int i)
{
    return i < (int)(sizeof types / sizeof *types) ? types[i].word : NULL;
}

static const cli_option options[] = {
    CLI_CHOICE_OPTION(convert_options, type, "type", "TYPE", type_word, "type of the matrices; as they are"),
    CLI_CHOICE_OPTION(convert_options, embedding, "embedding", "TYPE", type_word,
                      "type of the embedding and output matrix; as --type, q8_0 at least"),
    CLI_THREADS_OPTION(convert_options, threads),
    CLI_FLAG_OPTION(convert_options, json, "json", "report as JSON"),
    {0},
};

static void show_progress(void *context, uint64_t done, uint64_t total)
{
    cli_progress_show(context, (double)done, (double)total);
}

static const char *word_of(heed_type type)
{
    for (int i = 0; type_word(i); i++)
        if (types[i].type == type)
            return types[i].word;
    return "?";
}

static void print_report(const char *output, const heed_convert_report *report)
{
    printf("%s: %d tensors, %d of another type; %.1f MB, before %.1f MB\n", output, report->tensors,
           report->changed, (double)report->bytes * 1e-6, (double)report->bytes_before * 1e-6);
    if (report->other)
        printf("%d have rows that the blocks asked for do not fit, and became %s\n", report->other,
               word_of(report->other_type));
    if (report->no_tokenizer)
        printf("there was no tokeniser to convert\n");
    if (report->composes)
        printf("the tokeniser composes characters (NFC), which GGUF files cannot say: texts that are not "
               "composed will give "
               "other tokens\n");
    if (report->cut > 0)
        printf(
            "the folder wants texts cut at %lld tokens, which GGUF files cannot say: longer ones will give "
            "other vectors\n",
            (long long)report->cut);
    if (report->again)
        printf("%d were quantised before: what that lost stays lost\n", report->again);
}

static void print_json(const char *output, const heed_convert_report *report)
{
    cJSON *root = cJSON_CreateObject();
    cJSON_AddStringToObject(root, "output", output);
    cJSON_AddNumberToObject(root, "tensors", report->tensors);
    cJSON_AddNumberToObject(root, "changed", report->changed);
    cJSON_AddNumberToObject(root, "not_fitting", report->other);
    if (report->other)
        cJSON_AddStringToObject(root, "not_fitting_became", word_of(report->other_type));
    else
        cJSON_AddNullToObject(root, "not_fitting_became");
    cJSON_AddBoolToObject(root, "tokenizer_missing", report->no_tokenizer);
    cJSON_AddBoolToObject(root, "tokenizer_composes", report->composes);
    cJSON_AddNumberToObject(root, "cut_at_tokens", (double)report->cut);
    cJSON_AddNumberToObject(root, "quantised_again", report->again);
    cJSON_AddNumberToObject(root, "bytes_before", (double)report->bytes_before);
    cJSON_AddNumberToObject(root, "bytes", (double)report->bytes);
    char *text = cJSON_Print(root);
    if (text)
        puts(text);
    free(text);
    cJSON_Delete(root);
}

static heed_status convert(const char *input, const char *output, const convert_options *wanted)
{
    cli_progress progress = {.what = "converting", .unit = "MB", .scale = 1e6};
    const heed_convert_options wishes = {.type = types[wanted->type].type,
                                         .embedding = types[wanted->embedding].type,
                                         .threads = (int)wanted->threads,
                                         .progress = show_progress,
                                         .context = &progress};
    heed_convert_report report;
    cli_model_path path;
    heed_model_file *file;
    TRY(cli_find_model(input, &path));
    TRY(heed_model_file_open(&file, path.text));
    for (int i = 0; i < heed_model_file_notes(file); i++)
        fprintf(stderr, "heed convert: note: %s\n", heed_model_file_note(file, i));
    const heed_status status = heed_convert(file, output, &wishes, &report);
    cli_progress_end(&progress);
    heed_model_file_close(file);
    if (!status)
        (wanted->json ? print_json : print_report)(output, &report);
    return status;
}

static int run(int argc, char **argv)
{
    convert_options wanted = {0};
    cli_arguments arguments;
    int status;
    if (!cli_parse(&cli_convert, argc, argv, &wanted, &arguments, 2, 2, &status))
        return status;
    return convert(arguments.word[0], arguments.word[1], &wanted) ? cli_fail_message("convert") : CLI_OK;
}

const cli_command cli_convert = {
    .name = "convert",
    .arguments = "MODEL OUT.gguf|OUT.safetensors",
    .summary = "A model file in another format, or with numbers of another type.",
    .details =
        "MODEL is as for `heed info`; a folder becomes a GGUF file with its tokeniser, if one can say all "
        "that the folder says.\n"
        "The ending of OUT says the format. OUT appears whole or not at all; parts become one file. Types "
        "are\n"
        "keep f32 f16 bf16 q8_0 q5_1 q5_0 q4_1 q4_0 q6_k q5_k q4_k q3_k q2_k iq4_nl iq4_xs mxfp4. Norms, "
        "biases and\n"
        "positions keep theirs. Safetensors files have no blocks: quantised matrices become f32 there.\n",
    .example = "heed random in.safetensors --shape heads=8,kv_heads=2,queries=100,dim=64\n"
               "heed convert in.safetensors half.safetensors --type f16\n"
               "heed info half.safetensors",
    .options = options,
    .run = run,
};
