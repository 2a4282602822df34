#include "train/config.h"
#include "attend/spec_reader.h"
#include "base/try.h"
#include "train/base.h"
#include "train/data.h"
#include "train/optimiser.h"
#include "train/schedule.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const struct {
    const char *name;
    heed_function function;
    bool gated;
} feeds[] = {
    {"swiglu", HEED_FN_SILU, true},          {"geglu", HEED_FN_GELU_TANH, true},
    {"reglu", HEED_FN_RELU, true},           {"glu", HEED_FN_SIGMOID, true},
    {"bilinear", HEED_FN_IDENTITY, true},    {"gelu", HEED_FN_GELU, false},
    {"gelu_tanh", HEED_FN_GELU_TANH, false}, {"relu", HEED_FN_RELU, false},
    {"relu2", HEED_FN_RELU2, false},         {"silu", HEED_FN_SILU, false},
};

heed_base_learn heed_config_learn(const heed_train_config *config)
{
    return (heed_base_learn){.learn = (heed_learn)config->learn,
                             .tensors = config->tensors,
                             .targets = config->lora_targets,
                             .rank = config->lora_rank,
                             .alpha = config->lora_alpha};
}

const char *heed_feed_word(int i)
{
    return i >= 0 && i < (int)(sizeof feeds / sizeof *feeds) ? feeds[i].name : NULL;
}

int heed_feed_function(int i)
{
    return feeds[i].function;
}

bool heed_feed_gated(int i)
{
    return feeds[i].gated;
}

#define WORDS(name, ...)                                                                                     \
    static const char *name(int i)                                                                           \
    {                                                                                                        \
        static const char *const words[] = {__VA_ARGS__};                                                    \
        return i >= 0 && i < (int)(sizeof words / sizeof *words) ? words[i] : NULL;                          \
    }
WORDS(norm_word, "rms", "layer", "none")
WORDS(place_word, "before", "after")
WORDS(positions_word, "none", "learned")
WORDS(model_word, "decoder", "encoder_decoder")
WORDS(pooling_word, "mean", "last", "lama")
WORDS(products_word, "fp32", "bf16")
WORDS(lora_word, "both", "adapter", "merged")

static const char *optimiser_word(int i)
{
    const heed_optimiser_kind *kind = heed_optimiser_kind_at(i);
    return kind ? kind->name : NULL;
}

#define AT(field) .offset = offsetof(heed_train_config, field)
#define TEXT(key, usually, text)                                                                             \
    {                                                                                                        \
#key, HEED_KEY_TEXT, AT(key), .usual_text = usually, .summary = text                                 \
    }
#define WORD(key, list, usually, text)                                                                       \
    {                                                                                                        \
#key, HEED_KEY_WORD, AT(key), .usual_text = usually, .words = list, .summary = text                  \
    }
#define WHOLE(key, usually, from, to, text)                                                                  \
    {                                                                                                        \
#key, HEED_KEY_WHOLE, AT(key), usually, from, to, .summary = text                                    \
    }
#define NUMBER(key, usually, from, to, text)                                                                 \
    {                                                                                                        \
#key, HEED_KEY_NUMBER, AT(key), usually, from, to, .summary = text                                   \
    }
#define YES(key, text)                                                                                       \
    {                                                                                                        \
#key, HEED_KEY_YES, AT(key), .summary = text                                                         \
    }
#define MOST 1e15

static const heed_key keys[] = {
    TEXT(data, "", "a task, as in copy(length=16), or `text`"),
    TEXT(file, "",
         "of data = text: a text, .jsonl or .csv records, tokens as .npy or in safetensors (`tokens`)"),
    TEXT(tokenizer, "bytes", "of data = text: `bytes`, or the path of a model or tokenizer.json"),
    WORD(objective, heed_objective_name, "next",
         "next, masked, class, distil, span, sequence, contrastive, regression, preference or denoise"),
    NUMBER(held_out, 0.1, 0, 0.9, "share of a text, at its end, that evaluation keeps for itself"),
    NUMBER(smoothing, 0, 0, 0.99, "of labels"),
    TEXT(base, "",
         "a model to go on from, whose shape then holds: a file, a folder, or a fetched one's path"),
    WORD(learn, heed_learn_name, "all",
         "of a base: all, chosen (see tensors), lora, or forms (of attention) alone"),
    TEXT(tensors, "", "of learn = chosen: names of tensors with blanks between, * for anything"),
    WHOLE(lora_rank, 8, 1, 1 << 16, "of learn = lora"),
    NUMBER(lora_alpha, 16, 0, 1e6, "of learn = lora: what is added counts alpha / rank times"),
    TEXT(lora_targets, "", "of learn = lora: which linear maps, as tensors; none given: all of the layers"),
    WORD(lora_write, lora_word, "both", "of learn = lora: the adapter, the model with it merged, or both"),
    WHOLE(landmarks, 0, 0, 1 << 20, "tokens behind each of which a landmark stands, the last token; 0: none"),
    WHOLE(sentinels, 0, 0, 1 << 20,
          "tokens between a mark before and a mark behind, the last two tokens; 0: none"),
    TEXT(params, "", "of a base: tensors of forms to begin with, as heed calibrate writes them"),
    TEXT(teacher, "base", "of objective = distil: a model with the same tokens; base: the base as it was"),
    NUMBER(temperature, 0, 0, 1000, "of distil and contrastive: what scores are divided by; 0: 1 and 0.05"),
    NUMBER(teacher_share, 1, 0, 1,
           "of objective = distil: the teacher's share of the loss; the text has the rest"),
    NUMBER(hidden_share, 0, 0, 1e6,
           "of objective = distil: how much the distance of last hidden states counts"),
    NUMBER(whole_share, 0, 0, 1e6,
           "of layers that drop something: how much counts what the same weights say with nothing dropped, "
           "and the distance from that"),
    NUMBER(relation_share, 0, 0, 1e6,
           "of objective = distil: how much the distance of the last layers' relations of queries, keys and "
           "values counts"),
    WHOLE(relation_heads, 0, 0, 1 << 12,
          "of relation_share: heads that relations are of; 0: as many as divide all, up to 12"),
    {"preference_beta", HEED_KEY_NUMBER, AT(beta), 0.1, 1e-6, 1000,
     .summary = "of objective = preference: what differences of log probabilities count"},
    WORD(pooling, pooling_word, "mean",
         "of a class, a number or a vector of a text: mean of its tokens, or last; of pictures also lama"),
    WORD(model, model_word, "decoder", "decoder (an encoder by its attention), or encoder_decoder"),
    TEXT(image, "",
         "tokens are pixels of pictures of this size, as 28x28 or 32x32x3, which patches are made of"),
    WHOLE(patch, 4, 1, 1 << 10, "of pictures: sides of the squares that are what tokens are of texts"),
    TEXT(labels, "", "of pictures in a .npy file [n, height, width]: a .npy file with their classes"),
    TEXT(class_names, "", "of labels 0, 1, ...: what heed predict calls them, with blanks between"),
    WHOLE(encoder_layers, 0, 0, 1000, "of an encoder; 0: as layers"),
    WHOLE(source_context, 0, 0, 1 << 24,
          "of an encoder: tokens it reads; 0: what the task needs, or context"),
    TEXT(encoder_attention, "position=rope; where=segments", "of an encoder; segments: padding is not seen"),
    TEXT(cross_attention, "where=segments", "of a decoder to what an encoder gives"),
    WORD(reader, heed_reader_word, "attend",
         "how a decoder reads an encoder: attend (by cross_attention), gmm, dynamic, sentinel, additive or "
         "halves"),
    WHOLE(layers, 2, 1, 1000, "layers"),
    WHOLE(width, 64, 1, 1 << 20, "numbers a token between layers"),
    WHOLE(heads, 4, 1, 1 << 12, "query heads"),
    WHOLE(kv_heads, 0, 0, 1 << 12, "key and value heads; 0: as many"),
    WHOLE(head_dim, 0, 0, 1 << 12, "numbers of a head; 0: width / heads"),
    WHOLE(hidden, 0, 0, 1 << 22, "width of the feed-forward layers; 0: 4 width, with a gate 8/3 of it"),
    WHOLE(kv_every, 1, 1, 1000, "layers that read the keys and values of the first of them"),
    WHOLE(shortcuts, 0, 0, 1 << 12,
          "heads of an attention over the states of all layers before the end; 0: none"),
    WHOLE(context, 0, 0, 1 << 24, "tokens of a sequence; 0: what the task needs, 128 for texts"),
    TEXT(attention, "position=rope; where=causal", "spec of attention; `layers` prefixes count these layers"),
    WORD(norm, norm_word, "rms", "rms, layer or none"),
    WORD(norm_place, place_word, "before", "norms before or after attention and feed-forward layers"),
    WORD(feed, heed_feed_word, "swiglu",
         "swiglu, geglu, reglu, glu, bilinear, gelu, gelu_tanh, relu, relu2 or silu"),
    WORD(positions, positions_word, "none", "learned: a vector a place, added to tokens"),
    YES(tied, "the embedding is the map to logits too"),
    YES(bias, "linear maps have a bias"),
    YES(qk_norm, "queries and keys of each head are normalised"),
    YES(recompute, "layers are computed again for gradients, and take less memory"),
    WORD(products, products_word, "fp32",
         "of linear maps in training: fp32, or bf16 with fp32 sums and weights; evaluations have fp32"),
    NUMBER(norm_eps, 1e-5, 0, 1, "eps of norms"),
    NUMBER(dropout, 0, 0, 0.99, "dropout behind embedding, attention and feed-forward layers"),
    NUMBER(deviation, 0.02, 1e-6, 10, "standard deviation of weights at the start"),
    WORD(optimiser, optimiser_word, "adamw", "adamw, sgd, lion, muon or adafactor"),
    NUMBER(rate, NAN, 0, 1000, "learning rate"),
    NUMBER(beta1, NAN, 0, 1, "of running means of gradients"),
    NUMBER(beta2, NAN, 0, 1, "of running means of their squares"),
    NUMBER(eps, NAN, 0, 1, "beside square roots"),
    NUMBER(decay, NAN, 0, 1000, "weight decay, decoupled"),
    NUMBER(other_rate, NAN, 0, 1000, "of muon: the rate of what is no matrix of the middle"),
    YES(nesterov, "of sgd"),
    WORD(schedule, heed_schedule_name, "cosine", "constant, linear, cosine or trapezoid"),
    WHOLE(steps, 1000, 1, MOST, "steps of the optimiser"),
    WHOLE(batch, 16, 1, 1 << 20, "sequences at once"),
    WHOLE(accumulate, 1, 1, 1 << 20, "batches whose gradients a step takes together"),
    WHOLE(warmup, 20, 0, MOST, "steps over which the rate rises"),
    WHOLE(cooldown, 0, 0, MOST, "of trapezoid: steps over which it falls; 0: a fifth of all"),
    WHOLE(seed, 1, 0, MOST, "of weights, data and dropout"),
    NUMBER(floor, 0.1, 0, 1, "what the rate falls to, as a share of it"),
    NUMBER(clip, 1, 0, 1e9, "longest gradient; 0: any"),
    NUMBER(average, 0, 0, 0.999999,
           "weights are averaged over steps with this memory, and judged so; 0: not"),
    TEXT(eval_data, "", "task of evaluations, as a longer one than that of training; empty: the same"),
    WHOLE(eval_context, 0, 0, 1 << 24,
          "tokens of a sequence in evaluations; 0: as in training, or what eval_data needs"),
    WHOLE(eval_every, 0, 0, MOST, "steps between evaluations; 0: a tenth of all"),
    WHOLE(eval_sequences, 128, 1, MOST, "sequences of an evaluation"),
    WHOLE(save_every, 0, 0, MOST, "steps between checkpoints; 0: with each evaluation"),
    WHOLE(log_every, 10, 1, MOST, "steps between lines of the log"),
};

const heed_key *heed_train_key(int i)
{
    return i >= 0 && i < (int)(sizeof keys / sizeof *keys) ? &keys[i] : NULL;
}

static int word_index(const heed_key *key, const char *word)
{
    for (int i = 0; key->words(i); i++)
        if (!strcmp(key->words(i), word))
            return i;
    return -1;
}

void heed_train_config_start(heed_train_config *config)
{
    memset(config, 0, sizeof *config);
    for (int i = 0; heed_train_key(i); i++) {
        const heed_key *key = &keys[i];
        char *place = (char *)config + key->offset;
        switch (key->kind) {
        case HEED_KEY_TEXT:
            snprintf(place, HEED_CONFIG_TEXT, "%s", key->usual_text);
            break;
        case HEED_KEY_WORD:
            *(int *)(void *)place = word_index(key, key->usual_text);
            break;
        case HEED_KEY_WHOLE:
            *(int64_t *)(void *)place = (int64_t)key->usual;
            break;
        case HEED_KEY_NUMBER:
            *(double *)(void *)place = key->usual;
            break;
        case HEED_KEY_YES:
            break;
        }
    }
}

static heed_status wrong_word(const heed_key *key, const char *value, const char *where)
{
    heed_names names;
    heed_names_start(&names, (heed_word){HEED_WORD_NAME, value, (int)strnlen(value, 200)});
    for (int i = 0; key->words(i); i++)
        heed_names_add(&names, key->words(i));
    return heed_fail(HEED_INVALID, "%s: %s = %s is unknown%s", where, key->name,
                     heed_quoted(value, (int)strnlen(value, 100)).text, heed_names_hint(&names).text);
}

static heed_status set_value(const heed_key *key, char *place, const char *value, const char *where)
{
    char *end;
    const heed_quote quoted = heed_quoted(value, (int)strnlen(value, 100));
    errno = 0;
    switch (key->kind) {
    case HEED_KEY_TEXT:
        if (strlen(value) >= HEED_CONFIG_TEXT)
            return heed_fail(HEED_INVALID, "%s: %s has more than %d characters", where, key->name,
                             HEED_CONFIG_TEXT - 1);
        strcpy(place, value);
        return HEED_OK;
    case HEED_KEY_WORD:
        if (word_index(key, value) < 0)
            return wrong_word(key, value, where);
        *(int *)(void *)place = word_index(key, value);
        return HEED_OK;
    case HEED_KEY_WHOLE: {
        const long long number = strtoll(value, &end, 10);
        if (errno || end == value || *end || (double)number < key->low || (double)number > key->high)
            return heed_fail(HEED_INVALID, "%s: %s = %s: a whole number from %.0f to %.0f is needed", where,
                             key->name, quoted.text, key->low, key->high);
        *(int64_t *)(void *)place = number;
        return HEED_OK;
    }
    case HEED_KEY_NUMBER: {
        const double number = strtod(value, &end);
        if (errno || end == value || *end || !(number >= key->low && number <= key->high))
            return heed_fail(HEED_INVALID, "%s: %s = %s: a number from %g to %g is needed", where, key->name,
                             quoted.text, key->low, key->high);
        *(double *)(void *)place = number;
        return HEED_OK;
    }
    case HEED_KEY_YES:
        if (strcmp(value, "yes") && strcmp(value, "no"))
            return heed_fail(HEED_INVALID, "%s: %s = %s: yes or no is needed", where, key->name, quoted.text);
        *(bool *)(void *)place = value[0] == 'y';
        return HEED_OK;
    }
    return HEED_OK;
}

static bool is_blank(char c)
{
    return c == ' ' || c == '\t' || c == '\r';
}

/* The text without blanks at its ends. */
static void trim(char **from, char *to)
{
    while (*from < to && is_blank(**from))
        ++*from;
    while (to > *from && is_blank(to[-1]))
        to--;
    *to = 0;
}

heed_status heed_train_config_set(heed_train_config *config, const char *text, const char *where)
{
    char line[2 * HEED_CONFIG_TEXT + 200], *key = line;
    if (strlen(text) >= sizeof line)
        return heed_fail(HEED_INVALID, "%s: more than %zu characters", where, sizeof line - 1);
    strcpy(line, text);
    char *equals = strchr(line, '=');
    if (!equals)
        return heed_fail(HEED_INVALID, "%s: '%s' is not `key = value`", where,
                         heed_quoted(text, (int)strnlen(text, 60)).text);
    char *value = equals + 1;
    trim(&key, equals);
    trim(&value, value + strlen(value));
    heed_names names;
    heed_names_start(&names, (heed_word){HEED_WORD_NAME, key, (int)strlen(key)});
    for (int i = 0; heed_train_key(i); i++) {
        if (!strcmp(keys[i].name, key))
            return set_value(&keys[i], (char *)config + keys[i].offset, value, where);
        heed_names_add(&names, keys[i].name);
    }
    return heed_fail(HEED_INVALID, "%s: unknown key '%s'%s", where,
                     heed_quoted(key, (int)strnlen(key, 60)).text, heed_names_hint(&names).text);
}

heed_status heed_train_config_read(heed_train_config *config, const char *text, const char *name)
{
    for (int number = 1; *text; number++) {
        const size_t length = strcspn(text, "\n");
        char line[2 * HEED_CONFIG_TEXT + 200], where[300], *from = line;
        snprintf(where, sizeof where, "%.200s line %d", name, number);
        if (length >= sizeof line)
            return heed_fail(HEED_INVALID, "%s: more than %zu characters", where, sizeof line - 1);
        memcpy(line, text, length);
        line[length] = 0;
        if (strlen(line) != length)
            return heed_fail(HEED_INVALID, "%s: a zero byte", where);
        trim(&from, line + strcspn(line, "#"));
        if (*from)
            TRY(heed_train_config_set(config, from, where));
        text += length + (text[length] == '\n');
    }
    return HEED_OK;
}

static void print_value(const heed_key *key, const void *place, char *text, size_t size)
{
    switch (key->kind) {
    case HEED_KEY_TEXT:
        snprintf(text, size, "%s", (const char *)place);
        break;
    case HEED_KEY_WORD:
        snprintf(text, size, "%s", key->words(*(const int *)place));
        break;
    case HEED_KEY_WHOLE:
        snprintf(text, size, "%lld", (long long)*(const int64_t *)place);
        break;
    case HEED_KEY_NUMBER:
        snprintf(text, size, "%.17g", *(const double *)place);
        break;
    case HEED_KEY_YES:
        snprintf(text, size, "%s", *(const bool *)place ? "yes" : "no");
        break;
    }
}

size_t heed_train_config_print(const heed_train_config *config, char *text, size_t size)
{
    heed_train_config usual;
    size_t used = 0;
    heed_train_config_start(&usual);
    if (size)
        *text = 0;
    for (int i = 0; heed_train_key(i); i++) {
        char now[HEED_CONFIG_TEXT], then[HEED_CONFIG_TEXT];
        print_value(&keys[i], (const char *)config + keys[i].offset, now, sizeof now);
        print_value(&keys[i], (const char *)&usual + keys[i].offset, then, sizeof then);
        if (strcmp(now, then))
            used += (size_t)snprintf(used < size ? text + used : NULL, used < size ? size - used : 0,
                                     "%s = %s\n", keys[i].name, now);
    }
    return used;
}
