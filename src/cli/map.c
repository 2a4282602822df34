/* heed map: where a model looked while it read a text. */
#include "cli/map.h"
#include "base/npy.h"
#include "base/try.h"
#include "cli/inputs.h"
#include "cli/language.h"

#include <stdlib.h>
#include <string.h>

static const cli_option options[] = {
    CLI_MODEL_OPTION(map_options),
    CLI_PROMPT_OPTIONS(map_options),
    CLI_OPTION(map_options, output, .kind = CLI_TEXT, .name = "output", .letter = 'o', .value = "FILE",
               .summary = "where to: .png, .svg, .npy or .safetensors"),
    CLI_LIST_OPTION(map_options, layers, "layer", "LIST", "layers: 5, or 0,3,8-11, or all (the default)"),
    CLI_LIST_OPTION(map_options, layers, "layers", "LIST", "the same"),
    CLI_LIST_OPTION(map_options, heads, "head", "LIST", "query heads, in the same way"),
    CLI_LIST_OPTION(map_options, heads, "heads", "LIST", "the same"),
    CLI_FLAG_OPTION(map_options, grid, "grid", "thumbnails of all that was chosen, also of a single head"),
    CLI_FLAG_OPTION(map_options, tokens, "tokens", "the text, its tokens coloured by what they received"),
    CLI_FLAG_OPTION(map_options, summary, "summary",
                    "entropies and what each token received instead of weights, at any length"),
    CLI_CHOICE_OPTION(map_options, use.truncate, "truncate", "PART", cli_cut_word,
                      "drop the head, middle or tail of a text that is too long; an error when not given"),
    CLI_RUN_OPTIONS(map_options),
    CLI_SPECIAL_OPTION(map_options),
    CLI_FLAG_OPTION(map_options, use.json, "json", "a JSON object a layer and head"),
    {0},
};

static heed_status in_list(const char *option, const char *list, int64_t count, uint8_t *chosen)
{
    if (!list || !strcmp(list, "all")) {
        memset(chosen, 1, (size_t)count);
        return HEED_OK;
    }
    for (const char *at = list; *at;) {
        char *end;
        const long long first = strtoll(at, &end, 10);
        const bool number = end != at && first >= 0;
        long long last = first;
        if (number && *end == '-') {
            at = end + 1;
            last = strtoll(at, &end, 10);
        }
        if (!number || end == at || last < first || (*end && (*end != ',' || !end[1])))
            return heed_fail(HEED_INVALID,
                             "--%s %.100s: numbers with commas, ranges as in 3-5, or all are needed", option,
                             list);
        if (last >= count)
            return heed_fail(HEED_INVALID, "--%s %.100s: there is no %s %lld, the model has %lld, 0 to %lld",
                             option, list, option, last, (long long)count, (long long)count - 1);
        memset(chosen + first, 1, (size_t)(last - first + 1));
        at = *end ? end + 1 : end;
    }
    return HEED_OK;
}

/* An option that may be given several times. */
static heed_status in_lists(const char *option, const cli_list *lists, int64_t count, uint8_t *chosen)
{
    if (lists->count == 0)
        return in_list(option, NULL, count, chosen);
    for (int i = 0; i < lists->count; i++)
        TRY(in_list(option, lists->word[i], count, chosen));
    return HEED_OK;
}

/* Recurrences and layers by forms have no weights to look at. */
static heed_status leave_out(const map_run *run, uint8_t *layer)
{
    int64_t left = 0, out = 0, last = 0;
    for (int64_t l = 0; l < run->info.layers; l++) {
        if (layer[l] && !heed_model_attends(run->model, l)) {
            layer[l] = 0;
            last = l;
            out++;
        }
        left += layer[l];
    }
    char own[1024] = "";
    if (out)
        TRY(heed_model_attention(run->model, last, own, sizeof own));
    if (out && (left == 0 || run->options.layers.count > 0))
        return heed_fail(HEED_UNSUPPORTED, "layer %lld is `%s`, which has no weights of attention to look at",
                         (long long)last, own);
    if (out && !run->options.use.json)
        fprintf(stderr,
                "heed map: note: %lld layers have no weights of attention, such as layer %lld, `%s`\n",
                (long long)out, (long long)last, own);
    return HEED_OK;
}

static heed_status choose(map_run *run)
{
    const int64_t layers = run->info.layers, heads = run->info.heads;
    uint8_t *layer = cli_take(&run->pool, (size_t)layers), *head = cli_take(&run->pool, (size_t)heads);
    run->layer = cli_take(&run->pool, (size_t)layers * sizeof *run->layer);
    run->head = cli_take(&run->pool, (size_t)heads * sizeof *run->head);
    run->place = cli_take(&run->pool, (size_t)(layers * heads) * sizeof *run->place);
    run->chosen = cli_take(&run->pool, (size_t)(layers * heads));
    if (!layer || !head || !run->layer || !run->head || !run->place || !run->chosen)
        return HEED_NO_MEMORY;
    TRY(in_lists("layer", &run->options.layers, layers, layer));
    TRY(leave_out(run, layer));
    TRY(in_lists("head", &run->options.heads, heads, head));
    for (int64_t h = 0; h < heads; h++)
        if (head[h])
            run->head[run->heads++] = h;
    for (int64_t l = 0; l < layers; l++) {
        for (int64_t h = 0; layer[l] && h < heads; h++) {
            run->place[l * heads + h] = head[h] ? run->maps++ : -1;
            run->chosen[l * heads + h] = head[h];
        }
        if (layer[l])
            run->layer[run->layers++] = l;
    }
    return HEED_OK;
}

static void take_weights(void *context, int64_t layer, int64_t sequence, const heed_weights_tile *tile)
{
    map_run *run = context;
    const int64_t map = run->place[layer * run->info.heads + tile->head], n = run->tokens.count;
    (void)sequence;
    if (run->drawn)
        heed_plot_pool_add(run->drawn, map, tile);
    for (int r = 0; run->weights && r < tile->rows; r++) {
        const int64_t left = n - tile->key0, cols = tile->cols < left ? tile->cols : left;
        memcpy(run->weights + (map * n + tile->query0 + r) * n + tile->key0, tile->weight + r * tile->stride,
               (size_t)cols * sizeof(float));
    }
}

static void take_statistics(void *context, int64_t layer, int64_t sequence, int64_t query0, int64_t queries,
                            int64_t keys, const heed_capture *capture)
{
    map_run *run = context;
    const int64_t n = run->tokens.count, heads = run->info.heads;
    (void)sequence;
    for (int64_t h = 0; h < heads; h++) {
        if (!run->chosen[layer * heads + h])
            continue;
        const int64_t map = run->place[layer * heads + h];
        for (int64_t i = 0; i < queries; i++)
            run->entropy[map * n + query0 + i] = capture->entropy[h * queries + i] + 0.0f; /* no -0 */
        for (int64_t j = 0; j < keys; j++)
            run->received[map * n + j] += capture->key_sums[h * keys + j];
    }
}

static heed_status read_text(map_run *run)
{
    const int64_t n = run->tokens.count;
    heed_session_options wanted = cli_session_options(&run->options.use, n);
    heed_feed_wants wants = {.context = run};
    if (run->drawn || run->weights) {
        wanted.with |= HEED_WITH_WEIGHTS;
        wants.weights = take_weights;
        wants.weight_heads = run->chosen;
    }
    if (run->entropy) {
        wanted.with |= HEED_WITH_ENTROPY | HEED_WITH_KEY_SUMS;
        wants.captured = take_statistics;
    }
    heed_session *session;
    TRY(cli_create_session(&cli_map, &session, run->model, &wanted));
    const heed_feed_item item = {.tokens = run->tokens.id, .count = n};
    const heed_status status = heed_feed(session, &item, 1, &wants);
    heed_session_free(session);
    return status;
}

static bool ends_with(const char *path, const char *ending)
{
    const size_t length = strlen(path), wanted = strlen(ending);
    return length > wanted && !strcmp(path + length - wanted, ending);
}

static heed_status settle_output(map_run *run)
{
    const char *path = run->options.output;
    run->picture = path && (ends_with(path, ".png") || ends_with(path, ".svg"));
    run->numpy = path && ends_with(path, ".npy");
    run->safetensors = path && ends_with(path, ".safetensors");
    if (path && !run->picture && !run->numpy && !run->safetensors)
        return heed_fail(HEED_INVALID, "-o %.200s: the name must end in .png, .svg, .npy or .safetensors",
                         path);
    if (!path && !run->options.summary)
        return heed_fail(HEED_INVALID,
                         "where to? give -o FILE (.png, .svg, .npy or .safetensors), or --summary");
    if (run->numpy && (run->options.summary || run->options.tokens))
        return heed_fail(HEED_INVALID,
                         "a .npy file holds weights; --summary and --tokens go to .safetensors or pictures");
    if (run->options.tokens && !run->picture)
        return heed_fail(HEED_INVALID, "--tokens draws a picture: -o FILE.png or FILE.svg is needed");
    if (run->options.summary && run->picture && !run->options.tokens)
        return heed_fail(HEED_INVALID, "--summary draws no map; with --tokens it colours the text");
    return HEED_OK;
}

static heed_status take_room(map_run *run)
{
    const size_t n = (size_t)run->tokens.count, maps = (size_t)run->maps;
    const bool statistics =
        run->options.summary || run->options.tokens || run->options.use.json || run->safetensors;
    const bool all = (run->numpy || run->safetensors) && !run->options.summary;
    if (all && maps > SIZE_MAX / sizeof(float) / n / n)
        return heed_fail(HEED_NO_MEMORY, "%zu maps of %zu by %zu weights do not fit into memory", maps, n, n);
    if (all && !(run->weights = cli_take(&run->pool, maps * n * n * sizeof(float))))
        return HEED_NO_MEMORY;
    if (statistics) {
        run->entropy = cli_take(&run->pool, maps * n * sizeof(float));
        run->received = cli_take(&run->pool, maps * n * sizeof(float));
        if (!run->entropy || !run->received)
            return HEED_NO_MEMORY;
    }
    if (run->picture && !run->options.tokens)
        return heed_plot_pool_create(&run->drawn, run->maps, (int64_t)n, (int64_t)n,
                                     run->maps > 1 || run->options.grid ? HEED_PLOT_THUMBNAIL
                                                                        : HEED_PLOT_SIDE);
    return HEED_OK;
}

static heed_status write_arrays(const map_run *run)
{
    const int64_t n = run->tokens.count;
    const bool one = run->maps == 1;
    const int64_t shape[] = {run->layers, run->heads, n, n}, *used = one ? shape + 2 : shape;
    if (run->numpy)
        return heed_npy_write(run->options.output, one ? 2 : 4, used, run->weights);
    int32_t *layer = calloc((size_t)run->layers, sizeof *layer),
            *head = calloc((size_t)run->heads, sizeof *head);
    heed_status status =
        layer && head ? HEED_OK : heed_fail(HEED_NO_MEMORY, "no memory for lists of layers and heads");
    if (!status) {
        for (int64_t l = 0; l < run->layers; l++)
            layer[l] = (int32_t)run->layer[l];
        for (int64_t h = 0; h < run->heads; h++)
            head[h] = (int32_t)run->head[h];
        heed_named_tensor tensor[] = {
            {"entropy",
             heed_tensor_dense(run->entropy, HEED_F32, 3, (int64_t[]){run->layers, run->heads, n})},
            {"heads", heed_tensor_dense(head, HEED_I32, 1, &run->heads)},
            {"layers", heed_tensor_dense(layer, HEED_I32, 1, &run->layers)},
            {"received",
             heed_tensor_dense(run->received, HEED_F32, 3, (int64_t[]){run->layers, run->heads, n})},
            {"tokens", heed_tensor_dense(run->tokens.id, HEED_I32, 1, &n)},
            {"weights", heed_tensor_dense(run->weights, HEED_F32, 4, shape)},
        };
        status = heed_safetensors_write(run->options.output, tensor, run->weights ? 6 : 5, NULL);
    }
    free(layer);
    free(head);
    return status;
}

static heed_status tokens_of(map_run *run)
{
    const cli_language *use = &run->options.use;
    cli_text text;
    TRY(cli_read_text(use, &text));
    const heed_status status = cli_tokens_of(run->model, use, &text, &run->tokens);
    free(text.bytes);
    TRY(status);
    if (run->tokens.count == 0)
        return heed_fail(HEED_INVALID, "the text has no tokens");
    const int64_t most = run->info.context;
    run->dropped = cli_cut(&run->tokens, most, use->truncate, 1, run->info.causal ? 0 : 1);
    if (run->tokens.count > most)
        return heed_fail(HEED_INVALID,
                         "%lld tokens do not fit into the model's context of %lld; --truncate head, middle "
                         "or tail drops some",
                         (long long)run->tokens.count, (long long)most);
    if (run->dropped && !use->json)
        fprintf(stderr, "heed map: note: %lld tokens of the text were dropped\n", (long long)run->dropped);
    return HEED_OK;
}

static heed_status map(map_run *run)
{
    TRY(settle_output(run));
    TRY(cli_open_model(&cli_map, &run->options.use, &run->model));
    heed_model_get_info(run->model, &run->info);
    TRY(choose(run));
    TRY(tokens_of(run));
    TRY(take_room(run));
    TRY(read_text(run));
    if (run->numpy || run->safetensors)
        TRY(write_arrays(run));
    if (run->picture)
        TRY(cli_map_draw(run));
    return cli_map_report(run);
}

static int run_command(int argc, char **argv)
{
    map_run run = {.options = {.use = CLI_LANGUAGE()}};
    cli_arguments arguments;
    int status;
    if (!cli_parse(&cli_map, argc, argv, &run.options, &arguments, 0, 0, &status))
        return status;
    status = map(&run) ? cli_fail_message("map") : CLI_OK;
    heed_plot_pool_free(run.drawn);
    heed_tokens_free(&run.tokens);
    cli_release(&run.pool);
    heed_model_close(run.model);
    return status;
}

const cli_command cli_map = {
    .name = "map",
    .arguments = "-m MODEL -p TEXT -o FILE",
    .summary = "where a model looked while it read a text, as a picture or as numbers",
    .details = "One head is drawn as a matrix with the tokens on both axes, several as thumbnails. .npy "
               "holds the weights as\n"
               "[queries, keys], or [layers, heads, queries, keys] of several; .safetensors also the tokens, "
               "the entropy of each\n"
               "row in nats and what each key received. Weights come from the fused kernels while the model "
               "reads.\n",
    .example = "heed map -m smollm2 -p \"The cat sat on the mat because it was tired\" --layer 5 --head 3 -o "
               "map.png\n",
    .options = options,
    .run = run_command,
};
