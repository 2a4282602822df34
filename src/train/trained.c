/* Asking a trained model: its folder, and a pass over one example. */
#include "train/trained.h"
#include "base/output.h"
#include "base/try.h"
#include "model/safetensors.h"

#include <cjson/cJSON.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct heed_trained {
    heed_train_config config;
    heed_data data; /* one record: what is asked */
    heed_transformer model;
    heed_parameters *parameters;
    heed_tokenizer *tokenizer;
    heed_pass_of of;
    heed_pass pass;
    cJSON *facts;
};

bool heed_trained_has(const heed_trainer *trainer)
{
    const heed_data *data = heed_trainer_data(trainer);
    const heed_train_config *c = heed_trainer_config(trainer);
    if (heed_trainer_base(trainer) || data->task || !data->records.count)
        return false;
    return data->objective == HEED_OBJECTIVE_CLASS || data->objective == HEED_OBJECTIVE_REGRESSION ||
           (data->objective == HEED_OBJECTIVE_SEQUENCE && c->model == HEED_MODEL_ENCODER_DECODER);
}

/* Of records; else words of the config. */
static void add_names(cJSON *root, const heed_train_config *c, const heed_records *records)
{
    cJSON *names = cJSON_AddArrayToObject(root, "class_names");
    char words[HEED_CONFIG_TEXT], *rest = words;
    snprintf(words, sizeof words, "%s", c->class_names);
    for (int i = 0; !*words && records->class_name && i < records->classes; i++)
        cJSON_AddItemToArray(names, cJSON_CreateString(records->class_name[i] ? records->class_name[i] : ""));
    for (const char *word; (word = strtok_r(rest, " ", &rest));)
        cJSON_AddItemToArray(names, cJSON_CreateString(word));
}

heed_status heed_trained_write(const heed_trainer *trainer, const char *folder)
{
    const heed_data *data = heed_trainer_data(trainer);
    heed_train_config config = *heed_trainer_config(trainer);
    char path[HEED_TRAIN_PATH];
    *config.file = *config.labels = 0; /* what it learnt from is not needed */
    const size_t length = heed_train_config_print(&config, NULL, 0) + 1;
    char *lines = malloc(length), *text = NULL;
    cJSON *root = cJSON_CreateObject();
    if (lines) {
        heed_train_config_print(&config, lines, length);
        cJSON_AddStringToObject(root, "config", lines);
        cJSON_AddNumberToObject(root, "vocabulary", (double)data->vocabulary);
        cJSON_AddNumberToObject(root, "source_context", (double)data->source_context);
        cJSON_AddNumberToObject(root, "classes", data->records.classes);
        cJSON_AddNumberToObject(root, "end", data->end);
        add_names(root, &config, &data->records);
        text = cJSON_Print(root);
    }
    free(lines);
    cJSON_Delete(root);
    if (!text)
        return heed_fail(HEED_NO_MEMORY, "%s: no memory to say what the model is", folder);
    heed_output output = {.descriptor = -1};
    heed_status status = heed_train_path(path, folder, "trained.json");
    if (!status)
        status = heed_output_open(&output, path);
    if (!status)
        status = heed_output_close(&output, heed_output_write(&output, text, strlen(text)));
    free(text);
    return status;
}

static heed_status number_of(const cJSON *facts, const char *name, double least, double most, int64_t *to)
{
    const cJSON *item = cJSON_GetObjectItemCaseSensitive(facts, name);
    if (!cJSON_IsNumber(item) || !(item->valuedouble >= least && item->valuedouble <= most))
        return heed_fail(HEED_FORMAT, "trained.json: %s must be a number from %g to %g", name, least, most);
    *to = (int64_t)item->valuedouble;
    return HEED_OK;
}

static heed_status read_facts(heed_trained *t, const char *folder)
{
    char path[HEED_TRAIN_PATH], *text = NULL;
    size_t size;
    int64_t classes = 0, end = -1;
    TRY(heed_train_path(path, folder, "trained.json"));
    if (heed_read_file(path, &text, &size))
        return heed_fail(
            HEED_IO,
            "%s: there is no trained.json, which heed train writes beside models with an encoder and a "
            "decoder, or for classes or numbers",
            folder);
    t->facts = cJSON_ParseWithLength(text, size);
    free(text);
    const cJSON *config = cJSON_GetObjectItemCaseSensitive(t->facts, "config");
    if (!cJSON_IsString(config))
        return heed_fail(HEED_FORMAT, "%s: not JSON with a config", path);
    heed_train_config_start(&t->config);
    TRY(heed_train_config_read(&t->config, config->valuestring, path));
    TRY(number_of(t->facts, "vocabulary", 1, 1 << 24, &t->data.vocabulary));
    TRY(number_of(t->facts, "source_context", 0, 1 << 24, &t->data.source_context));
    TRY(number_of(t->facts, "classes", 0, 1 << 20, &classes));
    TRY(number_of(t->facts, "end", -1, 1 << 24, &end));
    t->data.records.classes = (int)classes;
    t->data.end = (int32_t)end;
    t->data.objective = (heed_objective)t->config.objective;
    return t->config.context > 0 && end < t->data.vocabulary
               ? HEED_OK
               : heed_fail(HEED_FORMAT, "%s: no context, or an end that is no token", path);
}

static heed_status read_weights(heed_trained *t, const char *folder)
{
    char path[HEED_TRAIN_PATH];
    heed_safetensors *file;
    TRY(heed_train_path(path, folder, "model.safetensors"));
    TRY(heed_safetensors_open(&file, path));
    heed_status status = HEED_OK;
    for (int i = 0; i < heed_parameters_count(t->parameters) && !status; i++) {
        heed_parameter *p = heed_parameters_at(t->parameters, i);
        const heed_file_tensor *tensor = heed_safetensors_find(file, p->name);
        bool fits = tensor && tensor->type == HEED_F32 && tensor->rank == p->rank;
        for (int d = 0; fits && d < p->rank; d++)
            fits = tensor->shape[d] == p->shape[d];
        status = fits
                     ? heed_safetensors_read(file, tensor, p->value)
                     : heed_fail(HEED_FORMAT, "%s: there is no tensor %s of the shape that trained.json says",
                                 path, p->name);
        for (int64_t n = 0; !status && n < p->count; n++)
            if (!isfinite(p->value[n]))
                status = heed_fail(HEED_FORMAT, "%s: the tensor %s holds what is no number", path, p->name);
    }
    heed_safetensors_close(file);
    return status;
}

/* Room for one record of as many tokens as are read. */
static heed_status take_record(heed_trained *t)
{
    heed_records *records = &t->data.records;
    const int64_t most =
        t->data.source_context > t->config.context ? t->data.source_context : t->config.context;
    records->tokens.id = calloc((size_t)most + 1, sizeof *records->tokens.id);
    records->end = calloc(1, sizeof *records->end);
    records->label = calloc(1, sizeof *records->label);
    records->number = calloc(1, sizeof *records->number);
    if (!records->tokens.id || !records->end || !records->label || !records->number)
        return heed_fail(HEED_NO_MEMORY, "no memory for what a model is asked");
    records->count = records->room = t->data.held_out = 1;
    records->most = most;
    records->fields = 1u << HEED_FIELD_TEXT;
    return HEED_OK;
}

static heed_status open_folder(heed_trained *t, const char *folder, const heed_watch *watch, int threads)
{
    TRY(read_facts(t, folder));
    TRY(take_record(t));
    if (strcmp(t->config.tokenizer, "bytes") != 0)
        TRY(heed_tokenizer_load(&t->tokenizer, folder));
    t->config.batch = 1;
    TRY(heed_train_shape(&t->config, &t->data, &t->model));
    TRY(heed_parameters_create(&t->parameters, 1));
    t->of = (heed_pass_of){.config = &t->config,
                           .data = &t->data,
                           .model = &t->model,
                           .parameters = t->parameters,
                           .threads = threads};
    if (watch)
        t->of.watch = *watch;
    TRY(heed_pass_make(&t->pass, &t->of, false));
    return read_weights(t, folder);
}

heed_status heed_trained_open(heed_trained **trained, const char *folder, const heed_watch *watch,
                              int threads)
{
    heed_trained *made = calloc(1, sizeof *made);
    *trained = NULL;
    if (!made)
        return heed_fail(HEED_NO_MEMORY, "no memory for a model");
    const heed_status status = open_folder(made, folder, watch, threads);
    if (status)
        heed_trained_free(made);
    else
        *trained = made;
    return status;
}

void heed_trained_free(heed_trained *t)
{
    if (!t)
        return;
    heed_pass_free(&t->pass);
    heed_parameters_free(t->parameters);
    heed_tokenizer_free(t->tokenizer);
    heed_data_free(&t->data);
    cJSON_Delete(t->facts);
    free(t);
}

heed_trained_info heed_trained_get_info(const heed_trained *t)
{
    heed_trained_info info = {.objective = t->data.objective,
                              .image = t->model.image,
                              .context = t->config.context,
                              .source_context = t->data.source_context,
                              .classes = t->data.records.classes,
                              .layers = t->model.layers,
                              .heads = t->model.heads};
    for (int i = 0; i < heed_parameters_count(t->parameters); i++)
        info.parameters += heed_parameters_at(t->parameters, i)->count;
    return info;
}

const char *heed_trained_class_name(const heed_trained *t, int64_t class, char room[24])
{
    const cJSON *names = cJSON_GetObjectItemCaseSensitive(t->facts, "class_names");
    const cJSON *name = class < INT32_MAX ? cJSON_GetArrayItem(names, (int)class) : NULL;
    snprintf(room, 24, "%lld", (long long)class);
    return cJSON_IsString(name) && *name->valuestring ? name->valuestring : room;
}

const heed_tokenizer *heed_trained_tokenizer(const heed_trained *t)
{
    return t->tokenizer;
}

/* The record becomes this text. */
static heed_status ask(heed_trained *t, const int32_t *token, int64_t count, int64_t most)
{
    heed_records *records = &t->data.records;
    if (count < 1 || count > most)
        return heed_fail(HEED_INVALID, "%lld tokens: the model reads 1 to %lld", (long long)count,
                         (long long)most);
    for (int64_t i = 0; i < count; i++)
        if (token[i] < 0 || token[i] >= t->data.vocabulary)
            return heed_fail(HEED_INVALID, "token %d at place %lld: the model knows 0 to %lld", token[i],
                             (long long)i, (long long)t->data.vocabulary - 1);
    memcpy(records->tokens.id, token, (size_t)count * sizeof *token);
    records->tokens.count = count;
    for (int f = 0; f < HEED_FIELDS; f++)
        records->end[0][f] = count;
    heed_pass_fill(&t->pass, true, 0, 1);
    return HEED_OK;
}

heed_status heed_trained_judge(heed_trained *t, const int32_t *token, int64_t count, float *result)
{
    const heed_image *image = &t->model.image;
    const int64_t pixels = image->height * image->width * image->channels, classes = t->data.records.classes;
    if (t->data.objective == HEED_OBJECTIVE_SEQUENCE)
        return heed_fail(HEED_INVALID, "the model answers texts, it tells no classes");
    if (image->patch && count != pixels)
        return heed_fail(
            HEED_INVALID, "a picture of %lld numbers: the model reads %lld by %lld, %lld channels",
            (long long)count, (long long)image->height, (long long)image->width, (long long)image->channels);
    TRY(ask(t, token, count, t->config.context));
    TRY(heed_graph_forward(t->pass.graph));
    const float *score = heed_graph_data(t->pass.graph, t->pass.scores);
    if (t->data.objective == HEED_OBJECTIVE_REGRESSION) {
        *result = *score;
        return HEED_OK;
    }
    double most = -INFINITY, sum = 0.0;
    for (int64_t c = 0; c < classes; c++)
        most = score[c] > most ? score[c] : most;
    for (int64_t c = 0; c < classes; c++)
        sum += exp(score[c] - most);
    for (int64_t c = 0; c < classes; c++)
        result[c] = (float)(exp(score[c] - most) / sum);
    return HEED_OK;
}

heed_status heed_trained_answer(heed_trained *t, const int32_t *token, int64_t count, heed_tokens *said)
{
    const int64_t vocabulary = t->model.vocabulary;
    if (t->data.source_context < 1)
        return heed_fail(HEED_INVALID,
                         "the model has no encoder: heed run goes on with texts, and `judge` tells "
                         "classes");
    TRY(ask(t, token, count, t->data.source_context));
    int32_t *written = heed_graph_data(t->pass.graph, t->pass.nodes.tokens);
    const float *scores = heed_graph_data(t->pass.graph, t->pass.scores);
    said->count = 0;
    for (int64_t i = 0; i < t->model.context; i++) {
        TRY(heed_graph_forward(t->pass.graph));
        int32_t best = 0;
        for (int32_t c = 1; c < vocabulary; c++)
            best = scores[i * vocabulary + c] > scores[i * vocabulary + best] ? c : best;
        if (best == t->data.end)
            return HEED_OK;
        TRY(heed_tokens_add(said, best));
        if (i + 1 < t->model.context)
            written[i + 1] = best;
    }
    return HEED_OK;
}
