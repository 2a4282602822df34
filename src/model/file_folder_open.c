/* Which files of a folder are the model. */
#include "base/text.h"
#include "base/try.h"
#include "model/file_folder.h"

#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define SINGLE "model.safetensors"
#define INDEX "model.safetensors.index.json"

heed_status heed_names_append(heed_file_names *names, const char *name)
{
    if (names->count == names->capacity) {
        const int capacity = names->capacity ? 2 * names->capacity : 8;
        char **larger = realloc(names->name, (size_t)capacity * sizeof(char *));
        if (!larger)
            return heed_fail(HEED_NO_MEMORY, "no memory for the names of files");
        names->name = larger;
        names->capacity = capacity;
    }
    names->name[names->count] = strdup(name);
    if (!names->name[names->count])
        return heed_fail(HEED_NO_MEMORY, "no memory for the names of files");
    names->count++;
    return HEED_OK;
}

void heed_names_free(heed_file_names *names)
{
    for (int i = 0; i < names->count; i++)
        free(names->name[i]);
    free(names->name);
    *names = (heed_file_names){0};
}

static int compare_text(const void *a, const void *b)
{
    return strcmp(*(const char *const *)a, *(const char *const *)b);
}

/* Names in the folder with this ending, sorted. */
static heed_status list_folder(const heed_model_file *file, const char *ending, heed_file_names *names)
{
    DIR *directory = opendir(file->path);
    heed_status status = HEED_OK;
    if (!directory)
        return heed_fail(HEED_IO, "%s: cannot be opened: %s", file->shown, strerror(errno));
    for (struct dirent *entry; !status && (entry = readdir(directory));)
        if (*entry->d_name != '.' && heed_ends_with(entry->d_name, ending))
            status = heed_names_append(names, entry->d_name);
    closedir(directory);
    if (names->count > 1)
        qsort(names->name, (size_t)names->count, sizeof *names->name, compare_text);
    return status;
}

bool heed_names_contain(const heed_file_names *names, const char *name)
{
    for (int i = 0; i < names->count; i++)
        if (!strcmp(names->name[i], name))
            return true;
    return false;
}

heed_status heed_folder_note_others(heed_model_file *file, const heed_file_names *read)
{
    heed_file_names names = {0};
    heed_name_list others = {0};
    heed_status status = list_folder(file, ".safetensors", &names);
    for (int i = 0; i < names.count; i++)
        if (!heed_names_contain(read, names.name[i]))
            heed_list_add(&others, names.name[i]);
    heed_names_free(&names);
    if (!status && others.count)
        status = heed_file_note(file, "%s: files that do not belong to the model are left out: %s",
                                file->shown, heed_list_text(&others));
    return status;
}

/* The part number of "name-00002-of-00003.safetensors", how many there are and how long the name is; false
 * for other names. */
static bool part_of(const char *name, int *number, int *count, size_t *stem)
{
    static const char form[] = "-00000-of-00000.safetensors";
    const size_t length = strlen(name), end = sizeof form - 1;
    if (length < end)
        return false;
    *stem = length - end;
    *number = *count = 0;
    for (size_t i = 0; i < end; i++) {
        const char c = name[*stem + i];
        if (form[i] != '0' ? c != form[i] : c < '0' || c > '9')
            return false;
        int *value = i < 7 ? number : count;
        if (form[i] == '0')
            *value = 10 * *value + (c - '0');
    }
    return *number >= 1 && *number <= *count;
}

/* Whether the names are the parts 1 to n of one model; the missing ones go into the list. */
static bool are_parts(const heed_file_names *names, heed_name_list *missing)
{
    int number, count, first_count = 0, next = 1;
    size_t stem, first_stem = 0;
    char name[300];
    for (int i = 0; i < names->count; i++) {
        if (!part_of(names->name[i], &number, &count, &stem))
            return false;
        if (i == 0) {
            first_count = count;
            first_stem = stem;
        }
        if (count != first_count || stem != first_stem || memcmp(names->name[i], names->name[0], stem) != 0)
            return false;
        for (; next < number; next++) {
            snprintf(name, sizeof name, "%.*s-%05d-of-%05d.safetensors", (int)stem, names->name[0], next,
                     count);
            heed_list_add(missing, name);
        }
        next = number + 1;
    }
    for (; next <= first_count; next++) {
        snprintf(name, sizeof name, "%.*s-%05d-of-%05d.safetensors", (int)first_stem, names->name[0], next,
                 first_count);
        heed_list_add(missing, name);
    }
    return true;
}

/* There is no safetensors file: what is there instead? */
static heed_status nothing_found(const heed_model_file *file)
{
    static const char *const endings[] = {".gguf", ".bin", ".pt", ".pth", ".h5", ".onnx"};
    heed_name_list found = {0};
    for (size_t i = 0; i < sizeof endings / sizeof *endings; i++) {
        heed_file_names names = {0};
        const heed_status status = list_folder(file, endings[i], &names);
        for (int j = 0; j < names.count; j++)
            heed_list_add(&found, names.name[j]);
        heed_names_free(&names);
        if (status)
            return status;
    }
    return heed_fail(HEED_FORMAT, "%s: a folder without safetensors files; %s%s", file->shown,
                     found.count ? "it holds " : "a GGUF file or a folder with model.safetensors is needed",
                     heed_list_text(&found));
}

static heed_status open_single(heed_model_file *file)
{
    heed_file_names single = {0};
    heed_status status = heed_names_append(&single, SINGLE);
    if (!status)
        status = heed_folder_open_files(file, &single);
    if (!status)
        status = heed_folder_note_others(file, &single);
    heed_names_free(&single);
    return status;
}

static heed_status open_listed(heed_model_file *file, const heed_file_names *names)
{
    heed_name_list missing = {0}, found = {0};
    if (heed_names_contain(names, SINGLE))
        return open_single(file);
    if (heed_model_file_text(file, INDEX, NULL))
        return heed_folder_read_index(file);
    if (names->count == 0)
        return nothing_found(file);
    const bool parts = are_parts(names, &missing);
    if (names->count == 1 && !parts)
        return heed_folder_open_files(file, names);
    for (int i = 0; i < names->count; i++)
        heed_list_add(&found, names->name[i]);
    if (!parts)
        return heed_fail(HEED_FORMAT,
                         "%s: which of its files are the model? An index " INDEX
                         " is needed, or the path of one of them: %s",
                         file->shown, heed_list_text(&found));
    if (missing.count)
        return heed_fail(HEED_IO, "%s: not all parts of the model are there: missing %s", file->shown,
                         heed_list_text(&missing));
    return heed_folder_open_files(file, names);
}

static heed_status read_folder(heed_model_file *file)
{
    heed_file_names names = {0};
    heed_status status = heed_folder_texts(file, file->path);
    if (!status)
        status = list_folder(file, ".safetensors", &names);
    if (!status)
        status = open_listed(file, &names);
    heed_names_free(&names);
    return status;
}

heed_status heed_folder_open(heed_model_file **file, const char *path)
{
    *file = NULL;
    heed_model_file *made = heed_model_file_new(path, HEED_FORMAT_SAFETENSORS);
    if (!made)
        return HEED_NO_MEMORY;
    const heed_status status = read_folder(made);
    if (status)
        heed_model_file_close(made);
    else
        *file = made;
    return status;
}
