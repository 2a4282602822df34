/* Safetensors files: eight bytes of header length, a JSON header of names, types, shapes and offsets, then
 * the data.
 *
 * The reader believes nothing that it has not checked against the size of the file, and reads tensors one by
 * one into memory of the caller, so a file that shrinks under it is an error and not a crash. The writer's
 * file appears whole or not at all. https://github.com/huggingface/safetensors, format section
 */
#ifndef HEED_MODEL_SAFETENSORS_H
#define HEED_MODEL_SAFETENSORS_H

#include <heed/tensor.h>

#define HEED_FILE_RANK 8 /* dimensions that a tensor in a file may have */

typedef struct heed_file_tensor {
    char *name;
    const char *dtype; /* as in the file: "F32", "I64", ... */
    heed_type type;    /* HEED_TYPES where the library has no such type */
    int rank;
    int64_t shape[HEED_FILE_RANK];
    uint64_t begin, bytes; /* within the data section */
} heed_file_tensor;

typedef struct heed_safetensors heed_safetensors;

/* Opens a file and checks all of its header. HEED_IO, HEED_FORMAT (with what the file looks like),
 * HEED_NO_MEMORY. */
heed_status heed_safetensors_open(heed_safetensors **file, const char *path);

/* The same from memory, which must outlive `file`; `name` stands in messages. */
heed_status heed_safetensors_parse(heed_safetensors **file, const void *data, size_t size, const char *name);

void heed_safetensors_close(heed_safetensors *file);

/* Tensors in the order of their data. */
int heed_safetensors_count(const heed_safetensors *file);
const heed_file_tensor *heed_safetensors_tensor(const heed_safetensors *file, int i);

/* NULL when the file has no such tensor. */
const heed_file_tensor *heed_safetensors_find(const heed_safetensors *file, const char *name);

/* Reads the tensor's bytes into `to`. HEED_IO when the file has become shorter. */
heed_status heed_safetensors_read(const heed_safetensors *file, const heed_file_tensor *tensor, void *to);

/* A name as it may stand in a sentence: control characters as '?', and no longer than `size`. Returns `text`.
 */
const char *heed_printable(const char *name, char *text, size_t size);

typedef struct heed_named_tensor {
    const char *name;
    heed_tensor tensor; /* dense; no block type */
} heed_named_tensor;

/* Writes a file with these tensors and the pairs of `metadata` (key, value, ..., NULL; or NULL). It is
 * written under another name in the same folder and renamed when complete; after an error nothing is left and
 * a file that was there is intact. */
heed_status heed_safetensors_write(const char *path, const heed_named_tensor *tensors, int count,
                                   const char *const *metadata);

/* Writes the bytes of tensor i, as many as its type and shape take. */
struct heed_output;
typedef heed_status (*heed_tensor_source)(void *context, int i, struct heed_output *output);

/* The same for data that is made while it is written: `source` is called once for each tensor, in the order
 * of the file, and the tensors' own data is not looked at. */
heed_status heed_safetensors_stream(const char *path, const heed_named_tensor *tensors, int count,
                                    const char *const *metadata, heed_tensor_source source, void *context);

#endif
