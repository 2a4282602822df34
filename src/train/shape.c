/* The shape of a model from nothing, as a config and its data say. */
#include "base/try.h"
#include "train/examples.h"
#include "train/trainer.h"

#include <stdio.h>

/* "28x28" or "32x32x3", cut into squares. */
static heed_status read_image(const heed_train_config *c, heed_transformer *model)
{
    heed_image *image = &model->image;
    char behind;
    long long height = 0, width = 0, channels = 1;
    if (!*c->image && c->objective == HEED_OBJECTIVE_DENOISE)
        return heed_fail(HEED_INVALID, "objective = denoise needs image, as image = 8x8, and a task");
    if (!*c->image)
        return HEED_OK;
    const int found = sscanf(c->image, "%lldx%lld%c%lld", &height, &width, &behind, &channels);
    if ((found != 2 && !(found == 4 && behind == 'x')) || height < 1 || width < 1 || channels < 1 ||
        height > 1 << 14 || width > 1 << 14 || channels > 1 << 10)
        return heed_fail(HEED_INVALID, "image = %.60s: height and width are needed, as 28x28, or 32x32x3",
                         c->image);
    if (height % c->patch || width % c->patch)
        return heed_fail(HEED_INVALID, "patch = %lld does not divide image = %s", (long long)c->patch,
                         c->image);
    if (c->context < height * width * channels)
        return heed_fail(HEED_INVALID, "image = %s has %lld numbers, the data %lld", c->image,
                         height * width * channels, (long long)c->context);
    if (!heed_objective_pools((heed_objective)c->objective) || c->model != HEED_MODEL_DECODER)
        return heed_fail(HEED_INVALID,
                         "image needs objective = class, regression or denoise, and model = decoder");
    *image = (heed_image){height, width, channels, c->patch};
    model->context = height / c->patch * (width / c->patch);
    return HEED_OK;
}

heed_status heed_train_shape(const heed_train_config *c, const heed_data *data, heed_transformer *model)
{
    const bool apart = c->model == HEED_MODEL_ENCODER_DECODER;
    *model = (heed_transformer){
        .batch = c->batch * heed_data_rows(data),
        .context = c->context,
        .vocabulary = data->vocabulary,
        .width = c->width,
        .layers = c->layers,
        .heads = c->heads,
        .kv_heads = c->kv_heads,
        .head_dim = c->head_dim,
        .hidden = c->hidden,
        .kv_every = c->kv_every,
        .shortcuts = c->shortcuts,
        .spec = c->attention,
        .norm = (heed_layer_norm_kind)c->norm,
        .norm_eps = (float)c->norm_eps,
        .function = (heed_function)heed_feed_function(c->feed),
        .gated = heed_feed_gated(c->feed),
        .bias = c->bias,
        .tied = c->tied,
        .qk_norm = c->qk_norm,
        .after = c->norm_place == 1,
        .positions = (heed_positions_kind)c->positions,
        .dropout = (float)c->dropout,
        .deviation = (float)c->deviation,
        .recompute = c->recompute,
        .classes = c->objective == HEED_OBJECTIVE_CLASS && data->task ? data->vocabulary : 0,
        .hidden_only = heed_objective_pools(data->objective) && !data->task,
        .encoder_layers = !apart              ? 0
                          : c->encoder_layers ? c->encoder_layers
                                              : c->layers,
        .source_context = data->source_context,
        .encoder_spec = c->encoder_attention,
        .cross_spec = c->cross_attention,
        .reader = c->reader,
    };
    if (c->reader && !apart)
        return heed_fail(HEED_INVALID, "reader = %s is for model = encoder_decoder",
                         heed_reader_word(c->reader));
    if (c->reader && !data->task)
        return heed_fail(
            HEED_UNSUPPORTED,
            "reader = %s sees padding: it reads tasks, whose texts have one length, and no records",
            heed_reader_word(c->reader));
    return read_image(c, model);
}
