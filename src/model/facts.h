/* What a model says of itself: the metadata of a GGUF file, or config.json beside safetensors. Each fact that
 * is read is remembered, so that in the end those nobody read can be named. */
#ifndef HEED_MODEL_FACTS_H
#define HEED_MODEL_FACTS_H

#include "model/file.h"
#include <cjson/cJSON.h>

enum { HEED_MOST_FACTS = 256 };

typedef struct heed_facts {
    const heed_model_file *file;
    char architecture[64]; /* "llama"; the prefix of its keys in a GGUF file */
    cJSON *config;         /* NULL for a GGUF file */
    const char *used[HEED_MOST_FACTS];
    int uses;
} heed_facts;

/* Finds the architecture. */
heed_status heed_facts_open(heed_facts *facts, const heed_model_file *file);
void heed_facts_close(heed_facts *facts);

/* Each fact has a key in a GGUF file, given without the architecture's prefix, and one in config.json; NULL
 * where it has none. What is absent (or null) leaves *value as it is; what has another type than asked for is
 * an error. */
heed_status heed_fact_whole(heed_facts *facts, const char *gguf, const char *json, int64_t *value);
heed_status heed_fact_number(heed_facts *facts, const char *gguf, const char *json, double *value);
heed_status heed_fact_bool(heed_facts *facts, const char *gguf, const char *json, bool *value);
/* Texts are owned by the file or the config. */
heed_status heed_fact_text(heed_facts *facts, const char *gguf, const char *json, const char **value);
/* As heed_fact_whole, but the fact must be there and lie within bounds. */
heed_status heed_fact_size(heed_facts *facts, const char *gguf, const char *json, int64_t least, int64_t most,
                           int64_t *value);
/* The fact must be absent or be `value`; `means` says what else it would mean. */
heed_status heed_fact_must_be(heed_facts *facts, const char *gguf, const char *json, const char *value);

/* A value of config.json, marked as read; NULL when absent, null or in a GGUF file. */
const cJSON *heed_fact_json(heed_facts *facts, const char *json);
/* A value of a GGUF file by its key without the prefix, marked as read; NULL when absent. */
const heed_meta *heed_fact_meta(heed_facts *facts, const char *gguf);

/* The key as it stands in the file: for messages. */
const char *heed_fact_key(const heed_facts *facts, const char *gguf, const char *json, char *text,
                          size_t size);

/* Refuses, by name, a fact that nobody has read and that may change the result. */
heed_status heed_facts_all_read(const heed_facts *facts);
/* Names of facts of config.json that nobody has read and that are not known to be harmless: "a, b". As
 * snprintf. */
size_t heed_facts_unknown(const heed_facts *facts, char *text, size_t size);

#endif
