/* Parts of tokenizer.json. */
#ifndef HEED_MODEL_TOKENIZER_JSON_H
#define HEED_MODEL_TOKENIZER_JSON_H

#include "model/tokenizer/parts.h"

#include <cjson/cJSON.h>

/* NULL when there is none or it is null. */
const cJSON *heed_json_get(const cJSON *object, const char *name);
const char *heed_json_text(const cJSON *object, const char *name); /* NULL when it is no text */
bool heed_json_flag(const cJSON *object, const char *name, bool otherwise);
const char *heed_json_type(const cJSON *object); /* its "type"; "" when it has none */

heed_status heed_json_normalizer(heed_tokenizer *tokenizer, const cJSON *object);
heed_status heed_json_pre_tokenizer(heed_tokenizer *tokenizer, const cJSON *object);
heed_status heed_json_model(heed_tokenizer *tokenizer, const cJSON *object);
heed_status heed_json_merges(heed_tokenizer *tokenizer, const cJSON *model);
heed_status heed_json_decoder(heed_tokenizer *tokenizer, const cJSON *object);
heed_status heed_json_post_processor(heed_tokenizer *tokenizer, const cJSON *object);

#endif
