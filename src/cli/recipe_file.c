/* Recipe files: finding, reading, checking. */
#include "attend/spec_reader.h"
#include "base/try.h"
#include "cli/language.h"
#include "cli/recipe.h"

#include <dirent.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static bool is_folder(const char *path)
{
    struct stat info;
    return !stat(path, &info) && S_ISDIR(info.st_mode);
}

/* In the folder above the program's: build/heed and recipes/, or bin/heed and share/heed/recipes/. */
static bool beside_program(const char *where, char folder[RECIPE_PATH])
{
    char program[PATH_MAX];
    const ssize_t length = readlink("/proc/self/exe", program, sizeof program - 1);
    if (length <= 0)
        return false;
    program[length] = 0;
    for (int i = 0; i < 2; i++) {
        char *slash = strrchr(program, '/');
        if (!slash)
            return false;
        *slash = 0;
    }
    return snprintf(folder, RECIPE_PATH, "%s/%s", program, where) < RECIPE_PATH && is_folder(folder);
}

heed_status recipe_folder(const char *given, char folder[RECIPE_PATH])
{
    if (given) {
        char *whole = realpath(given, NULL); /* commands run elsewhere */
        const bool found =
            whole && is_folder(whole) && snprintf(folder, RECIPE_PATH, "%s", whole) < RECIPE_PATH;
        free(whole);
        return found ? HEED_OK : heed_fail(HEED_IO, "'%.300s' is no folder", given);
    }
    if (is_folder("recipes") && getcwd(folder, RECIPE_PATH - 10)) {
        strcat(folder, "/recipes");
        return HEED_OK;
    }
    if (beside_program("recipes", folder) || beside_program("share/heed/recipes", folder))
        return HEED_OK;
    return heed_fail(HEED_IO,
                     "there is no folder `recipes` here or beside the program; --folder says where it is");
}

static int by_name(const void *a, const void *b)
{
    return strcmp(*(char *const *)a, *(char *const *)b);
}

void recipe_names_free(recipe_names *names)
{
    for (int i = 0; i < names->count; i++)
        free(names->name[i]);
    free(names->name);
    *names = (recipe_names){.count = 0};
}

heed_status recipe_names_read(recipe_names *names, const char *folder)
{
    *names = (recipe_names){.count = 0};
    DIR *directory = opendir(folder);
    heed_status status =
        directory ? HEED_OK : heed_fail(HEED_IO, "the folder '%.300s' cannot be read", folder);
    for (struct dirent *entry; !status && (entry = readdir(directory));) {
        const size_t length = strlen(entry->d_name);
        if (length < 6 || strcmp(entry->d_name + length - 5, ".json"))
            continue;
        char **more = realloc(names->name, ((size_t)names->count + 1) * sizeof *more);
        char *name = more ? strndup(entry->d_name, length - 5) : NULL;
        names->name = more ? more : names->name;
        if (name)
            names->name[names->count++] = name;
        else
            status = heed_fail(HEED_NO_MEMORY, "no memory for the names of recipes");
    }
    if (directory)
        closedir(directory);
    if (status)
        recipe_names_free(names);
    else if (names->count)
        qsort(names->name, (size_t)names->count, sizeof *names->name, by_name);
    return status;
}

/* Fields and what they are. */
static const struct {
    const char *name;
    int type; /* of cJSON */
} fields[] = {
    {"row", cJSON_String},   {"name", cJSON_String},     {"says", cJSON_String},
    {"model", cJSON_String}, {"length", cJSON_Number},   {"tasks", cJSON_String},
    {"seed", cJSON_Number},  {"seeds", cJSON_Number},    {"apart", cJSON_True},
    {"specs", cJSON_Object}, {"train", cJSON_Object},    {"calibrate", cJSON_Object},
    {"texts", cJSON_Object}, {"commands", cJSON_Object}, {"expect", cJSON_Array},
    {"short", cJSON_Object}, {"note", cJSON_String},
};

static heed_status check_fields(const cJSON *object, const char *file)
{
    const cJSON *field;
    cJSON_ArrayForEach(field, object)
    {
        heed_names names;
        bool known = false;
        heed_names_start(&names, (heed_word){HEED_WORD_NAME, field->string, (int)strlen(field->string)});
        for (size_t i = 0; i < sizeof fields / sizeof *fields && !known; i++) {
            known = !strcmp(fields[i].name, field->string);
            if (known && (field->type & 0xFF) != fields[i].type)
                return heed_fail(HEED_FORMAT, "%s: %s is of another kind than recipes have", file,
                                 field->string);
            heed_names_add(&names, fields[i].name);
        }
        if (!known)
            return heed_fail(HEED_FORMAT, "%s: unknown field '%.60s'%s", file, field->string,
                             heed_names_hint(&names).text);
    }
    return HEED_OK;
}

/* Specs are texts, or with `train` also objects of keys; expectations read as comparisons of arms that there
 * are. */
static heed_status check_arms(const cJSON *root, const char *file)
{
    const cJSON *specs = cJSON_GetObjectItem(root, "specs"),
                *commands = cJSON_GetObjectItem(root, "commands"),
                *train = cJSON_GetObjectItem(root, "train"), *arm, *text;
    if (!cJSON_IsString(cJSON_GetObjectItem(root, "says")) || (!specs && !commands))
        return heed_fail(HEED_FORMAT, "%s: `says` and one of `specs` and `commands` are needed", file);
    if (!train && !commands && !cJSON_IsString(cJSON_GetObjectItem(root, "model")))
        return heed_fail(HEED_FORMAT, "%s: `model` or `train` is needed", file);
    if (cJSON_GetArraySize(specs) > RECIPE_ARMS || cJSON_GetArraySize(commands) > RECIPE_ARMS)
        return heed_fail(HEED_FORMAT, "%s: more than %d arms", file, RECIPE_ARMS);
    cJSON_ArrayForEach(
        arm, specs) if (!cJSON_IsString(arm) &&
                        !(train &&
                          cJSON_IsObject(arm))) return heed_fail(HEED_FORMAT, "%s: spec '%.60s' is no text%s",
                                                                 file, arm->string,
                                                                 train ? " and no object of keys" : "");
    cJSON_ArrayForEach(arm, commands) if (!cJSON_IsString(arm)) return heed_fail(
        HEED_FORMAT, "%s: command '%.60s' is no text", file, arm->string);
    cJSON_ArrayForEach(text, cJSON_GetObjectItem(root, "expect"))
    {
        recipe_comparison comparison;
        if (!cJSON_IsString(text))
            return heed_fail(HEED_FORMAT, "%s: an expectation is no text", file);
        TRY(recipe_read_comparison(text->valuestring, &comparison));
        const char *const arms[] = {comparison.left.arm, comparison.right.arm};
        for (int i = 0; i < 2; i++)
            if (*arms[i] && !cJSON_GetObjectItemCaseSensitive(specs ? specs : commands, arms[i]) &&
                (train || !specs || strcmp(arms[i], "own")))
                return heed_fail(HEED_FORMAT, "%s: '%.100s': there is no arm '%s'", file, text->valuestring,
                                 arms[i]);
    }
    return HEED_OK;
}

/* Fields of the short form take the place of the others; keys of `train` one by one. */
static bool lay_over(cJSON *root, const cJSON *form)
{
    const cJSON *field, *key;
    cJSON_ArrayForEach(field, form)
    {
        cJSON *train = !strcmp(field->string, "train") ? cJSON_GetObjectItem(root, "train") : NULL;
        if (!train) {
            cJSON_DeleteItemFromObjectCaseSensitive(root, field->string);
            if (!cJSON_AddItemToObject(root, field->string, cJSON_Duplicate(field, true)))
                return false;
            continue;
        }
        cJSON_ArrayForEach(key, field)
        {
            cJSON_DeleteItemFromObjectCaseSensitive(train, key->string);
            if (!cJSON_AddItemToObject(train, key->string, cJSON_Duplicate(key, true)))
                return false;
        }
    }
    return true;
}

heed_status recipe_set_model(heed_recipe *recipe, const char *model)
{
    char *whole = realpath(model, NULL); /* a name, or a path that holds wherever commands run */
    cJSON_DeleteItemFromObject(recipe->root, "model");
    const bool done = cJSON_AddStringToObject(recipe->root, "model", whole ? whole : model);
    free(whole);
    return done ? HEED_OK : heed_fail(HEED_NO_MEMORY, "no memory for the name of a model");
}

heed_status recipe_read(heed_recipe *recipe, const char *folder, const char *name, bool quick)
{
    char path[RECIPE_PATH + 200];
    cli_text text;
    memset(recipe, 0, sizeof *recipe);
    recipe->name = name;
    recipe->folder = folder;
    recipe->quick = quick;
    snprintf(path, sizeof path, "%s/%.150s.json", folder, name);
    TRY(cli_read_file(path, &text));
    recipe->root = cJSON_ParseWithLength(text.bytes, text.size);
    free(text.bytes);
    const cJSON *form = cJSON_GetObjectItem(recipe->root, "short");
    heed_status status =
        cJSON_IsObject(recipe->root) ? HEED_OK : heed_fail(HEED_FORMAT, "%s: it is no JSON object", path);
    if (!status)
        status = check_fields(recipe->root, path);
    if (!status && form)
        status = check_fields(form, path);
    if (!status && quick && form && !lay_over(recipe->root, form))
        status = heed_fail(HEED_NO_MEMORY, "%s: no memory to read it", path);
    if (!status)
        status = check_arms(recipe->root, path);
    const char *model = recipe_text(recipe, "model");
    if (!status && strchr(model, '/')) { /* a path is one from the recipes' folder */
        char from[2 * RECIPE_PATH];
        snprintf(from, sizeof from, "%s/%.1000s", folder, model);
        status = recipe_set_model(recipe, *model == '/' ? model : from);
    }
    const bool left_out = !status && quick && !form;
    if (status || left_out) {
        recipe_free(recipe);
        return status;
    }
    const cJSON *seeds = cJSON_GetObjectItem(recipe->root, "seeds");
    recipe->seeds =
        seeds && seeds->valuedouble >= 1 && seeds->valuedouble <= RECIPE_SEEDS ? (int)seeds->valuedouble : 1;
    return HEED_OK;
}

void recipe_free(heed_recipe *recipe)
{
    cJSON_Delete(recipe->root);
    cJSON_Delete(recipe->measured);
    cJSON_Delete(recipe->judged);
    cJSON_Delete(recipe->calibrated);
    memset(recipe, 0, sizeof *recipe);
}

const char *recipe_text(const heed_recipe *recipe, const char *field)
{
    const char *text = cJSON_GetStringValue(cJSON_GetObjectItem(recipe->root, field));
    return text ? text : "";
}
