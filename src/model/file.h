/* A model as it lies on disk, whatever its format: one GGUF file or its parts, one safetensors file, or a
 * folder of safetensors with config.json beside them. Metadata and tensors by name; weights are mapped, not
 * read.
 *
 * Everything is checked against the size of the file before it is believed, so that no tensor reaches beyond
 * what is mapped. Immutable once open; may be read by several threads.
 *
 * A file that another program makes shorter while it is mapped takes its pages away: who then reads a tensor
 * gets the signal SIGBUS, as with any mapped file. A library may not catch that for its program; `heed` does,
 * and ends with a sentence.
 */
#ifndef HEED_MODEL_FILE_H
#define HEED_MODEL_FILE_H

#include <heed/tensor.h>

#include "model/safetensors.h"

typedef enum heed_model_format { HEED_FORMAT_GGUF, HEED_FORMAT_SAFETENSORS } heed_model_format;

typedef struct heed_model_file heed_model_file;

/* A tensor of the file. Sizes stand outermost first, whatever the order in the file: a weight that turns `in`
 * numbers into `out` is [out, in]. */
typedef struct heed_model_tensor {
    const char *name;
    const char *dtype; /* as the format calls it: "Q4_K", "BF16"; for messages */
    int rank;          /* as in the file, which may have more dimensions than heed_tensor, */
    int64_t shape[HEED_FILE_RANK];
    heed_tensor tensor; /* dense view of mapped memory; only `data` holds, and type is HEED_TYPES, where the
                           library has no such type or not so many dimensions */
    size_t bytes;
} heed_model_tensor;

typedef enum heed_meta_kind {
    HEED_META_NONE = 0, /* an array of arrays, which no known model has: only `size` holds */
    HEED_META_INT,      /* any whole number */
    HEED_META_FLOAT,
    HEED_META_BOOL,
    HEED_META_TEXT,
    HEED_META_INTS,   /* arrays of whole numbers (bools too), */
    HEED_META_FLOATS, /* of floats, */
    HEED_META_TEXTS,  /* of texts */
} heed_meta_kind;

/* A value of the metadata of a GGUF file. Owned by the file. */
typedef struct heed_meta {
    const char *key;
    heed_meta_kind kind;
    int64_t whole;         /* INT, BOOL */
    double number;         /* FLOAT; INT too */
    const char *text;      /* TEXT: `size` bytes, then a zero */
    int64_t size;          /* bytes of text, or entries of an array */
    const int64_t *wholes; /* INTS */
    const float *numbers;  /* FLOATS */
    const char *const *texts;
    const int32_t *text_size; /* TEXTS: bytes of each, since a text may hold zeros */
} heed_meta;

/* Opens a model: a GGUF file or the first of its parts, a safetensors file, a folder. HEED_IO, HEED_FORMAT
 * (what is wrong, or what the file looks like), HEED_NO_MEMORY. */
heed_status heed_model_file_open(heed_model_file **file, const char *path);
void heed_model_file_close(heed_model_file *file);

const char *heed_model_file_path(const heed_model_file *file);
heed_model_format heed_model_file_format(const heed_model_file *file);
size_t heed_model_file_bytes(const heed_model_file *file); /* of all tensors */

/* Tensors in the order of the file. */
int heed_model_file_tensors(const heed_model_file *file);
const heed_model_tensor *heed_model_file_tensor(const heed_model_file *file, int i);
/* NULL when there is none of that name. */
const heed_model_tensor *heed_model_file_find(const heed_model_file *file, const char *name);

/* GGUF metadata, in the order of the file; NULL when there is no such key (always so for safetensors). */
int heed_model_file_metas(const heed_model_file *file);
const heed_meta *heed_model_file_meta_at(const heed_model_file *file, int i);
const heed_meta *heed_model_file_meta(const heed_model_file *file, const char *key);

/* A text beside safetensors: "config.json", "tokenizer.json", "1_Pooling/config.json"; NULL when there is
 * none. Ends with a zero byte that `size` does not count. Owned by the file. */
const char *heed_model_file_text(const heed_model_file *file, const char *name, size_t *size);

/* Gives the pages of a tensor that has been copied elsewhere back to the system; they are read again when
 * touched. */
void heed_model_file_release(const heed_model_file *file, const heed_model_tensor *tensor);
/* The same for a part of one. */
void heed_model_file_release_bytes(const heed_model_file *file, const void *data, size_t bytes);

/* Sentences about the file that are worth a line to the user (an extra shard, a contradiction and the choice
 * made). */
int heed_model_file_notes(const heed_model_file *file);
const char *heed_model_file_note(const heed_model_file *file, int i);

#endif
