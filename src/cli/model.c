#include "cli/model.h"

#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* The folder of fetched models; false when the environment names none. */
static bool find_store(char *text, size_t size)
{
    const char *store = getenv("HEED_MODELS"), *home = getenv("HOME");
    if (store && *store)
        return snprintf(text, size, "%s", store) < (int)size;
    return home && *home && snprintf(text, size, "%s/.cache/heed", home) < (int)size;
}

/* Names of the models in the store, "smollm2, minilm". */
static void list_store(const char *store, char *text, size_t size)
{
    DIR *directory = opendir(store);
    size_t used = 0;
    text[0] = 0;
    for (struct dirent *entry; directory && (entry = readdir(directory));) {
        char *ending = strstr(entry->d_name, ".gguf");
        if (*entry->d_name == '.')
            continue;
        const int length = (int)(ending ? ending - entry->d_name : (ptrdiff_t)strlen(entry->d_name));
        const int more =
            snprintf(text + used, size - used, "%s%.*s", used ? ", " : "", length, entry->d_name);
        if (more < 0 || (size_t)more >= size - used) {
            text[used] = 0;
            break;
        }
        used += (size_t)more;
    }
    if (directory)
        closedir(directory);
}

heed_status cli_find_model(const char *word, cli_model_path *path)
{
    static const char *const endings[] = {"", ".gguf", ".safetensors"};
    char store[3000], there[400] = "";
    if (strlen(word) >= 1000)
        return heed_fail(HEED_INVALID, "the name of the model is longer than 1000 bytes");
    snprintf(path->text, sizeof path->text, "%s", word);
    if (access(word, F_OK) == 0)
        return HEED_OK;
    if (*word && !strchr(word, '/') && find_store(store, sizeof store)) {
        for (size_t i = 0; i < sizeof endings / sizeof *endings; i++) {
            snprintf(path->text, sizeof path->text, "%s/%s%s", store, word, endings[i]);
            if (access(path->text, F_OK) == 0)
                return HEED_OK;
        }
        list_store(store, there, sizeof there);
        return heed_fail(
            HEED_IO,
            "no model '%.200s': neither a file or folder here nor fetched into %.300s, which holds %s; "
            "models/get lists what can be fetched",
            word, store, *there ? there : "none");
    }
    return heed_fail(HEED_IO, "no model '%.400s': there is no such file or folder", word);
}
