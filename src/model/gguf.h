/* GGUF: magic, version, counts; keys and values; names, shapes, types and offsets of tensors; padding; data.
 * All numbers little-endian. https://github.com/ggml-org/ggml/blob/master/docs/gguf.md
 */
#ifndef HEED_MODEL_GGUF_H
#define HEED_MODEL_GGUF_H

#include "model/file.h"

#define HEED_GGUF_MAGIC "GGUF"
#define HEED_GGUF_VERSION 3
#define HEED_GGUF_ALIGNMENT 32 /* where the file names none in general.alignment */

/* Kinds of values in the metadata, by their numbers in the file. */
typedef enum heed_gguf_value {
    HEED_GGUF_U8,
    HEED_GGUF_I8,
    HEED_GGUF_U16,
    HEED_GGUF_I16,
    HEED_GGUF_U32,
    HEED_GGUF_I32,
    HEED_GGUF_F32,
    HEED_GGUF_BOOL,
    HEED_GGUF_TEXT,
    HEED_GGUF_ARRAY,
    HEED_GGUF_U64,
    HEED_GGUF_I64,
    HEED_GGUF_F64,
    HEED_GGUF_VALUES
} heed_gguf_value;

/* A type of tensors, by its number in the file. */
typedef struct heed_gguf_type {
    uint32_t number;
    const char *name;      /* "Q4_K" */
    int64_t values, bytes; /* of a block */
    const char *type;      /* as heed_type_name calls it; NULL: lower case of `name` */
} heed_gguf_type;

/* NULL for numbers that no known version of the format has. */
const heed_gguf_type *heed_gguf_type_of(uint32_t number);
const heed_gguf_type *heed_gguf_type_for(heed_type type);
const heed_gguf_type *heed_gguf_type_named(const char *name);
/* HEED_TYPES where the library has no such type. */
heed_type heed_gguf_element(const heed_gguf_type *type);

bool heed_is_gguf(const unsigned char *data, uint64_t size);

/* A GGUF file in memory, which must outlive `file`; `name` stands in messages. Other parts are not looked
 * for. */
heed_status heed_gguf_parse(heed_model_file **file, const void *data, size_t size, const char *name);

#endif
