/* heed info: what is in a model file. */
#include "cli/info.h"
#include "base/try.h"
#include "cli/cli.h"
#include "cli/model.h"
#include "model/architecture.h"

#include <stdlib.h>
#include <string.h>

typedef struct info_options {
    bool tensors, metadata, json;
} info_options;

static const cli_option options[] = {
    CLI_FLAG_OPTION(info_options, tensors, "tensors", "list the tensors: name, type, shape, bytes"),
    CLI_FLAG_OPTION(info_options, metadata, "metadata", "list the metadata of a GGUF file"),
    CLI_FLAG_OPTION(info_options, json, "json", "as JSON"),
    {0},
};

static const char *size_text(double bytes, char *text, size_t size)
{
    static const char *const units[] = {"bytes", "kB", "MB", "GB", "TB"};
    int unit = 0;
    for (; bytes >= 1000.0 && unit < 4; unit++)
        bytes /= 1000.0;
    snprintf(text, size, unit == 0 ? "%.0f %s" : "%.1f %s", bytes, units[unit]);
    return text;
}

static const char *count_text(double count, char *text, size_t size)
{
    if (count >= 1e9)
        snprintf(text, size, "%.2f billion", count / 1e9);
    else if (count >= 1e6)
        snprintf(text, size, "%.1f million", count / 1e6);
    else
        snprintf(text, size, "%.0f", count);
    return text;
}

double cli_info_cache(const cli_info *info, heed_type type)
{
    const int64_t block = heed_type_bytes(type, HEED_BLOCK);
    return info->summary.cache_values * (double)block / HEED_BLOCK;
}

static int compare_bytes(const void *a, const void *b)
{
    const cli_type_sum *x = a, *y = b;
    return (x->bytes < y->bytes) - (x->bytes > y->bytes);
}

static double values_of(const heed_model_tensor *tensor)
{
    double count = 1.0;
    for (int d = 0; d < tensor->rank; d++)
        count *= (double)tensor->shape[d];
    return count;
}

static heed_status sum_types(cli_info *info)
{
    const int count = heed_model_file_tensors(info->file);
    info->types = calloc((size_t)count + 1, sizeof *info->types);
    if (!info->types)
        return heed_fail(HEED_NO_MEMORY, "no memory to count %d tensors", count);
    for (int i = 0; i < count; i++) {
        const heed_model_tensor *tensor = heed_model_file_tensor(info->file, i);
        int t = 0;
        while (t < info->type_count && strcmp(info->types[t].dtype, tensor->dtype))
            t++;
        info->type_count += t == info->type_count;
        info->types[t].dtype = tensor->dtype;
        info->types[t].tensors++;
        info->types[t].bytes += tensor->bytes;
        info->types[t].values += values_of(tensor);
    }
    qsort(info->types, (size_t)info->type_count, sizeof *info->types, compare_bytes);
    return HEED_OK;
}

static void print_types(const cli_info *info)
{
    char bytes[32], count[32];
    for (int i = 0; i < info->type_count; i++) {
        const cli_type_sum *type = &info->types[i];
        printf("%-14s%-8s %5d %-8s %14s numbers %12s %7.2f bits each\n", i ? "" : "types", type->dtype,
               type->tensors, type->tensors == 1 ? "tensor" : "tensors",
               count_text(type->values, count, sizeof count),
               size_text((double)type->bytes, bytes, sizeof bytes),
               type->values > 0.0 ? 8.0 * (double)type->bytes / type->values : 0.0);
    }
}

static void print_shape(const heed_model_summary *s)
{
    if (!s->layers)
        return;
    printf("%-14s%lld layers of width %lld, %lld query heads on %lld", "shape", (long long)s->layers,
           (long long)s->width, (long long)s->heads, (long long)s->kv_heads);
    if (s->kv_heads_most > s->kv_heads)
        printf(" to %lld", (long long)s->kv_heads_most);
    printf(" key %s of %lld", s->kv_heads_most == 1 ? "head" : "heads", (long long)s->key_dim);
    if (s->feed_forward)
        printf(", feed-forward %lld", (long long)s->feed_forward);
    if (s->vocabulary)
        printf(", vocabulary %lld", (long long)s->vocabulary);
    if (s->window)
        printf(", a window of %lld", (long long)s->window);
    printf("\n");
}

static void print_cache(const cli_info *info)
{
    static const heed_type types[] = {HEED_F32, HEED_F16, HEED_Q8, HEED_Q4};
    const heed_model_summary *s = &info->summary;
    char text[32];
    if (s->context)
        printf("%-14s%lld tokens\n", "context", (long long)s->context);
    if (s->cache_values <= 0.0)
        return;
    printf("%-14s", "cache a token");
    for (int i = 0; i < 4; i++)
        printf("%s%.0f bytes in %s", i ? ", " : "", cli_info_cache(info, types[i]), heed_type_name(types[i]));
    if (s->context)
        printf("; %s for the context in f16",
               size_text(cli_info_cache(info, HEED_F16) * (double)s->context, text, sizeof text));
    printf("\n");
}

static void print_head(const cli_info *info)
{
    const heed_model_summary *s = &info->summary;
    const heed_model_file *file = info->file;
    char count[32], bytes[32];
    printf("%s: %s, %d tensors, %s\n", heed_model_file_path(file),
           heed_model_file_format(file) == HEED_FORMAT_GGUF ? "GGUF" : "safetensors",
           heed_model_file_tensors(file),
           size_text((double)heed_model_file_bytes(file), bytes, sizeof bytes));
    printf("%-14s%s%s\n", "architecture", *s->architecture ? s->architecture : "the file names none",
           *info->refusal ? ", which heed does not run" : "");
    if (*info->refusal)
        printf("%-14s%s\n", "", info->refusal);
    if (*s->name)
        printf("%-14s%s\n", "name", s->name);
    printf("%-14s%s\n", "parameters", count_text(s->parameters, count, sizeof count));
}

static void print_meta(const heed_meta *meta)
{
    char text[120], key[200];
    printf("  %s = ", heed_printable(meta->key, key, sizeof key));
    if (meta->kind == HEED_META_INT)
        printf("%lld\n", (long long)meta->whole);
    else if (meta->kind == HEED_META_FLOAT)
        printf("%.9g\n", meta->number);
    else if (meta->kind == HEED_META_BOOL)
        printf("%s\n", meta->whole ? "true" : "false");
    else if (meta->kind == HEED_META_TEXT)
        printf("\"%s\"\n", heed_printable(meta->text, text, sizeof text));
    else {
        printf("%lld entries", (long long)meta->size);
        for (int64_t i = 0; i < meta->size && i < CLI_MOST_ENTRIES && meta->kind != HEED_META_NONE; i++) {
            printf("%s", i ? ", " : ": ");
            if (meta->kind == HEED_META_INTS)
                printf("%lld", (long long)meta->wholes[i]);
            else if (meta->kind == HEED_META_FLOATS)
                printf("%.9g", (double)meta->numbers[i]);
            else
                printf("\"%s\"", heed_printable(meta->texts[i], text, sizeof text));
        }
        printf("%s\n", meta->size > CLI_MOST_ENTRIES && meta->kind != HEED_META_NONE ? ", ..." : "");
    }
}

static void print_tensors(const heed_model_file *file)
{
    int width = 4;
    char name[200];
    for (int i = 0; i < heed_model_file_tensors(file); i++) {
        const int length =
            (int)strlen(heed_printable(heed_model_file_tensor(file, i)->name, name, sizeof name));
        width = length > width ? length : width;
    }
    printf("tensors\n");
    for (int i = 0; i < heed_model_file_tensors(file); i++) {
        const heed_model_tensor *tensor = heed_model_file_tensor(file, i);
        printf("  %-*s  %-8s %12zu bytes  [", width, heed_printable(tensor->name, name, sizeof name),
               tensor->dtype, tensor->bytes);
        for (int d = 0; d < tensor->rank; d++)
            printf("%s%lld", d ? ", " : "", (long long)tensor->shape[d]);
        printf("]\n");
    }
}

static void print_info(const cli_info *info)
{
    print_head(info);
    print_types(info);
    print_shape(&info->summary);
    print_cache(info);
    for (int i = 0; i < heed_model_file_notes(info->file); i++)
        printf("%-14s%s\n", "note", heed_model_file_note(info->file, i));
    if (info->metadata) {
        printf("metadata\n");
        for (int i = 0; i < heed_model_file_metas(info->file); i++)
            print_meta(heed_model_file_meta_at(info->file, i));
    }
    if (info->tensors)
        print_tensors(info->file);
}

static heed_status show(const char *word, const info_options *wanted)
{
    cli_model_path path;
    heed_model_file *file;
    cli_info info = {.tensors = wanted->tensors, .metadata = wanted->metadata};
    TRY(cli_find_model(word, &path));
    TRY(heed_model_file_open(&file, path.text));
    info.file = file;
    heed_summarise(file, &info.summary);
    const heed_architecture *architecture;
    if (*info.summary.architecture && heed_architecture_find(info.summary.architecture, &architecture))
        snprintf(info.refusal, sizeof info.refusal, "%s", heed_message());
    const heed_status status = sum_types(&info);
    if (!status && wanted->json)
        cli_info_json(&info);
    else if (!status)
        print_info(&info);
    free(info.types);
    heed_model_file_close(file);
    return status;
}

static int run(int argc, char **argv)
{
    info_options wanted = {0};
    cli_arguments arguments;
    int status;
    if (!cli_parse(&cli_info_command, argc, argv, &wanted, &arguments, 1, 1, &status))
        return status;
    return show(arguments.word[0], &wanted) ? cli_fail_message("info") : CLI_OK;
}

const cli_command cli_info_command = {
    .name = "info",
    .arguments = "MODEL",
    .summary = "What is in a model file: architecture, types, sizes, cache bytes a token.",
    .details = "MODEL is a GGUF file or the first of its parts, a safetensors file, a folder with "
               "config.json, or the name of a\n"
               "model that models/get has fetched, as smollm2. Weights are not read.\n",
    .example = "heed random in.safetensors --shape heads=8,kv_heads=2,queries=100,dim=64\n"
               "heed info in.safetensors --tensors",
    .options = options,
    .run = run,
};
