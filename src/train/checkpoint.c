/* The whole state of a run in a safetensors file: weights, their averages, the optimiser's state, the number
 * of steps done and the config's text. */
#include "base/try.h"
#include "model/safetensors.h"
#include "train/schedule.h"
#include "train/trainer.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Keys that say nothing about the weights, or nothing about those so far (which is looked at elsewhere): a
 * run may go on with others. */
static bool may_differ(const char *key)
{
    static const char *const free_keys[] = {"eval_every", "eval_sequences", "save_every", "log_every",
                                            "steps",      "cooldown",       "eval_data",  "eval_context"};
    for (size_t i = 0; i < sizeof free_keys / sizeof *free_keys; i++)
        if (!strcmp(key, free_keys[i]))
            return true;
    return false;
}

static char *config_text(const heed_train_config *config)
{
    const size_t size = heed_train_config_print(config, NULL, 0) + 1;
    char *text = malloc(size);
    if (text)
        heed_train_config_print(config, text, size);
    return text;
}

heed_status heed_trainer_save(const heed_trainer *trainer, const char *path)
{
    const int count = heed_trainer_tensors(trainer);
    int64_t steps = heed_trainer_steps(trainer);
    int64_t base = heed_trainer_base(trainer) ? (int64_t)heed_trainer_base(trainer)->fingerprint : 0;
    const int64_t one[] = {1};
    heed_trainer_tensor *tensor = calloc((size_t)count + 1, sizeof *tensor);
    heed_named_tensor *named = calloc((size_t)count + 3, sizeof *named);
    char *config = config_text(heed_trainer_config(trainer));
    heed_status status = HEED_OK;
    if (!tensor || !named || !config)
        status = heed_fail(HEED_NO_MEMORY, "%s: no memory to write it", path);
    for (int i = 0; i < count && !status; i++) {
        tensor[i] = heed_trainer_tensor_at(trainer, i);
        named[i] = (heed_named_tensor){
            tensor[i].name, heed_tensor_dense(tensor[i].data, HEED_F32, tensor[i].rank, tensor[i].shape)};
    }
    if (!status) {
        const int64_t length[] = {(int64_t)strlen(config)};
        named[count] = (heed_named_tensor){"steps", heed_tensor_dense(&steps, HEED_I64, 1, one)};
        named[count + 1] = (heed_named_tensor){"config", heed_tensor_dense(config, HEED_U8, 1, length)};
        named[count + 2] = (heed_named_tensor){"base", heed_tensor_dense(&base, HEED_I64, 1, one)};
        status = heed_safetensors_write(path, named, count + 2 + (base != 0), NULL);
    }
    free(tensor);
    free(named);
    free(config);
    return status;
}

static heed_status read_config(const heed_safetensors *file, const char *path, char **text)
{
    const heed_file_tensor *tensor = heed_safetensors_find(file, "config");
    *text = NULL;
    if (!tensor || tensor->type != HEED_U8 || tensor->bytes > 1 << 20)
        return heed_fail(HEED_FORMAT, "%s: this is no checkpoint of a training run", path);
    *text = calloc(tensor->bytes + 1, 1);
    if (!*text)
        return heed_fail(HEED_NO_MEMORY, "%s: no memory to read it", path);
    const heed_status status = heed_safetensors_read(file, tensor, *text);
    if (status) {
        free(*text);
        *text = NULL;
    }
    return status;
}

heed_status heed_checkpoint_config(const char *path, char **text)
{
    heed_safetensors *file;
    TRY(heed_safetensors_open(&file, path));
    const heed_status status = read_config(file, path, text);
    heed_safetensors_close(file);
    return status;
}

/* Each line of one text that is not in the other, unless its key may differ. */
static heed_status all_lines_in(const char *lines, const char *in, const char *path, const char *whose)
{
    while (*lines) {
        const size_t length = strcspn(lines, "\n");
        char line[1400], key[64];
        snprintf(line, sizeof line, "%.*s", (int)length, lines);
        snprintf(key, sizeof key, "%.*s", (int)strcspn(line, " ="), line);
        const size_t size = strlen(line);
        bool found = may_differ(key);
        for (const char *at = in; *at && !found; at += strcspn(at, "\n"), at += *at == '\n')
            found = !strncmp(at, line, size) && (at[size] == '\n' || !at[size]);
        if (!found)
            return heed_fail(HEED_INVALID, "%s: %s was written with another %s: %s says '%s'", path,
                             "the checkpoint", key, whose, line);
        lines += length + (lines[length] == '\n');
    }
    return HEED_OK;
}

static heed_status read_tensor(const heed_safetensors *file, const heed_trainer_tensor *to, const char *path)
{
    const heed_file_tensor *tensor = heed_safetensors_find(file, to->name);
    if (!tensor)
        return heed_fail(HEED_FORMAT, "%s: it has no %s, so it is the checkpoint of another model", path,
                         to->name);
    bool fits = tensor->type == HEED_F32 && tensor->rank == to->rank;
    for (int d = 0; fits && d < to->rank; d++)
        fits = tensor->shape[d] == to->shape[d];
    if (!fits)
        return heed_fail(HEED_FORMAT,
                         "%s: %s has %lld numbers in %d dimensions, not the shape that this model needs",
                         path, to->name, (long long)(tensor->bytes / sizeof(float)), tensor->rank);
    return HEED_OK;
}

/* A checkpoint has what learned; the rest must be the same base. */
static heed_status check_base(const heed_trainer *trainer, const heed_safetensors *file, const char *path)
{
    const heed_base *base = heed_trainer_base(trainer);
    const heed_file_tensor *tensor = heed_safetensors_find(file, "base");
    int64_t fingerprint = 0;
    if (!base)
        return HEED_OK;
    if (tensor && tensor->type == HEED_I64 && tensor->bytes == sizeof fingerprint)
        TRY(heed_safetensors_read(file, tensor, &fingerprint));
    return fingerprint == (int64_t)base->fingerprint
               ? HEED_OK
               : heed_fail(HEED_INVALID, "%s: the checkpoint went on from another model than %s", path,
                           heed_model_file_path(base->file));
}

static heed_status read_steps(const heed_safetensors *file, const char *path, int64_t *done)
{
    const heed_file_tensor *steps = heed_safetensors_find(file, "steps");
    if (!steps || steps->type != HEED_I64 || steps->bytes != sizeof *done)
        return heed_fail(HEED_FORMAT, "%s: it does not say how many steps were done", path);
    TRY(heed_safetensors_read(file, steps, done));
    return *done < 0 ? heed_fail(HEED_FORMAT, "%s: %lld steps done", path, (long long)*done) : HEED_OK;
}

static heed_status read_all(heed_trainer *trainer, const heed_safetensors *file, const char *path)
{
    TRY(check_base(trainer, file, path));
    for (int i = 0; i < heed_trainer_tensors(trainer); i++) {
        const heed_trainer_tensor to = heed_trainer_tensor_at(trainer, i);
        TRY(read_tensor(file, &to, path));
    }
    for (int i = 0; i < heed_trainer_tensors(trainer); i++) {
        const heed_trainer_tensor to = heed_trainer_tensor_at(trainer, i);
        TRY(heed_safetensors_read(file, heed_safetensors_find(file, to.name), to.data));
    }
    return HEED_OK;
}

/* A run may become longer or shorter as long as its rate does not yet depend on that. */
static heed_status same_rates(const heed_trainer *trainer, const char *theirs, int64_t done, const char *path)
{
    heed_train_config config;
    heed_train_config_start(&config);
    TRY(heed_train_config_read(&config, theirs, path));
    const heed_schedule now = heed_schedule_of(heed_trainer_config(trainer)),
                        then = heed_schedule_of(&config);
    if (heed_schedules_agree(&now, &then, done))
        return HEED_OK;
    return heed_fail(HEED_INVALID,
                     "%s: the checkpoint is of step %lld of %lld, and with steps = %lld the rate would have "
                     "been another; a "
                     "constant schedule can be made longer, and a trapezoid before its cooldown",
                     path, (long long)done, (long long)config.steps, (long long)now.steps);
}

heed_status heed_trainer_load(heed_trainer *trainer, const char *path)
{
    heed_safetensors *file;
    TRY(heed_safetensors_open(&file, path));
    int64_t done = 0;
    char *theirs = NULL, *ours = config_text(heed_trainer_config(trainer));
    heed_status status =
        ours ? read_config(file, path, &theirs) : heed_fail(HEED_NO_MEMORY, "%s: no memory", path);
    if (!status)
        status = all_lines_in(theirs, ours, path, "it");
    if (!status)
        status = all_lines_in(ours, theirs, path, "this run");
    if (!status)
        status = read_steps(file, path, &done);
    if (!status)
        status = same_rates(trainer, theirs, done, path);
    if (!status)
        status = read_all(trainer, file, path);
    if (!status)
        heed_trainer_set_steps(trainer, done);
    free(theirs);
    free(ours);
    heed_safetensors_close(file);
    return status;
}
