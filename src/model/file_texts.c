/* The texts that lie beside safetensors: configurations and tokenisers. */
#include "base/try.h"
#include "model/file_own.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define MOST_TEXT_BYTES (1u << 30)

static const char *const names[] = {
    "config.json",
    "generation_config.json",
    "tokenizer.json",
    "tokenizer_config.json",
    "special_tokens_map.json",
    "added_tokens.json",
    "chat_template.jinja",
    "vocab.txt",
    "vocab.json",
    "merges.txt",
    "modules.json",
    "sentence_bert_config.json",
    "1_Pooling/config.json",
    "model.safetensors.index.json",
};

#define NAMES (sizeof names / sizeof *names)

/* Copies a text, so that it ends with a zero and stays as it is. */
static heed_status read_text(heed_model_file *file, const char *path, const char *name)
{
    char shown[400];
    heed_mapping mapping;
    heed_printable(path, shown, sizeof shown);
    TRY(heed_map(&mapping, path, shown));
    heed_status status = HEED_OK;
    if (mapping.size > MOST_TEXT_BYTES)
        status = heed_fail(HEED_FORMAT, "%s: %llu bytes: at most %u", shown, (unsigned long long)mapping.size,
                           MOST_TEXT_BYTES);
    const char *text = status ? NULL : heed_file_copy(file, mapping.data, (size_t)mapping.size);
    if (!status && !text)
        status = HEED_NO_MEMORY;
    if (!status)
        file->text[file->texts++] = (heed_file_text){name, text, (size_t)mapping.size};
    heed_unmap(&mapping);
    return status;
}

heed_status heed_folder_texts(heed_model_file *file, const char *folder)
{
    const size_t size = strlen(folder) + 64;
    char *path = malloc(size);
    file->text = heed_file_take(file, NAMES, sizeof *file->text);
    heed_status status = path && file->text
                             ? HEED_OK
                             : heed_fail(HEED_NO_MEMORY, "%s: no memory to open a model", file->shown);
    for (size_t i = 0; i < NAMES && !status; i++) {
        snprintf(path, size, "%s/%s", folder, names[i]);
        if (access(path, F_OK) == 0)
            status = read_text(file, path, names[i]);
    }
    free(path);
    return status;
}
