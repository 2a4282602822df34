/* Opening a model of any format, and asking what is in it. */
#include "model/file_own.h"
#include "model/gguf.h"
#include "model/looks_like.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

/* Reads what is mapped by its first bytes. */
static heed_status read_any(heed_model_file *file)
{
    const heed_mapping *mapping = &file->mapping;
    if (heed_is_gguf(mapping->data, mapping->size)) {
        file->format = HEED_FORMAT_GGUF;
        return heed_gguf_read(file);
    }
    if (mapping->size > 8 && mapping->data[8] == '{') {
        file->format = HEED_FORMAT_SAFETENSORS;
        return heed_safetensors_map(file);
    }
    const size_t known =
        mapping->size < HEED_LOOKS_LIKE_BYTES ? (size_t)mapping->size : HEED_LOOKS_LIKE_BYTES;
    const char *other = heed_looks_like(mapping->data, known);
    if (other)
        return heed_fail(HEED_FORMAT, "%s: not a model file: it looks like %s; GGUF or safetensors is needed",
                         file->shown, other);
    return heed_fail(HEED_FORMAT,
                     "%s: not a model file: its %llu bytes begin neither as GGUF nor as safetensors",
                     file->shown, (unsigned long long)mapping->size);
}

heed_status heed_model_file_open_one(heed_model_file **file, const char *path)
{
    *file = NULL;
    heed_model_file *made = heed_model_file_new(path, HEED_FORMAT_GGUF);
    if (!made)
        return HEED_NO_MEMORY;
    heed_status status = heed_map(&made->mapping, path, made->shown);
    made->mapped = !status;
    if (!status)
        status = read_any(made);
    if (status)
        heed_model_file_close(made);
    else
        *file = made;
    return status;
}

/* The folder that a file lies in: "." or all before the last slash. */
static char *folder_of(heed_model_file *file)
{
    const char *slash = strrchr(file->path, '/');
    if (!slash)
        return heed_file_copy(file, ".", 1);
    return heed_file_copy(file, file->path, slash == file->path ? 1 : (size_t)(slash - file->path));
}

heed_status heed_model_file_open(heed_model_file **file, const char *path)
{
    struct stat info;
    if (stat(path, &info) == 0 && S_ISDIR(info.st_mode))
        return heed_folder_open(file, path);
    heed_status status = heed_model_file_open_one(file, path);
    if (status)
        return status;
    if ((*file)->format == HEED_FORMAT_GGUF) {
        status = heed_gguf_join_parts(*file);
    } else {
        const char *folder = folder_of(*file);
        status = folder ? heed_folder_texts(*file, folder) : HEED_NO_MEMORY;
    }
    if (status) {
        heed_model_file_close(*file);
        *file = NULL;
    }
    return status;
}

const char *heed_model_file_path(const heed_model_file *file)
{
    return file->path;
}

heed_model_format heed_model_file_format(const heed_model_file *file)
{
    return file->format;
}

size_t heed_model_file_bytes(const heed_model_file *file)
{
    size_t bytes = 0;
    for (int i = 0; i < file->tensors; i++)
        bytes += file->tensor[i].bytes; /* no overflow: they lie in mapped memory, apart from each other */
    return bytes;
}

int heed_model_file_tensors(const heed_model_file *file)
{
    return file->tensors;
}

const heed_model_tensor *heed_model_file_tensor(const heed_model_file *file, int i)
{
    return i >= 0 && i < file->tensors ? &file->tensor[i] : NULL;
}

static int compare_key(const void *name, const void *entry)
{
    return strcmp(name, ((const heed_name_index *)entry)->name);
}

static int find_name(const heed_name_index *names, int count, const char *name)
{
    const heed_name_index *found =
        count > 0 ? bsearch(name, names, (size_t)count, sizeof *names, compare_key) : NULL;
    return found ? found->index : -1;
}

const heed_model_tensor *heed_model_file_find(const heed_model_file *file, const char *name)
{
    return heed_model_file_tensor(file, find_name(file->tensor_by_name, file->tensors, name));
}

int heed_model_file_metas(const heed_model_file *file)
{
    return file->metas;
}

const heed_meta *heed_model_file_meta_at(const heed_model_file *file, int i)
{
    return i >= 0 && i < file->metas ? &file->meta[i] : NULL;
}

const heed_meta *heed_model_file_meta(const heed_model_file *file, const char *key)
{
    return heed_model_file_meta_at(file, find_name(file->meta_by_name, file->metas, key));
}

const char *heed_model_file_text(const heed_model_file *file, const char *name, size_t *size)
{
    for (int i = 0; i < file->texts; i++)
        if (!strcmp(file->text[i].name, name)) {
            if (size)
                *size = file->text[i].size;
            return file->text[i].text;
        }
    return NULL;
}

/* The file whose mapping holds these bytes; NULL for those that were copied. */
static const heed_model_file *holder(const heed_model_file *file, const unsigned char *data)
{
    for (int i = 0; i < file->parts; i++) {
        const heed_model_file *found = holder(file->part[i], data);
        if (found)
            return found;
    }
    const uintptr_t begin = (uintptr_t)file->mapping.data, at = (uintptr_t)data;
    return file->mapped && at >= begin && at - begin < file->mapping.size ? file : NULL;
}

void heed_model_file_release_bytes(const heed_model_file *file, const void *data, size_t bytes)
{
    const uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE);
    if (!holder(file, data))
        return;
    /* whole pages only: the neighbours at both ends are in use */
    const uintptr_t begin = ((uintptr_t)data + page - 1) / page * page;
    const uintptr_t end = ((uintptr_t)data + bytes) / page * page;
    if (begin < end)
        (void)madvise((void *)begin, end - begin, MADV_DONTNEED);
}

void heed_model_file_release(const heed_model_file *file, const heed_model_tensor *tensor)
{
    heed_model_file_release_bytes(file, tensor->tensor.data, tensor->bytes);
}

int heed_model_file_notes(const heed_model_file *file)
{
    return file->notes;
}

const char *heed_model_file_note(const heed_model_file *file, int i)
{
    return i >= 0 && i < file->notes ? file->note[i] : NULL;
}
