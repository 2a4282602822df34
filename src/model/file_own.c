/* What the readers of model files share: memory, notes, the sorted names. */
#include "model/file_own.h"
#include "base/try.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* A block of memory of a file, before its bytes. */
typedef struct heed_owned {
    struct heed_owned *next;
    max_align_t bytes[];
} heed_owned;

heed_model_file *heed_model_file_new(const char *path, heed_model_format format)
{
    char shown[400];
    heed_model_file *file = calloc(1, sizeof *file);
    if (!file) {
        heed_fail(HEED_NO_MEMORY, "no memory to open a file");
        return NULL;
    }
    heed_printable(path, shown, sizeof shown);
    file->format = format;
    file->path = heed_file_copy(file, path, strlen(path));
    file->shown = heed_file_copy(file, shown, strlen(shown));
    if (file->path && file->shown)
        return file;
    heed_model_file_close(file);
    return NULL;
}

void *heed_file_take(heed_model_file *file, size_t count, size_t size)
{
    size_t bytes;
    heed_owned *block = NULL;
    if (!__builtin_mul_overflow(count, size, &bytes) && !__builtin_add_overflow(bytes, sizeof *block, &bytes))
        block = calloc(1, bytes);
    if (!block) {
        heed_fail(HEED_NO_MEMORY, "%s: no memory for %zu times %zu bytes", file->shown ? file->shown : "file",
                  count, size);
        return NULL;
    }
    block->next = file->owned;
    file->owned = block;
    return block->bytes;
}

char *heed_file_copy(heed_model_file *file, const void *text, size_t size)
{
    char *copy = heed_file_take(file, 1, size < SIZE_MAX ? size + 1 : size);
    if (copy && size > 0)
        memcpy(copy, text, size);
    return copy;
}

heed_status heed_file_note(heed_model_file *file, const char *format, ...)
{
    char text[1024];
    va_list arguments;
    if (file->notes == HEED_FILE_NOTES)
        return HEED_OK;
    va_start(arguments, format);
    vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    file->note[file->notes] = heed_file_copy(file, text, strlen(text));
    return file->note[file->notes++] ? HEED_OK : HEED_NO_MEMORY;
}

static int compare_name(const void *a, const void *b)
{
    return strcmp(((const heed_name_index *)a)->name, ((const heed_name_index *)b)->name);
}

static heed_status sort_names(const heed_model_file *file, heed_name_index *names, int count,
                              const char *what)
{
    char text[80];
    if (count > 1)
        qsort(names, (size_t)count, sizeof *names, compare_name);
    for (int i = 1; i < count; i++)
        if (!strcmp(names[i - 1].name, names[i].name))
            return heed_fail(HEED_FORMAT, "%s: %s %s stands there twice", file->shown, what,
                             heed_printable(names[i].name, text, sizeof text));
    return HEED_OK;
}

heed_status heed_file_index(heed_model_file *file)
{
    file->tensor_by_name = heed_file_take(file, (size_t)file->tensors + 1, sizeof *file->tensor_by_name);
    file->meta_by_name = heed_file_take(file, (size_t)file->metas + 1, sizeof *file->meta_by_name);
    if (!file->tensor_by_name || !file->meta_by_name)
        return HEED_NO_MEMORY;
    for (int i = 0; i < file->tensors; i++)
        file->tensor_by_name[i] = (heed_name_index){file->tensor[i].name, i};
    for (int i = 0; i < file->metas; i++)
        file->meta_by_name[i] = (heed_name_index){file->meta[i].key, i};
    const heed_status status = sort_names(file, file->meta_by_name, file->metas, "key");
    return status ? status : sort_names(file, file->tensor_by_name, file->tensors, "tensor");
}

heed_status heed_file_join(heed_model_file *file, heed_model_file **parts, int count)
{
    int64_t tensors = file->tensors;
    file->part = parts;
    file->parts = count;
    for (int i = 0; i < count; i++) {
        tensors += parts[i]->tensors;
        for (int j = 0; j < parts[i]->notes; j++)
            TRY(heed_file_note(file, "%s", parts[i]->note[j]));
    }
    if (tensors > INT32_MAX)
        return heed_fail(HEED_FORMAT, "%s: %lld tensors: at most %d", file->shown, (long long)tensors,
                         INT32_MAX);
    heed_model_tensor *all = heed_file_take(file, (size_t)tensors + 1, sizeof *all);
    if (!all)
        return HEED_NO_MEMORY;
    int next = 0;
    for (int i = 0; i < file->tensors; i++)
        all[next++] = file->tensor[i];
    for (int i = 0; i < count; i++)
        for (int j = 0; j < parts[i]->tensors; j++)
            all[next++] = parts[i]->tensor[j];
    file->tensor = all;
    file->tensors = next;
    return heed_file_index(file);
}

/* Of what a type's numbers are read as. Blocks may lie anywhere. */
static size_t element_alignment(heed_type type)
{
    static const uint8_t alignment[HEED_TYPES] = {
        [HEED_F32] = 4, [HEED_F16] = 2, [HEED_BF16] = 2, [HEED_I32] = 4,
        [HEED_F64] = 8, [HEED_I16] = 2, [HEED_I64] = 8};
    return type < HEED_TYPES && alignment[type] ? alignment[type] : 1;
}

heed_status heed_file_view(heed_model_file *file, heed_model_tensor *tensor, heed_type type,
                           const unsigned char *data)
{
    const size_t alignment = element_alignment(type);
    const bool known = type != HEED_TYPES && tensor->rank <= HEED_MAX_RANK;
    if (known && tensor->bytes > 0 && (uintptr_t)data % alignment != 0) {
        char name[80];
        data = (unsigned char *)heed_file_copy(file, data, tensor->bytes);
        if (!data || heed_file_note(file, "%s: tensor %s is not aligned in the file and was copied",
                                    file->shown, heed_printable(tensor->name, name, sizeof name)))
            return HEED_NO_MEMORY;
    }
    void *numbers = (void *)(uintptr_t)data; /* nobody writes to it: the pages are mapped read-only */
    if (known)
        tensor->tensor = heed_tensor_dense(numbers, type, tensor->rank, tensor->shape);
    else
        tensor->tensor = (heed_tensor){.data = numbers, .type = HEED_TYPES};
    return HEED_OK;
}

void heed_list_add(heed_name_list *list, const char *name)
{
    char shown[100];
    const size_t used = strlen(list->text);
    heed_printable(name, shown, sizeof shown);
    if (list->left_out || used + strlen(shown) + 30 > sizeof list->text)
        list->left_out++;
    else
        snprintf(list->text + used, sizeof list->text - used, "%s%s", list->count ? ", " : "", shown);
    list->count++;
}

const char *heed_list_text(heed_name_list *list)
{
    const size_t used = strlen(list->text);
    if (list->left_out)
        snprintf(list->text + used, sizeof list->text - used, " and %d more", list->left_out);
    list->left_out = 0;
    return list->text;
}

void heed_model_file_close(heed_model_file *file)
{
    if (!file)
        return;
    for (int i = 0; i < file->parts; i++)
        heed_model_file_close(file->part[i]);
    free(file->part);
    if (file->mapped)
        heed_unmap(&file->mapping);
    for (heed_owned *block = file->owned; block;) {
        heed_owned *next = block->next;
        free(block);
        block = next;
    }
    free(file);
}
