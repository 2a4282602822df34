/* What a training run is: lines of `key = value`, `#` before remarks. The keys are a table, from which
 * reading, printing and the reference are made. */
#ifndef HEED_TRAIN_CONFIG_H
#define HEED_TRAIN_CONFIG_H

#include "train/base.h"

#include <heed/base.h>

enum { HEED_CONFIG_TEXT = 512 };

typedef struct heed_train_config {
    /* data */
    char data[HEED_CONFIG_TEXT], file[HEED_CONFIG_TEXT], tokenizer[HEED_CONFIG_TEXT];
    int objective;
    double held_out, smoothing;
    int64_t landmarks, sentinels;
    /* a model to go on from, and one to learn from */
    char base[HEED_CONFIG_TEXT], params[HEED_CONFIG_TEXT], teacher[HEED_CONFIG_TEXT];
    int learn, lora_write;
    char tensors[HEED_CONFIG_TEXT], lora_targets[HEED_CONFIG_TEXT];
    int64_t lora_rank;
    double lora_alpha, temperature, teacher_share, hidden_share, relation_share, beta, whole_share;
    int64_t relation_heads;
    int pooling;
    /* model */
    int model;
    char image[HEED_CONFIG_TEXT], labels[HEED_CONFIG_TEXT], class_names[HEED_CONFIG_TEXT];
    int64_t patch;
    int64_t encoder_layers, source_context;
    int reader;
    char encoder_attention[HEED_CONFIG_TEXT], cross_attention[HEED_CONFIG_TEXT];
    int64_t layers, width, heads, kv_heads, head_dim, hidden, context;
    int64_t kv_every, shortcuts;
    char attention[HEED_CONFIG_TEXT];
    int norm, norm_place, feed, positions;
    bool tied, bias, qk_norm, recompute;
    int products; /* heed_train_products */
    double norm_eps, dropout, deviation;
    /* training */
    int optimiser, schedule;
    double rate, beta1, beta2, eps, decay, other_rate; /* NaN: the optimiser's usual */
    bool nesterov;
    int64_t steps, batch, accumulate, warmup, cooldown, seed;
    double floor, clip, average;
    /* what is written */
    char eval_data[HEED_CONFIG_TEXT];
    int64_t eval_context;
    int64_t eval_every, eval_sequences, save_every, log_every;
} heed_train_config;

typedef enum heed_train_products { HEED_PRODUCTS_FP32, HEED_PRODUCTS_BF16 } heed_train_products;

typedef enum heed_key_kind {
    HEED_KEY_TEXT,
    HEED_KEY_WHOLE,
    HEED_KEY_NUMBER,
    HEED_KEY_YES,
    HEED_KEY_WORD
} heed_key_kind;

typedef struct heed_key {
    const char *name;
    heed_key_kind kind;
    size_t offset;
    double usual, low, high;
    const char *usual_text; /* of texts and words */
    const char *(*words)(int i);
    const char *summary;
} heed_key;

/* NULL beyond the last. */
const heed_key *heed_train_key(int i);

/* What a base's tensors do, as the config says; texts stay those of the config. */
heed_base_learn heed_config_learn(const heed_train_config *config);

enum { HEED_MODEL_DECODER, HEED_MODEL_ENCODER_DECODER };
enum { HEED_POOL_MEAN, HEED_POOL_LAST, HEED_POOL_LAMA };
/* What is written of a model with LoRA. */
enum { HEED_LORA_BOTH, HEED_LORA_ADAPTER, HEED_LORA_MERGED };

/* All usual values. */
void heed_train_config_start(heed_train_config *config);
/* One `key = value`; `where` stands before the sentence when it is wrong ("tiny.train line 3"). */
heed_status heed_train_config_set(heed_train_config *config, const char *text, const char *where);
/* Lines of a file's text, `name` for messages. */
heed_status heed_train_config_read(heed_train_config *config, const char *text, const char *name);
/* All keys that are not as usual, a line each, ended by 0; returns the length needed, as snprintf. */
size_t heed_train_config_print(const heed_train_config *config, char *text, size_t size);

/* Of the word `feed`: its function, and whether it has a gate. */
const char *heed_feed_word(int i);
int heed_feed_function(int i);
bool heed_feed_gated(int i);

#endif
