/* An open model file, as the readers of the formats fill it in. */
#ifndef HEED_MODEL_FILE_OWN_H
#define HEED_MODEL_FILE_OWN_H

#include "model/file.h"
#include "model/mapping.h"

/* A value of the metadata as it lies in the file: type, then value. */
typedef struct heed_raw_meta {
    const unsigned char *data;
    uint64_t bytes;
} heed_raw_meta;

typedef struct heed_file_text {
    const char *name, *text;
    size_t size;
} heed_file_text;

/* Where an entry of this name stands; sorted by name. */
typedef struct heed_name_index {
    const char *name;
    int index;
} heed_name_index;

#define HEED_FILE_NOTES 16

struct heed_model_file {
    const char *path, *shown; /* as given, and as it may stand in a sentence */
    heed_model_format format;
    heed_mapping mapping;
    bool mapped; /* `mapping` is unmapped when closed */

    heed_model_tensor *tensor;
    int tensors;
    heed_name_index *tensor_by_name;

    heed_meta *meta;
    heed_raw_meta *raw_meta; /* [metas] */
    int metas;
    heed_name_index *meta_by_name;

    heed_file_text *text;
    int texts;
    const char *note[HEED_FILE_NOTES];
    int notes;

    heed_model_file **part; /* files that hold the tensors of this one */
    int parts;
    struct heed_owned *owned;
};

/* A file with nothing in it; NULL when there is no memory. */
heed_model_file *heed_model_file_new(const char *path, heed_model_format format);

/* Zeroed memory that lives as long as the file; NULL, and a message, when there is none. */
void *heed_file_take(heed_model_file *file, size_t count, size_t size);

/* `size` bytes and a zero, likewise. */
char *heed_file_copy(heed_model_file *file, const void *text, size_t size);

/* Keeps a sentence for the user; beyond HEED_FILE_NOTES they are dropped. */
heed_status heed_file_note(heed_model_file *file, const char *format, ...) HEED_PRINTF(2, 3);

/* Sorts the names of tensors and metadata. HEED_FORMAT when one stands there twice. */
heed_status heed_file_index(heed_model_file *file);

/* Adds the tensors of `count` parts to those of the file, which then owns the parts, after an error too. */
heed_status heed_file_join(heed_model_file *file, heed_model_file **parts, int count);

/* Fills in tensor->tensor from rank, shape, type and where the data lies. Copies the data where it does not
 * lie at a multiple of the size of its elements. */
heed_status heed_file_view(heed_model_file *file, heed_model_tensor *tensor, heed_type type,
                           const unsigned char *data);

/* "a, b, c and 4 more" in a sentence. Zero it first. */
typedef struct heed_name_list {
    char text[480];
    int count, left_out;
} heed_name_list;
void heed_list_add(heed_name_list *list, const char *name);
const char *heed_list_text(heed_name_list *list);

/* The readers. Each takes a file with path and mapping set, and fills in the rest of it. */
heed_status heed_gguf_read(heed_model_file *file);
heed_status heed_safetensors_map(heed_model_file *file);

/* A GGUF file whose metadata says that it is one of several: opens the others. */
heed_status heed_gguf_join_parts(heed_model_file *file);

/* Opens a folder of safetensors. `read_texts` reads config.json and the like beside a file or in a folder. */
heed_status heed_folder_open(heed_model_file **file, const char *path);
heed_status heed_folder_texts(heed_model_file *file, const char *folder);

/* Maps one file and reads it, whichever format it is; parts are not looked for. */
heed_status heed_model_file_open_one(heed_model_file **file, const char *path);

#endif
