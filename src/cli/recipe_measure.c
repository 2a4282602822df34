/* Running what a recipe says: models trained arm by arm, `heed eval` over specs, or command lines; each
 * several times where the recipe has several seeds. */
#include "base/try.h"
#include "cli/progress.h"
#include "cli/recipe.h"
#include "eval/book.h"

#include <dirent.h>
#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* Words of a command, copied. */
typedef struct words {
    char *word[400];
    int count;
} words;

static heed_status add_word(words *list, const char *word)
{
    if (list->count >= (int)(sizeof list->word / sizeof *list->word) - 1)
        return heed_fail(HEED_INVALID, "a command of more than %d words", list->count);
    list->word[list->count] = strdup(word);
    if (!list->word[list->count])
        return heed_fail(HEED_NO_MEMORY, "no memory for a command");
    list->count++;
    return HEED_OK;
}

static heed_status add_words(words *list, const char *const *word)
{
    for (; *word; word++)
        TRY(add_word(list, *word));
    return HEED_OK;
}

static heed_status add_number(words *list, const char *option, double number)
{
    char text[40];
    snprintf(text, sizeof text, "%.17g", number);
    return add_words(list, (const char *const[]){option, text, NULL});
}

static void free_words(words *list)
{
    for (int i = 0; i < list->count; i++)
        free(list->word[i]);
    list->count = 0;
}

static heed_status run_words(const words *list, const char *folder, cJSON **lines)
{
    return recipe_run_heed((const char *const *)list->word, folder, lines);
}

static heed_status add_threads(words *list, const heed_recipe *recipe)
{
    return recipe->threads ? add_number(list, "--threads", (double)recipe->threads) : HEED_OK;
}

/* The folder and what lies in it, folders within folders too. */
static void remove_folder(const char *path)
{
    DIR *directory = opendir(path);
    for (struct dirent *entry; directory && (entry = readdir(directory));) {
        char inner[RECIPE_PATH + 300];
        struct stat info;
        if (!strcmp(entry->d_name, ".") || !strcmp(entry->d_name, ".."))
            continue;
        snprintf(inner, sizeof inner, "%s/%s", path, entry->d_name);
        if (!lstat(inner, &info) && S_ISDIR(info.st_mode))
            remove_folder(inner);
        else
            unlink(inner);
    }
    if (directory)
        closedir(directory);
    rmdir(path);
}

static heed_status keep_measures(heed_recipe *recipe, const char *arm, cJSON *object)
{
    cJSON *seeds = cJSON_GetObjectItemCaseSensitive(recipe->measured, arm);
    if (!seeds)
        seeds = cJSON_AddArrayToObject(recipe->measured, arm);
    return seeds && cJSON_AddItemToArray(seeds, object)
               ? HEED_OK
               : heed_fail(HEED_NO_MEMORY, "no memory to keep measures");
}

/* key = value as `--set`, numbers as they are written; paths are from the recipes' folder. */
static heed_status add_key(words *list, const cJSON *key, const char *folder)
{
    char line[RECIPE_PATH + 1200], number[40];
    const char *value = cJSON_GetStringValue(key);
    const bool path = value && *value != '/' && strchr(value, '/') &&
                      (!strcmp(key->string, "file") || !strcmp(key->string, "tokenizer"));
    snprintf(number, sizeof number, "%.17g", key->valuedouble);
    if (!value && !cJSON_IsNumber(key))
        return heed_fail(HEED_FORMAT, "the key '%.60s' of `train` is neither a text nor a number",
                         key->string);
    if (snprintf(line, sizeof line, "%s = %s%s%s", key->string, path ? folder : "", path ? "/" : "",
                 value ? value : number) >= (int)sizeof line)
        return heed_fail(HEED_FORMAT, "the key '%.60s' of `train` is too long", key->string);
    return add_words(list, (const char *const[]){"--set", line, NULL});
}

/* Keys of `train`, the arm's own instead of them, and the seed. `config` names a file of recipes/train/ that
 * comes first. */
static heed_status training(const heed_recipe *recipe, const cJSON *arm, int seed, const char *folder,
                            words *list)
{
    const cJSON *train = cJSON_GetObjectItem(recipe->root, "train"), *key;
    const char *config = cJSON_GetStringValue(cJSON_GetObjectItem(train, "config"));
    char path[RECIPE_PATH + 100], number[40];
    snprintf(path, sizeof path, "%s/train/%.60s", recipe->folder, config ? config : "");
    TRY(add_words(list, (const char *const[]){"train", "--json", "-o", folder, NULL}));
    if (config)
        TRY(add_word(list, path));
    cJSON_ArrayForEach(key,
                       train) if (strcmp(key->string, "config") && !cJSON_GetObjectItem(arm, key->string))
        TRY(add_key(list, key, recipe->folder));
    cJSON_ArrayForEach(key, arm) TRY(add_key(list, key, recipe->folder));
    if (cJSON_IsString(arm)) {
        char line[1200];
        snprintf(line, sizeof line, "attention = %.1100s", arm->valuestring);
        TRY(add_words(list, (const char *const[]){"--set", line, NULL}));
    }
    const cJSON *first = cJSON_GetObjectItem(recipe->root, "seed");
    snprintf(number, sizeof number, "seed=%d", (first ? (int)first->valuedouble : 1) + seed);
    TRY(add_words(list, (const char *const[]){"--set", number, NULL}));
    return add_threads(list, recipe);
}

static heed_status train_arm(heed_recipe *recipe, const cJSON *arm, int seed, const char *work)
{
    words list = {.count = 0};
    char folder[RECIPE_PATH + 100];
    cJSON *lines = NULL, *measures = NULL;
    snprintf(folder, sizeof folder, "%s/%.60s-%d", work, arm->string, seed + 1);
    heed_status status = training(recipe, arm, seed, folder, &list);
    if (!status)
        status = run_words(&list, work, &lines);
    if (!status && !(measures = cJSON_DetachItemFromArray(lines, cJSON_GetArraySize(lines) - 1)))
        status = heed_fail(HEED_INVALID, "heed train measured nothing");
    if (!status)
        status = keep_measures(recipe, arm->string, measures);
    cJSON_Delete(lines);
    free_words(&list);
    return status;
}

static heed_status train_all(heed_recipe *recipe, const char *work)
{
    const cJSON *specs = cJSON_GetObjectItem(recipe->root, "specs"), *arm;
    const int all = recipe->seeds * cJSON_GetArraySize(specs);
    cli_progress progress = {.unit = "runs", .scale = 1.0};
    heed_status status = HEED_OK;
    char what[200];
    int done = 0;
    for (int seed = 0; seed < recipe->seeds && !status; seed++) {
        cJSON_ArrayForEach(arm, specs)
        {
            if (status)
                break;
            snprintf(what, sizeof what, "%.60s: %.60s, seed %d of %d", recipe->name, arm->string, seed + 1,
                     recipe->seeds);
            progress.what = what;
            cli_progress_show(&progress, done, all);
            status = train_arm(recipe, arm, seed, work);
            done++;
        }
    }
    cli_progress_end(&progress);
    return status;
}

/* The last of the book as text, and tensors of the recipe's forms from it. */
static heed_status calibrate(heed_recipe *recipe, const char *work)
{
    const cJSON *wanted = cJSON_GetObjectItem(recipe->root, "calibrate");
    const char *spec = cJSON_GetStringValue(cJSON_GetObjectItem(wanted, "spec"));
    const cJSON *tokens = cJSON_GetObjectItem(wanted, "tokens");
    if (!spec || !cJSON_IsNumber(tokens))
        return heed_fail(HEED_FORMAT, "%s: `calibrate` needs `spec` and `tokens`", recipe->name);
    size_t size;
    const char *book = heed_book(&size);
    const size_t wanted_bytes = (size_t)(5.0 * tokens->valuedouble);
    const char *from = book + (size > wanted_bytes ? size - wanted_bytes : 0),
               *line = memchr(from, '\n', (size_t)(book + size - from));
    char path[RECIPE_PATH + 20];
    snprintf(path, sizeof path, "%s/text.txt", work);
    FILE *file = fopen(path, "wb");
    if (!file)
        return heed_fail(HEED_IO, "%s: cannot be written: %s", path, strerror(errno));
    from = line ? line + 1 : from;
    fwrite(from, 1, (size_t)(book + size - from), file);
    fclose(file);
    words list = {.count = 0};
    heed_status status =
        add_words(&list, (const char *const[]){"calibrate", "-m", recipe_text(recipe, "model"), "--attention",
                                               spec, "text.txt", "-o", "params.safetensors", "--json", NULL});
    if (!status)
        status = add_number(&list, "--tokens", tokens->valuedouble);
    if (!status)
        status = run_words(&list, work, &recipe->calibrated);
    free_words(&list);
    return status;
}

static heed_status evaluation(const heed_recipe *recipe, int seed, words *list)
{
    const cJSON *arm, *first = cJSON_GetObjectItem(recipe->root, "seed");
    TRY(add_words(list, (const char *const[]){"eval", "-m", recipe_text(recipe, "model"), "--json", "--tasks",
                                              recipe_text(recipe, "tasks"), NULL}));
    TRY(add_number(list, "--seed", (first ? first->valuedouble : 1.0) + seed));
    TRY(add_number(list, "--length", cJSON_GetNumberValue(cJSON_GetObjectItem(recipe->root, "length"))));
    if (cJSON_IsTrue(cJSON_GetObjectItem(recipe->root, "apart")))
        TRY(add_word(list, "--apart"));
    if (cJSON_GetObjectItem(recipe->root, "calibrate"))
        TRY(add_words(list, (const char *const[]){"--params", "params.safetensors", NULL}));
    TRY(add_threads(list, recipe));
    cJSON_ArrayForEach(arm, cJSON_GetObjectItem(recipe->root, "specs"))
        TRY(add_words(list, (const char *const[]){"--spec", arm->valuestring, NULL}));
    return HEED_OK;
}

/* A line for the model's own attention, then one for each spec. */
static heed_status evaluate(heed_recipe *recipe, int seed, const char *work)
{
    words list = {.count = 0};
    cJSON *lines = NULL;
    heed_status status = evaluation(recipe, seed, &list);
    if (!status)
        status = run_words(&list, work, &lines);
    const cJSON *arm = cJSON_GetObjectItem(recipe->root, "specs")->child;
    if (!status &&
        cJSON_GetArraySize(lines) != 1 + cJSON_GetArraySize(cJSON_GetObjectItem(recipe->root, "specs")))
        status = heed_fail(HEED_INVALID, "heed eval gave %d rows", cJSON_GetArraySize(lines));
    for (const char *name = "own"; !status && name;
         name = arm ? arm->string : NULL, arm = arm ? arm->next : NULL) {
        cJSON *row = cJSON_DetachItemFromArray(lines, 0);
        cJSON_DeleteItemFromObject(row, "tasks");
        status = keep_measures(recipe, name, row);
    }
    cJSON_Delete(lines);
    free_words(&list);
    return status;
}

static heed_status write_texts(const heed_recipe *recipe, const char *work)
{
    const cJSON *text;
    size_t size;
    const char *book = heed_book(&size);
    cJSON_ArrayForEach(text, cJSON_GetObjectItem(recipe->root, "texts"))
    {
        const double first = cJSON_GetNumberValue(cJSON_GetArrayItem(text, 0)),
                     end = cJSON_GetNumberValue(cJSON_GetArrayItem(text, 1));
        char path[RECIPE_PATH + 100];
        if (!(first >= 0.0 && first < end && end <= (double)size) || strchr(text->string, '/'))
            return heed_fail(HEED_FORMAT, "%s: the text '%.60s' is no piece of the book", recipe->name,
                             text->string);
        snprintf(path, sizeof path, "%s/%.90s", work, text->string);
        FILE *file = fopen(path, "wb");
        if (!file)
            return heed_fail(HEED_IO, "%s: cannot be written: %s", path, strerror(errno));
        fwrite(book + (size_t)first, 1, (size_t)(end - first), file);
        fclose(file);
    }
    return HEED_OK;
}

/* Words between blanks; '...' keeps blanks together, {seed} is the number of the seed. */
static heed_status split(const char *line, int seed, words *list)
{
    while (*(line += strspn(line, " "))) {
        char word[1000];
        size_t size = 0;
        bool quoted = false;
        for (; *line && (quoted || *line != ' ') && size < sizeof word - 1; line++) {
            if (*line == '\'')
                quoted = !quoted;
            else if (!strncmp(line, "{seed}", 6) && size + 12 < sizeof word) {
                size += (size_t)snprintf(word + size, 12, "%d", seed);
                line += 5;
            } else
                word[size++] = *line;
        }
        word[size] = 0;
        TRY(add_word(list, word));
    }
    return HEED_OK;
}

/* Comparisons are of numbers; what a command lists besides, as every unit of a text, is not for keeping. */
static void drop_lists(cJSON *object)
{
    for (cJSON *child = object->child, *next; child; child = next) {
        next = child->next;
        if (cJSON_IsArray(child))
            cJSON_Delete(cJSON_DetachItemViaPointer(object, child));
        else
            drop_lists(child);
    }
}

static heed_status command(heed_recipe *recipe, const cJSON *arm, int seed, const char *work)
{
    const cJSON *first = cJSON_GetObjectItem(recipe->root, "seed");
    words list = {.count = 0};
    cJSON *lines = NULL, *last = NULL;
    const char *model = recipe_text(recipe, "model");
    heed_status status = split(arm->valuestring, (first ? (int)first->valuedouble : 1) + seed, &list);
    if (!status && *model)
        status = add_words(&list, (const char *const[]){"-m", model, NULL});
    if (!status)
        status = add_word(&list, "--json");
    if (!status)
        status = add_threads(&list, recipe);
    if (!status)
        status = run_words(&list, work, &lines);
    if (!status && !(last = cJSON_DetachItemFromArray(lines, cJSON_GetArraySize(lines) - 1)))
        status = heed_fail(HEED_INVALID, "the command '%.60s' measured nothing", arm->string);
    if (!status) {
        drop_lists(last);
        status = keep_measures(recipe, arm->string, last);
    }
    cJSON_Delete(lines);
    free_words(&list);
    return status;
}

static heed_status measure(heed_recipe *recipe, const char *work)
{
    const cJSON *commands = cJSON_GetObjectItem(recipe->root, "commands"), *arm;
    recipe->measured = cJSON_CreateObject();
    if (cJSON_GetObjectItem(recipe->root, "train"))
        return train_all(recipe, work);
    if (cJSON_GetObjectItem(recipe->root, "calibrate"))
        TRY(calibrate(recipe, work));
    for (int seed = 0; seed < recipe->seeds && !commands; seed++)
        TRY(evaluate(recipe, seed, work));
    for (int seed = 0; seed < recipe->seeds && commands; seed++) {
        TRY(write_texts(recipe, work));
        cJSON_ArrayForEach(arm, commands) TRY(command(recipe, arm, seed, work));
    }
    return HEED_OK;
}

bool recipe_can_run(const heed_recipe *recipe)
{
    const char *model = recipe_text(recipe, "model");
    return !*model || !recipe_run_heed((const char *const[]){"info", model, NULL}, ".", NULL);
}

heed_status recipe_measure(heed_recipe *recipe)
{
    char work[RECIPE_PATH];
    if (recipe->keep) {
        char kept[RECIPE_PATH];
        if (mkdir(recipe->keep, 0777) && errno != EEXIST)
            return heed_fail(HEED_IO, "%s: cannot be made: %s", recipe->keep, strerror(errno));
        if (snprintf(kept, sizeof kept, "%.900s/%.150s", recipe->keep, recipe->name) >= RECIPE_PATH ||
            (mkdir(kept, 0777) && errno != EEXIST) || !realpath(kept, work))
            return heed_fail(HEED_IO, "%s: cannot be made: %s", kept, strerror(errno));
        return measure(recipe, work);
    }
    TRY(recipe_temporary(work, "recipe"));
    if (!mkdtemp(work))
        return heed_fail(HEED_IO, "%s: cannot be made: %s", work, strerror(errno));
    const heed_status status = measure(recipe, work);
    remove_folder(work);
    if (recipe_interrupted())
        raise(SIGINT);
    return status;
}
