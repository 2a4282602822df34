/* The models that a run goes on from and learns from. */
#include "base/try.h"
#include "train/trainer.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

/* Keys that a base answers itself. */
static const char *const shape_keys[] = {"layers",
                                         "width",
                                         "heads",
                                         "kv_heads",
                                         "head_dim",
                                         "hidden",
                                         "norm",
                                         "norm_place",
                                         "feed",
                                         "positions",
                                         "tied",
                                         "bias",
                                         "qk_norm",
                                         "model",
                                         "encoder_layers",
                                         "source_context",
                                         "encoder_attention",
                                         "cross_attention",
                                         "norm_eps",
                                         "dropout",
                                         "deviation"};
/* Keys that mean something with a base only. */
static const char *const base_keys[] = {"learn",        "tensors",    "lora_rank", "lora_alpha",
                                        "lora_targets", "lora_write", "params"};

static const heed_key *key_named(const char *name)
{
    for (int i = 0; heed_train_key(i); i++)
        if (!strcmp(heed_train_key(i)->name, name))
            return heed_train_key(i);
    return NULL;
}

static bool is_usual(const heed_train_config *config, const char *name)
{
    heed_train_config usual;
    const heed_key *key = key_named(name);
    heed_train_config_start(&usual);
    const char *a = (const char *)config + key->offset, *b = (const char *)&usual + key->offset;
    switch (key->kind) {
    case HEED_KEY_TEXT:
        return !strcmp(a, b);
    case HEED_KEY_WORD:
        return !memcmp(a, b, sizeof(int));
    case HEED_KEY_YES:
        return !memcmp(a, b, sizeof(bool));
    default:
        return !memcmp(a, b, sizeof(int64_t));
    }
}

static heed_status check_keys(const heed_train_config *config)
{
    const bool based = *config->base;
    const char *const *names = based ? shape_keys : base_keys;
    const size_t count =
        based ? sizeof shape_keys / sizeof *shape_keys : sizeof base_keys / sizeof *base_keys;
    for (size_t i = 0; i < count; i++)
        if (!is_usual(config, names[i]))
            return based ? heed_fail(HEED_INVALID, "%s: the model to go on from says that itself", names[i])
                         : heed_fail(HEED_INVALID,
                                     "%s needs a model to go on from, as heed finetune -m has one", names[i]);
    return HEED_OK;
}

static heed_status open_base(heed_train_config *config, heed_base **base)
{
    TRY(heed_base_open(base, config->base));
    const heed_base_learn learn = heed_config_learn(config);
    TRY(heed_base_check(*base, &learn));
    if (is_usual(config, "attention"))
        *config->attention = 0; /* its own */
    if (isnan(config->rate) && config->optimiser == 0)
        config->rate = config->learn == HEED_LEARN_LORA    ? 2e-4
                       : config->learn == HEED_LEARN_FORMS ? 1e-2
                                                           : 2e-5;
    return HEED_OK;
}

static heed_status open_teacher(const heed_train_config *config, heed_base *base, heed_base **teacher)
{
    if (strcmp(config->teacher, "base") != 0) {
        TRY(heed_base_open(teacher, config->teacher));
    } else if (base) {
        *teacher = base;
    } else {
        return heed_fail(HEED_INVALID, "teacher is missing: the path of the model to learn from");
    }
    if (*(*teacher)->config.attention && *teacher != base)
        return heed_fail(
            HEED_UNSUPPORTED,
            "teacher: %s has an attention with parameters of its own, which a teacher cannot have",
            heed_model_file_path((*teacher)->file));
    return (*teacher)->config.generates ? HEED_OK
                                        : heed_fail(HEED_INVALID, "teacher: %s models give no logits",
                                                    (*teacher)->config.architecture);
}

heed_status heed_trainer_open_bases(heed_train_config *config, heed_base **base, heed_base **teacher)
{
    TRY(check_keys(config));
    if (*config->base)
        TRY(open_base(config, base));
    if (config->objective == HEED_OBJECTIVE_PREFERENCE && !*base)
        return heed_fail(HEED_INVALID,
                         "objective = preference needs a model to go on from, as heed finetune -m has "
                         "one: answers are preferred more than by it");
    if (config->objective == HEED_OBJECTIVE_PREFERENCE)
        *teacher = *base;
    if (config->objective == HEED_OBJECTIVE_DISTIL)
        TRY(open_teacher(config, *base, teacher));
    return HEED_OK;
}
