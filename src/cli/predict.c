/* heed predict: one answer of a model that heed train made: to a text, by an encoder and a decoder; or the
 * class of a text or a picture. */
#include "base/npy.h"
#include "base/try.h"
#include "base/utf8.h"
#include "cli/json_text.h"
#include "cli/language.h"
#include "cli/model.h"
#include "plot/plot.h"
#include "train/trained.h"

#include <cjson/cJSON.h>
#include <stdlib.h>
#include <string.h>

typedef struct predict_options {
    cli_language use;
    const char *picture, *map;
    int64_t layer, head;
} predict_options;

static const cli_option options[] = {
    CLI_OPTION(predict_options, use.model, .kind = CLI_TEXT, .name = "model", .letter = 'm',
               .value = "FOLDER", .summary = "a folder that heed train wrote"),
    CLI_PROMPT_OPTIONS(predict_options),
    CLI_TEXT_OPTION(predict_options, picture, "picture", "FILE",
                    "a picture to classify: .png, or .npy [height, width] with bytes or floats from 0 to 1"),
    CLI_TEXT_OPTION(predict_options, map, "map", "FILE",
                    "where each word of the answer looked in the text, as .png or .svg"),
    CLI_WHOLE_OPTION(predict_options, layer, "layer", 0, 1 << 16, "of the map: which layer; the last"),
    CLI_WHOLE_OPTION(predict_options, head, "head", 0, 1 << 16, "of the map: which head; the mean of all"),
    CLI_THREADS_OPTION(predict_options, use.threads),
    CLI_FLAG_OPTION(predict_options, use.json, "json", "the answer as a JSON object"),
    {0},
};

typedef struct predict_run {
    predict_options wanted;
    heed_trained *trained;
    heed_trained_info info;
    heed_tokens asked, said;
    float *weights; /* [context, source context] of the map, of the run at hand */
    char watched[60];
} predict_run;

/* Cross-attention of one layer, whose rows are made again for each token of the answer. */
static void take_weights(void *context, const char *name, const heed_weights_tile *tile)
{
    predict_run *run = context;
    const bool all = run->wanted.head < 0;
    if (!run->weights || strcmp(name, run->watched) != 0 || (!all && tile->head != run->wanted.head))
        return;
#pragma omp critical(heed_predict_map)
    for (int r = 0; r < tile->rows; r++)
        for (int c = 0; c < tile->cols; c++) {
            const int64_t row = tile->query0 + r, col = tile->key0 + c;
            if (row < run->info.context && col < run->info.source_context) {
                float *to =
                    run->weights + (tile->head * run->info.context + row) * run->info.source_context + col;
                *to = tile->weight[r * tile->stride + c];
            }
        }
}

static heed_status read_npy(const char *path, heed_tokens *to)
{
    heed_npy array;
    TRY(heed_npy_read(&array, path));
    heed_status status = HEED_OK;
    const double scale = array.kind == 'f' ? 255.0 : 1.0;
    for (int64_t i = 0; i < array.count && !status; i++) {
        const double value = heed_npy_at(&array, i) * scale;
        status = value >= 0.0 && value <= 255.0
                     ? heed_tokens_add(to, (int32_t)(value + 0.5))
                     : heed_fail(HEED_FORMAT, "%s: bytes, or floats from 0 to 1, are needed", path);
    }
    heed_npy_free(&array);
    return status;
}

static heed_status read_picture(predict_run *run)
{
    const heed_image *image = &run->info.image;
    const char *path = run->wanted.picture;
    const size_t length = strlen(path);
    heed_plot_pixels pixels;
    if (!image->patch)
        return heed_fail(HEED_INVALID, "--picture %.100s: the model reads texts", path);
    if (length > 4 && !strcmp(path + length - 4, ".npy"))
        return read_npy(path, &run->asked);
    if (image->channels != 1 && image->channels != 3)
        return heed_fail(HEED_UNSUPPORTED,
                         "%.100s: the model's pictures have %lld channels, which no PNG file has", path,
                         (long long)image->channels);
    TRY(heed_plot_read(path, (int)image->channels, &pixels));
    heed_status status = HEED_OK;
    if (pixels.height != image->height || pixels.width != image->width)
        status = heed_fail(HEED_INVALID, "%.100s has %lld by %lld pixels, the model reads %lld by %lld", path,
                           (long long)pixels.height, (long long)pixels.width, (long long)image->height,
                           (long long)image->width);
    for (int64_t i = 0; !status && i < pixels.height * pixels.width * pixels.channels; i++)
        status = heed_tokens_add(&run->asked, pixels.value[i]);
    free(pixels.value);
    return status;
}

static heed_status read_asked(predict_run *run)
{
    cli_text text;
    if (run->wanted.picture)
        return read_picture(run);
    if (run->info.image.patch)
        return heed_fail(HEED_INVALID,
                         "--picture FILE is missing: the model classifies pictures of %lld by %lld",
                         (long long)run->info.image.height, (long long)run->info.image.width);
    TRY(cli_read_text(&run->wanted.use, &text));
    while (!run->wanted.use.prompt && text.size && text.bytes[text.size - 1] == '\n')
        text.size--;
    heed_status status = HEED_OK;
    const heed_tokenizer *tokenizer = heed_trained_tokenizer(run->trained);
    if (tokenizer)
        status = heed_tokenize(tokenizer, text.bytes, text.size, 0, &run->asked);
    for (size_t i = 0; !tokenizer && i < text.size && !status; i++)
        status = heed_tokens_add(&run->asked, (unsigned char)text.bytes[i]);
    free(text.bytes);
    return status;
}

/* Bytes of tokens, ended by 0; the caller frees. */
static char *text_of(const predict_run *run, const heed_tokens *tokens)
{
    heed_detokenizer detokenizer = {.tokenizer = heed_trained_tokenizer(run->trained), .tokens = 1};
    char *text = NULL, few[256];
    size_t size = 0;
    FILE *out = open_memstream(&text, &size);
    for (int64_t i = 0; out && i < tokens->count; i++) {
        if (!detokenizer.tokenizer) {
            fputc(tokens->id[i] < 256 ? tokens->id[i] : '?', out);
            continue;
        }
        const size_t length = heed_detokenize(&detokenizer, tokens->id[i], few, sizeof few);
        fwrite(few, 1, length < sizeof few ? length : sizeof few - 1, out);
    }
    if (out)
        fclose(out);
    return text;
}

static heed_status print_answer(const predict_run *run)
{
    char *raw = text_of(run, &run->said), *text = raw ? heed_utf8_copy(raw, strlen(raw)) : NULL;
    heed_status status = text ? HEED_OK : heed_fail(HEED_NO_MEMORY, "no memory for the answer");
    if (!status && run->wanted.use.json) {
        cJSON *line = cJSON_CreateObject(), *ids = cJSON_AddArrayToObject(line, "ids");
        cJSON_AddStringToObject(line, "text", text);
        for (int64_t i = 0; i < run->said.count; i++)
            cJSON_AddItemToArray(ids, cJSON_CreateNumber(run->said.id[i]));
        cli_print_json(line);
    } else if (!status) {
        printf("%s\n", text);
    }
    free(raw);
    free(text);
    return status;
}

static int64_t likeliest(const float *share, int64_t classes, int64_t below)
{
    int64_t best = -1;
    for (int64_t c = 0; c < classes; c++)
        if ((below < 0 || share[c] < share[below] || (share[c] == share[below] && c > below)) &&
            (best < 0 || share[c] > share[best]))
            best = c;
    return best;
}

/* The likeliest first. */
static void print_classes(const predict_run *run, const float *share)
{
    char room[24];
    cJSON *line = run->wanted.use.json ? cJSON_CreateObject() : NULL, *all = NULL;
    int64_t class = likeliest(share, run->info.classes, -1);
    if (line) {
        cJSON_AddStringToObject(line, "class", heed_trained_class_name(run->trained, class, room));
        all = cJSON_AddObjectToObject(line, "probabilities");
    }
    for (; class >= 0; class = likeliest(share, run->info.classes, class)) {
        const char *name = heed_trained_class_name(run->trained, class, room);
        if (line)
            cJSON_AddNumberToObject(all, name, (double)share[class]);
        else
            printf("%-16s %6.2f %%\n", name, 100.0 * (double)share[class]);
    }
    if (line)
        cli_print_json(line);
}

static heed_status judge(predict_run *run)
{
    float *result = calloc((size_t)run->info.classes + 1, sizeof *result);
    if (!result)
        return heed_fail(HEED_NO_MEMORY, "no memory for the result");
    heed_status status = heed_trained_judge(run->trained, run->asked.id, run->asked.count, result);
    if (!status && run->info.objective == HEED_OBJECTIVE_REGRESSION)
        printf(run->wanted.use.json ? "{\"number\": %.9g}\n" : "%.6g\n", (double)*result);
    else if (!status)
        print_classes(run, result);
    free(result);
    return status;
}

/* Heads of the map into one: [said, asked]. */
static void gather(const predict_run *run, float *to)
{
    const int64_t rows = run->said.count, cols = run->asked.count,
                  heads = run->wanted.head < 0 ? run->info.heads : 1;
    for (int64_t h = 0; h < heads; h++) {
        const int64_t head = run->wanted.head < 0 ? h : run->wanted.head;
        for (int64_t r = 0; r < rows; r++)
            for (int64_t c = 0; c < cols; c++)
                to[r * cols + c] +=
                    run->weights[(head * run->info.context + r) * run->info.source_context + c] /
                    (float)heads;
    }
}

/* A token's own bytes. */
static heed_plot_token label_of(const predict_run *run, int32_t id, char room[64])
{
    heed_detokenizer detokenizer = {.tokenizer = heed_trained_tokenizer(run->trained), .tokens = 1};
    size_t size = 1;
    room[0] = (char)id;
    if (detokenizer.tokenizer)
        size = heed_detokenize(&detokenizer, id, room, 64);
    return (heed_plot_token){room, size < 64 ? size : 63};
}

static heed_status draw(const predict_run *run)
{
    const int64_t rows = run->said.count, cols = run->asked.count;
    char title[100];
    heed_plot_pool *pool = NULL;
    if (rows == 0)
        return heed_fail(HEED_INVALID, "--map: the answer is empty");
    float *weights = calloc((size_t)(rows * cols), sizeof *weights);
    heed_plot_token *token = calloc((size_t)(rows + cols), sizeof *token);
    char(*room)[64] = calloc((size_t)(rows + cols), sizeof *room);
    heed_status status = weights && token && room
                             ? heed_plot_pool_create(&pool, 1, rows, cols, HEED_PLOT_SIDE)
                             : heed_fail(HEED_NO_MEMORY, "no memory for a map");
    if (!status) {
        gather(run, weights);
        heed_plot_pool_add_matrix(pool, 0, weights);
        for (int64_t i = 0; i < rows + cols; i++)
            token[i] = label_of(run, i < rows ? run->said.id[i] : run->asked.id[i - rows], room[i]);
        snprintf(title, sizeof title, "where the answer looks, layer %lld", (long long)run->wanted.layer);
        status = heed_plot_draw_matrix(run->wanted.map, &(heed_plot_matrix){.title = title,
                                                                            .pool = pool,
                                                                            .query = token,
                                                                            .key = token + rows,
                                                                            .down = "answer",
                                                                            .across = "text"});
    }
    heed_plot_pool_free(pool);
    free(weights);
    free(token);
    free(room);
    return status;
}

static heed_status take_map(predict_run *run)
{
    predict_options *wanted = &run->wanted;
    if (!wanted->map)
        return HEED_OK;
    if (!run->info.source_context)
        return heed_fail(HEED_INVALID, "--map: the model has no decoder that looks at a text");
    wanted->layer = wanted->layer < 0 ? run->info.layers - 1 : wanted->layer;
    if (wanted->layer >= run->info.layers || wanted->head >= run->info.heads)
        return heed_fail(HEED_INVALID, "--map: the model has %lld layers of %lld heads, counted from 0",
                         (long long)run->info.layers, (long long)run->info.heads);
    snprintf(run->watched, sizeof run->watched, "model.layers.%lld.cross_attn", (long long)wanted->layer);
    run->weights = calloc((size_t)(run->info.heads * run->info.context * run->info.source_context),
                          sizeof *run->weights);
    return run->weights ? HEED_OK : heed_fail(HEED_NO_MEMORY, "no memory for a map");
}

static heed_status predict(predict_run *run)
{
    const heed_watch watch = {take_weights, run};
    if (!run->wanted.use.model)
        return heed_fail(HEED_INVALID, "-m FOLDER is missing: a model that heed train wrote");
    TRY(heed_trained_open(&run->trained, run->wanted.use.model, run->wanted.map ? &watch : NULL,
                          (int)run->wanted.use.threads));
    run->info = heed_trained_get_info(run->trained);
    TRY(take_map(run));
    TRY(read_asked(run));
    if (run->info.objective != HEED_OBJECTIVE_SEQUENCE)
        return judge(run);
    TRY(heed_trained_answer(run->trained, run->asked.id, run->asked.count, &run->said));
    TRY(print_answer(run));
    return run->wanted.map ? draw(run) : HEED_OK;
}

static int run_command(int argc, char **argv)
{
    predict_run run = {.wanted = {.layer = -1, .head = -1}};
    cli_arguments arguments;
    int status;
    if (!cli_parse(&cli_predict, argc, argv, &run.wanted, &arguments, 0, 0, &status))
        return status;
    const heed_status done = predict(&run);
    heed_trained_free(run.trained);
    heed_tokens_free(&run.asked);
    heed_tokens_free(&run.said);
    free(run.weights);
    return done ? cli_fail_message("predict") : CLI_OK;
}

const cli_command cli_predict = {
    .name = "predict",
    .arguments = "-m FOLDER [-p TEXT | -f FILE | --picture FILE]",
    .summary = "what a model that heed train made answers: a text by an encoder and a decoder, or a class",
    .details =
        "Models that say the next token are for heed run. These are of objective = sequence with model = "
        "encoder_decoder,\nor of objective = class or regression, from records or pictures.\n",
    .example = "heed predict -m models/dates -p 'the 3rd of March 1814'\n",
    .options = options,
    .run = run_command,
};
