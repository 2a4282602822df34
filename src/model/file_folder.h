/* What the parts of the reader of folders share. */
#ifndef HEED_MODEL_FILE_FOLDER_H
#define HEED_MODEL_FILE_FOLDER_H

#include "model/file_own.h"

/* A growing list of names of files. Zero it first. */
typedef struct heed_file_names {
    char **name;
    int count, capacity;
} heed_file_names;
heed_status heed_names_append(heed_file_names *names, const char *name);
bool heed_names_contain(const heed_file_names *names, const char *name);
void heed_names_free(heed_file_names *names);

/* "folder/name", freed by the caller. */
heed_status heed_folder_path(const char *folder, const char *name, char **path);

/* Opens these files of the folder file->path as the parts of `file`, in this order. */
heed_status heed_folder_open_files(heed_model_file *file, const heed_file_names *names);

/* By model.safetensors.index.json, which is among the texts of the file. */
heed_status heed_folder_read_index(heed_model_file *file);

/* A note on safetensors files of the folder that are not among those read. */
heed_status heed_folder_note_others(heed_model_file *file, const heed_file_names *read);

#endif
