/* Models in several GGUF files, "name-00001-of-00003.gguf" and on: the first holds the metadata, each some of
 * the tensors. */
#include "base/try.h"
#include "model/file_own.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define MOST_PARTS 99999
#define ENDING "-00001-of-00001.gguf"

static int64_t whole_of(const heed_model_file *file, const char *key, int64_t otherwise)
{
    const heed_meta *meta = heed_model_file_meta(file, key);
    return meta && meta->kind == HEED_META_INT ? meta->whole : otherwise;
}

/* Whether the path ends in "-PART-of-COUNT.gguf". */
static bool is_part_path(const char *path, int part, int count)
{
    char ending[40];
    const size_t length = strlen(path);
    snprintf(ending, sizeof ending, "-%05d-of-%05d.gguf", part, count);
    return length >= strlen(ending) && !strcmp(path + length - strlen(ending), ending);
}

/* The path of another part of the same model. */
static void part_path(const heed_model_file *file, int part, int count, char *path, size_t size)
{
    const int stem = (int)(strlen(file->path) - strlen(ENDING));
    snprintf(path, size, "%.*s-%05d-of-%05d.gguf", stem, file->path, part, count);
}

/* All parts must be there: those that are not are named together. */
static heed_status check_present(const heed_model_file *file, int count, char *path, size_t size)
{
    heed_name_list missing = {0};
    for (int part = 2; part <= count; part++) {
        part_path(file, part, count, path, size);
        if (access(path, F_OK))
            heed_list_add(&missing, path);
    }
    if (!missing.count)
        return HEED_OK;
    return heed_fail(HEED_IO, "%s: the model has %d parts, and not all are there: missing %s", file->shown,
                     count, heed_list_text(&missing));
}

static heed_status open_part(const heed_model_file *file, int number, int count, const char *path,
                             heed_model_file **part)
{
    TRY(heed_model_file_open_one(part, path));
    const int64_t no = whole_of(*part, "split.no", -1), of = whole_of(*part, "split.count", -1);
    heed_status status = HEED_OK;
    if ((*part)->format != HEED_FORMAT_GGUF)
        status = heed_fail(HEED_FORMAT, "%s: not a GGUF file, though it is named as a part of %s",
                           (*part)->shown, file->shown);
    else if (no != number - 1 || of != count)
        status = heed_fail(HEED_FORMAT, "%s: says that it is part %lld of %lld: %d of %d is needed",
                           (*part)->shown, (long long)no + 1, (long long)of, number, count);
    if (status) {
        heed_model_file_close(*part);
        *part = NULL;
    }
    return status;
}

/* Opens the parts behind the first. */
static heed_status open_parts(heed_model_file *file, heed_model_file **part, int count, char *path,
                              size_t size)
{
    heed_status status = HEED_OK;
    int opened = 0;
    for (int number = 2; number <= count && !status; number++) {
        part_path(file, number, count, path, size);
        status = open_part(file, number, count, path, &part[opened]);
        opened += !status;
    }
    const heed_status joined = heed_file_join(file, part, opened);
    return status ? status : joined;
}

heed_status heed_gguf_join_parts(heed_model_file *file)
{
    const int64_t count = whole_of(file, "split.count", 1), number = whole_of(file, "split.no", 0);
    if (count <= 1 && count >= 0)
        return HEED_OK;
    if (count < 0 || count > MOST_PARTS || number < 0 || number >= count)
        return heed_fail(HEED_FORMAT, "%s: says that it is part %lld of %lld", file->shown,
                         (long long)number + 1, (long long)count);
    if (!is_part_path(file->path, (int)number + 1, (int)count))
        return heed_fail(
            HEED_FORMAT, "%s: is part %lld of %lld, so that its name must end in -%05lld-of-%05lld.gguf",
            file->shown, (long long)number + 1, (long long)count, (long long)number + 1, (long long)count);
    if (number != 0)
        return heed_fail(HEED_FORMAT, "%s: is part %lld of %lld: open the first, -00001-of-%05lld.gguf",
                         file->shown, (long long)number + 1, (long long)count, (long long)count);
    const size_t size = strlen(file->path) + 40;
    char *path = malloc(size);
    heed_model_file **part = calloc((size_t)count, sizeof(heed_model_file *));
    heed_status status = path && part ? check_present(file, (int)count, path, size)
                                      : heed_fail(HEED_NO_MEMORY, "%s: no memory for its parts", file->shown);
    if (!status)
        status = open_parts(file, part, (int)count, path, size);
    else
        free(part);
    free(path);
    const int64_t tensors = whole_of(file, "split.tensors.count", file->tensors);
    if (!status && tensors != file->tensors)
        status = heed_fail(HEED_FORMAT, "%s: its parts hold %d tensors: the first announces %lld",
                           file->shown, file->tensors, (long long)tensors);
    return status;
}
