#include "train/data.h"
#include "attend/spec_reader.h"
#include "base/npy.h"
#include "base/text.h"
#include "base/try.h"
#include "model/safetensors.h"
#include "train/marks.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char *const objectives[] = {"next",     "masked",      "class",      "distil",     "span",
                                         "sequence", "contrastive", "regression", "preference", "denoise"};

const char *heed_objective_name(int i)
{
    return i >= 0 && i < (int)(sizeof objectives / sizeof *objectives) ? objectives[i] : NULL;
}

bool heed_objective_has_class(heed_objective objective)
{
    return objective == HEED_OBJECTIVE_CLASS || objective == HEED_OBJECTIVE_DENOISE;
}

bool heed_objective_says_next(heed_objective objective)
{
    return objective == HEED_OBJECTIVE_NEXT || objective == HEED_OBJECTIVE_DISTIL ||
           objective == HEED_OBJECTIVE_SEQUENCE || objective == HEED_OBJECTIVE_PREFERENCE;
}

/* Length of the word at `text`, behind blanks. */
static size_t word(const char **text)
{
    *text += strspn(*text, " ");
    return strcspn(*text, "(),= ");
}

static heed_status find_task(heed_data *data, const char *name, size_t length)
{
    heed_names names;
    heed_names_start(&names, (heed_word){HEED_WORD_NAME, name, (int)length});
    for (int i = 0; heed_synthetic_at(i); i++) {
        const heed_synthetic *task = heed_synthetic_at(i);
        if (strlen(task->name) == length && !memcmp(task->name, name, length))
            data->task = task;
        heed_names_add(&names, task->name);
    }
    heed_names_add(&names, "text");
    return data->task ? HEED_OK
                      : heed_fail(HEED_INVALID, "data: unknown task '%s'%s",
                                  heed_quoted(name, (int)length).text, heed_names_hint(&names).text);
}

static heed_status find_argument(const heed_synthetic *task, const char *name, size_t length, int *which)
{
    heed_names names;
    heed_names_start(&names, (heed_word){HEED_WORD_NAME, name, (int)length});
    for (int i = 0; i < HEED_SYNTHETIC_ARGS && task->arg[i].name; i++) {
        if (strlen(task->arg[i].name) == length && !memcmp(task->arg[i].name, name, length)) {
            *which = i;
            return HEED_OK;
        }
        heed_names_add(&names, task->arg[i].name);
    }
    return heed_fail(HEED_INVALID, "data: %s has no argument '%s'%s", task->name,
                     heed_quoted(name, (int)length).text, heed_names_hint(&names).text);
}

/* "8", "length=8" */
static heed_status read_argument(heed_data *data, const char **text, int place)
{
    const heed_synthetic *task = data->task;
    size_t length = word(text);
    const char *name = *text, *behind = name + length + strspn(name + length, " ");
    int which = place;
    if (*behind == '=') {
        TRY(find_argument(task, name, length, &which));
        *text = behind + 1;
        length = word(text);
    } else if (place >= HEED_SYNTHETIC_ARGS || !task->arg[place].name) {
        return heed_fail(HEED_INVALID, "data: %s has only %d arguments", task->name, place);
    }
    char *end;
    errno = 0;
    const long long number = strtoll(*text, &end, 10);
    const heed_synthetic_arg *arg = &task->arg[which];
    if (errno || end != *text + length || length == 0 || number < arg->least || number > arg->most)
        return heed_fail(HEED_INVALID, "data: %s of %s is '%s': a whole number from %lld to %lld is needed",
                         arg->name, task->name, heed_quoted(*text, (int)length).text, (long long)arg->least,
                         (long long)arg->most);
    data->arg[which] = number;
    *text = end;
    return HEED_OK;
}

static heed_status read_arguments(heed_data *data, const char *text)
{
    text += strspn(text, " ");
    if (*text == '(') {
        text++;
        text += strspn(text, " ");
        for (int place = 0; *text != ')'; place++) {
            TRY(read_argument(data, &text, place));
            text += strspn(text, " ");
            if (*text != ',' && *text != ')')
                return heed_fail(HEED_INVALID, "data: a comma or a closing bracket is missing before '%s'",
                                 heed_quoted(text, (int)strnlen(text, 60)).text);
            text += *text == ',';
        }
        text++;
    }
    text += strspn(text, " ");
    if (*text)
        return heed_fail(HEED_INVALID, "data: '%s' stands behind the task",
                         heed_quoted(text, (int)strnlen(text, 60)).text);
    return HEED_OK;
}

heed_status heed_data_task(heed_data *data, const char *text)
{
    const size_t length = word(&text);
    TRY(find_task(data, text, length));
    for (int i = 0; i < HEED_SYNTHETIC_ARGS; i++)
        data->arg[i] = data->task->arg[i].usual;
    TRY(read_arguments(data, text + length));
    const char *wrong = data->task->wrong ? data->task->wrong(data->arg) : NULL;
    if (wrong)
        return heed_fail(HEED_INVALID, "data: %s: %s", data->task->name, wrong);
    data->vocabulary = data->task->vocabulary(data->arg) + (data->objective == HEED_OBJECTIVE_MASKED);
    data->context = data->task->length(data->arg);
    return HEED_OK;
}

heed_status heed_read_file(const char *path, char **text, size_t *size)
{
    FILE *file = fopen(path, "rb");
    if (!file)
        return heed_fail(HEED_IO, "%s: cannot be read: %s", path, strerror(errno));
    size_t room = 1 << 16;
    *size = 0;
    *text = malloc(room);
    while (*text) {
        const size_t got = fread(*text + *size, 1, room - *size, file);
        *size += got;
        if (got == 0)
            break;
        if (*size == room) {
            char *more = realloc(*text, room *= 2);
            if (!more)
                free(*text);
            *text = more;
        }
    }
    const bool failed = ferror(file);
    fclose(file);
    if (*text && !failed) {
        (*text)[*size] = 0; /* there is room: the last piece was not full */
        return HEED_OK;
    }
    const heed_status status = *text ? heed_fail(HEED_IO, "%s: cannot be read: %s", path, strerror(errno))
                                     : heed_fail(HEED_NO_MEMORY, "%s: no memory to read it", path);
    free(*text);
    *text = NULL;
    return status;
}

static heed_status check_tokens(heed_data *data, const char *path)
{
    for (int64_t i = 0; i < data->tokens; i++) {
        if (data->text[i] < 0 || data->text[i] >= 1 << 24)
            return heed_fail(HEED_FORMAT, "%s: token %lld is %d: from 0 to 16777215 is possible", path,
                             (long long)i, data->text[i]);
        data->vocabulary = data->text[i] >= data->vocabulary ? data->text[i] + 1 : data->vocabulary;
    }
    return HEED_OK;
}

static heed_status read_packed(heed_data *data, const char *path)
{
    heed_safetensors *file;
    TRY(heed_safetensors_open(&file, path));
    const heed_file_tensor *tensor = heed_safetensors_find(file, "tokens");
    heed_status status = HEED_OK;
    if (!tensor || tensor->type != HEED_I32 || tensor->rank != 1)
        status = heed_fail(HEED_FORMAT, "%s: a tensor `tokens` of I32 in one dimension is needed", path);
    if (!status)
        data->text = malloc(tensor->bytes + 1);
    if (!status && !data->text)
        status = heed_fail(HEED_NO_MEMORY, "%s: no memory to read it", path);
    if (!status)
        status = heed_safetensors_read(file, tensor, data->text);
    if (!status)
        data->tokens = tensor->shape[0];
    heed_safetensors_close(file);
    return status ? status : check_tokens(data, path);
}

static heed_status read_array(heed_data *data, const char *path)
{
    heed_npy array;
    TRY(heed_npy_read(&array, path));
    heed_status status = HEED_OK;
    if (array.kind == 'f')
        status = heed_fail(HEED_FORMAT, "%s: tokens are whole numbers, and these are floats", path);
    data->text = status ? NULL : malloc((size_t)array.count * sizeof *data->text + 1);
    if (!status && !data->text)
        status = heed_fail(HEED_NO_MEMORY, "%s: no memory for its tokens", path);
    for (int64_t i = 0; i < array.count && !status; i++) {
        const double token = heed_npy_at(&array, i);
        data->text[i] = token >= 0.0 && token < 1 << 24 ? (int32_t)token : -1;
    }
    data->tokens = array.count;
    heed_npy_free(&array);
    return status ? status : check_tokens(data, path);
}

static heed_status read_text(heed_data *data, const char *path, const heed_tokenizer *tokenizer,
                             double held_out)
{
    char *text;
    size_t size = 0;
    TRY(heed_read_file(path, &text, &size));
    const size_t part = (size_t)((double)size * held_out);
    data->vocabulary = 256;
    data->bytes_held_out = (int64_t)part;
    if (!tokenizer) {
        data->text = malloc((size + 1) * sizeof *data->text);
        for (size_t i = 0; data->text && i < size; i++)
            data->text[i] = (unsigned char)text[i];
        data->tokens = data->text ? (int64_t)size : 0;
        data->held_out = (int64_t)part;
        free(text);
        return data->text ? HEED_OK : heed_fail(HEED_NO_MEMORY, "%s: no memory for its tokens", path);
    }
    heed_tokens tokens = {.count = 0};
    heed_status status = heed_tokenize(tokenizer, text, size - part, 0, &tokens);
    const int64_t before = tokens.count;
    if (!status)
        status = heed_tokenize(tokenizer, text + (size - part), part, 0, &tokens);
    free(text);
    data->text = tokens.id;
    data->tokens = tokens.count;
    data->held_out = tokens.count - before;
    data->vocabulary = heed_tokenizer_size(tokenizer);
    return status;
}

bool heed_data_is_packed(const char *path)
{
    return heed_ends_with(path, ".safetensors") || heed_ends_with(path, ".npy");
}

/* Fields that every record must have. */
static unsigned needs_of(heed_objective objective)
{
    const unsigned text = 1u << HEED_FIELD_TEXT, answer = 1u << HEED_FIELD_ANSWER;
    switch (objective) {
    case HEED_OBJECTIVE_SEQUENCE:
    case HEED_OBJECTIVE_CONTRASTIVE:
        return text | answer;
    case HEED_OBJECTIVE_PREFERENCE:
        return text | answer | 1u << HEED_FIELD_OTHER;
    case HEED_OBJECTIVE_CLASS:
        return text | 1u << HEED_FIELD_LABEL;
    case HEED_OBJECTIVE_REGRESSION:
        return text | 1u << HEED_FIELD_NUMBER;
    default:
        return text;
    }
}

/* Marks stand behind the tokens. */
static void add_marks(heed_data *data)
{
    data->sentinel = data->vocabulary;
    if (data->objective == HEED_OBJECTIVE_SPAN)
        data->vocabulary += HEED_SENTINELS;
    data->vocabulary += data->objective == HEED_OBJECTIVE_MASKED;
}

heed_status heed_data_records(heed_data *data, const char *path, const heed_tokenizer *tokenizer,
                              double held_out)
{
    TRY(heed_records_read(&data->records, path, tokenizer, needs_of(data->objective)));
    const int64_t count = data->records.count;
    data->held_out = (int64_t)((double)count * held_out);
    data->held_out = data->held_out < 1 && held_out > 0.0 ? 1 : data->held_out;
    if (count - data->held_out < 1 || data->held_out < 1)
        return heed_fail(HEED_INVALID, "%s: %lld records are too few to train with some and judge by others",
                         path, (long long)count);
    data->vocabulary = tokenizer ? heed_tokenizer_size(tokenizer) : 257; /* 256 ends a text */
    data->end = tokenizer ? heed_tokenizer_special(tokenizer).eos : 256;
    add_marks(data);
    return HEED_OK;
}

heed_status heed_data_text(heed_data *data, const char *path, const heed_tokenizer *tokenizer,
                           double held_out)
{
    if (heed_data_is_packed(path)) {
        TRY(heed_ends_with(path, ".npy") ? read_array(data, path) : read_packed(data, path));
        data->held_out = (int64_t)((double)data->tokens * held_out);
    } else {
        TRY(read_text(data, path, tokenizer, held_out));
    }
    add_marks(data);
    return HEED_OK;
}

void heed_data_free(heed_data *data)
{
    free(data->text);
    data->text = NULL;
    heed_records_free(&data->records);
}

/* 15 % of the tokens are asked for. */
void heed_data_mask(const heed_data *data, heed_draw *draw, int64_t count, int32_t *token, int32_t *target)
{
    for (int64_t i = 0; i < count; i++) {
        const int64_t chance = heed_draw_below(draw, 2000),
                      other = heed_draw_below(draw, data->vocabulary - 1);
        target[i] = chance < 300 ? token[i] : -1;
        if (chance < 240)
            token[i] = (int32_t)data->vocabulary - 1;
        else if (chance < 270)
            token[i] = (int32_t)other;
    }
}

/* Training begins anywhere; evaluation goes through from the start of the held-out part. */
static void take_text(const heed_data *data, bool held_out, heed_draw *draw, uint64_t which, int64_t context,
                      int32_t *token, int32_t *target)
{
    const int64_t first = data->tokens - data->held_out;
    const int64_t from = held_out ? first + (int64_t)which * context : heed_draw_below(draw, first - context);
    for (int64_t i = 0; i < context; i++) {
        token[i] = data->text[from + i];
        target[i] = data->text[from + i + 1];
    }
}

void heed_data_make(const heed_data *data, bool held_out, uint64_t which, int64_t context, int32_t *token,
                    int32_t *target)
{
    /* streams: even numbers for training, odd ones for evaluation */
    heed_draw draw = {.seed = data->seed, .which = which << 1 | held_out};
    int32_t *all = target, last = -1;
    const int64_t whole = context;
    context = heed_marks_tokens(data, whole);
    if (!data->task) {
        take_text(data, held_out, &draw, which, context, token, target);
    } else {
        /* a class is the last target: room for all of them lies behind the tokens */
        if (heed_objective_has_class(data->objective))
            all = token + context;
        for (int64_t i = 0; i < context; i++) {
            token[i] = 0;
            all[i] = -1;
        }
        data->task->make(data->arg, &draw, token, all);
        for (int64_t i = 0; i < context; i++)
            last = all[i] >= 0 ? all[i] : last;
    }
    if (data->objective == HEED_OBJECTIVE_MASKED)
        heed_data_mask(data, &draw, context, token, target);
    if (heed_objective_has_class(data->objective))
        *target = last;
    heed_marks_put(data, whole, token, target);
}

int64_t heed_data_evaluations(const heed_data *data, int64_t context)
{
    context = heed_marks_tokens(data, context);
    if (data->records.count)
        return data->held_out;
    return data->task ? INT64_MAX : data->held_out > context ? (data->held_out - 1) / context : 0;
}
