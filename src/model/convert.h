/* From one model file to another: other types of numbers, another format. */
#ifndef HEED_MODEL_CONVERT_H
#define HEED_MODEL_CONVERT_H

#include "model/file.h"

/* Wishes. Types are HEED_TYPES where they are not given. */
typedef struct heed_convert_options {
    heed_type type;      /* of matrices; not given: as they are */
    heed_type embedding; /* of the embedding and the output matrix; not given: `type`, but q8 at least */
    int threads;         /* 0: one a core */
    void (*progress)(void *context, uint64_t done, uint64_t total); /* bytes read; may be NULL */
    void *context;
} heed_convert_options;

/* What was done. */
typedef struct heed_convert_report {
    int tensors, changed;
    int other; /* matrices that got `other_type`, because their rows are no multiple of the blocks asked for
                */
    heed_type other_type;
    bool no_tokenizer; /* the folder had none to put into the GGUF file */
    bool
        composes; /* the folder's tokeniser composes characters first (NFC), which the GGUF file cannot say */
    int64_t cut;  /* tokens that the folder wants read of a text, where that is fewer than the context: the
                     GGUF  file cannot say it; else 0 */
    int again;    /* quantised matrices that were quantised once more */
    size_t bytes_before, bytes; /* of tensors */
} heed_convert_report;

/* Writes `file` to `path`, whose ending says the format: .gguf or .safetensors. The file appears whole or not
 * at all. HEED_UNSUPPORTED when a tensor has a type that the library cannot read, or when there is no way
 * between the two. */
heed_status heed_convert(const heed_model_file *file, const char *path, const heed_convert_options *options,
                         heed_convert_report *report);

#endif
