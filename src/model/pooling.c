/* How the files of a model want the hidden states of a text made into one vector: beside safetensors as
 * sentence-transformers writes it, in a GGUF file by a number. */
#include "base/try.h"
#include "model/weights.h"

#include <string.h>

static cJSON *object_of(const heed_model *model, const char *name)
{
    size_t size = 0;
    const char *text = heed_model_file_text(model->file, name, &size);
    return text ? cJSON_ParseWithLength(text, size) : NULL;
}

static bool is_on(const cJSON *object, const char *key)
{
    return cJSON_IsTrue(cJSON_GetObjectItemCaseSensitive(object, key));
}

/* The one mode that is on; NULL when it is none that heed knows, or several. */
static const char *mode_of(const cJSON *object)
{
    static const char *const modes[][2] = {{"pooling_mode_mean_tokens", "mean"},
                                           {"pooling_mode_cls_token", "cls"},
                                           {"pooling_mode_lasttoken", "last"}};
    static const char *const others[] = {"pooling_mode_max_tokens", "pooling_mode_mean_sqrt_len_tokens",
                                         "pooling_mode_weightedmean_tokens"};
    const char *mode = NULL;
    int on = 0;
    for (size_t i = 0; i < sizeof modes / sizeof *modes; i++)
        if (is_on(object, modes[i][0])) {
            mode = modes[i][1];
            on++;
        }
    for (size_t i = 0; i < sizeof others / sizeof *others; i++)
        on += is_on(object, others[i]);
    return on == 1 ? mode : NULL;
}

static void read_gguf(heed_model *model)
{
    static const char *const modes[] = {NULL, "mean", "cls", "last"};
    char key[96] = "";
    strncat(key, model->config.architecture, sizeof key - 20);
    strcat(key, ".pooling_type");
    const heed_meta *meta = heed_model_file_meta(model->file, key);
    if (meta && meta->kind == HEED_META_INT && meta->whole != 0)
        model->pooling = meta->whole > 0 && meta->whole < 4 ? modes[meta->whole] : NULL;
}

heed_status heed_pooling_read(heed_model *model)
{
    model->pooling = model->config.causal ? "last" : "mean";
    model->embed_tokens = model->config.context;
    if (heed_model_file_format(model->file) == HEED_FORMAT_GGUF) {
        read_gguf(model);
        return HEED_OK;
    }
    cJSON *pooling = object_of(model, "1_Pooling/config.json");
    cJSON *sentence = object_of(model, "sentence_bert_config.json");
    if (pooling)
        model->pooling = mode_of(pooling);
    const cJSON *most = cJSON_GetObjectItemCaseSensitive(sentence, "max_seq_length");
    if (cJSON_IsNumber(most) && most->valuedouble >= 1.0 && most->valuedouble < (double)model->config.context)
        model->embed_tokens = (int64_t)most->valuedouble;
    cJSON_Delete(pooling);
    cJSON_Delete(sentence);
    const char *modules = heed_model_file_text(model->file, "modules.json", NULL);
    if (modules && strstr(modules, ".Dense")) {
        model->pooling = NULL;
        heed_model_add_note(model,
                            "modules.json asks for a dense layer after pooling, which heed does not have");
    }
    return HEED_OK;
}
