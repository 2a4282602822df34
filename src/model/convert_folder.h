/* From a folder of safetensors to a GGUF file: what its parts share. */
#ifndef HEED_MODEL_CONVERT_FOLDER_H
#define HEED_MODEL_CONVERT_FOLDER_H

#include "model/architecture.h"
#include "model/convert_rows.h"
#include "model/gguf_write.h"

/* What the model says of itself, read as the model is when it runs; what is not understood is refused. */
heed_status heed_convert_read_config(const heed_model_file *file, const heed_architecture **architecture,
                                     heed_config *config);

/* The name of a tensor: prefix, pattern with its "%d" as the layer, suffix; cut to `size` with its 0. */
void heed_convert_name(const char *prefix, const char *pattern, int64_t layer, const char *suffix,
                       size_t size, char *name);

/* The configuration as keys. */
void heed_convert_config_keys(const heed_config *config, const heed_model_file *file, heed_gguf_keys *keys);

/* Reads the keys again and compares: HEED_UNSUPPORTED, with what would be lost, where a GGUF file of this
 * architecture cannot say what the folder says. *adjacent: pairs that turn together stand beside each other
 * in such files. */
heed_status heed_convert_check_config(const heed_config *config, const heed_gguf_keys *keys, bool *adjacent);

/* The tokeniser as keys, for a vocabulary of `rows` tokens, checked in the same way on texts; *found: the
 * folder has one. */
heed_status heed_convert_tokenizer_keys(const heed_model_file *file, const heed_config *config, int64_t rows,
                                        heed_gguf_keys *keys, heed_convert_report *report);

/* The keys alone as an open file, closed by the caller. */
heed_status heed_convert_parse_keys(const heed_gguf_keys *keys, heed_model_file **file, void **memory);

#endif
