/* A place in a GGUF file, and reading on from it: nothing is read that the file does not hold. */
#ifndef HEED_MODEL_GGUF_READER_H
#define HEED_MODEL_GGUF_READER_H

#include "model/file_own.h"
#include "model/gguf.h"

typedef struct heed_gguf_reader {
    heed_model_file *file;
    const unsigned char *data;
    uint64_t size, at;
    char where[160]; /* "key 3 (general.name)": for messages */
} heed_gguf_reader;

/* "PATH: truncated: ..." */
heed_status heed_gguf_truncated(const heed_gguf_reader *reader);

heed_status heed_gguf_skip(heed_gguf_reader *reader, uint64_t bytes);
heed_status heed_gguf_u32(heed_gguf_reader *reader, uint32_t *value);
heed_status heed_gguf_u64(heed_gguf_reader *reader, uint64_t *value);

/* A length and so many bytes, still in the file. */
heed_status heed_gguf_text(heed_gguf_reader *reader, const char **text, uint64_t *size);

/* A name: a text without zero bytes, copied. */
heed_status heed_gguf_name(heed_gguf_reader *reader, const char **name);

/* `count` keys and their values into file->meta and file->raw_meta. */
heed_status heed_gguf_metadata(heed_gguf_reader *reader, uint64_t count);

#endif
