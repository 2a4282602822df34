/* Pictures in arrays, as records of a class each. */
#include "base/npy.h"
#include "base/try.h"
#include "train/data.h"

#include <stdlib.h>

static heed_status take(heed_data *data, const heed_npy *picture, const heed_npy *label, const char *path,
                        const char *labels)
{
    heed_records *all = &data->records;
    const int64_t count = picture->shape[0], each = count ? picture->count / count : 0;
    const double scale = picture->kind == 'f' ? 255.0 : 1.0;
    if (picture->rank < 3 || picture->rank > 4 || each < 1)
        return heed_fail(HEED_FORMAT, "%s: pictures are [n, height, width] or [n, height, width, channels]",
                         path);
    if (label->count != count || label->kind == 'f')
        return heed_fail(HEED_FORMAT, "%s: a whole number for each of %lld pictures is needed", labels,
                         (long long)count);
    all->end = malloc((size_t)count * sizeof *all->end);
    all->label = malloc((size_t)count * sizeof *all->label);
    all->number = calloc((size_t)count, sizeof *all->number);
    all->tokens.id = malloc((size_t)picture->count * sizeof *all->tokens.id);
    if (!all->end || !all->label || !all->number || !all->tokens.id)
        return heed_fail(HEED_NO_MEMORY, "%s: no memory for its pictures", path);
    for (int64_t i = 0; i < picture->count; i++) {
        const double value = heed_npy_at(picture, i) * scale;
        if (!(value >= 0.0 && value <= 255.0))
            return heed_fail(HEED_FORMAT, "%s: number %lld is %g: bytes, or floats from 0 to 1, are needed",
                             path, (long long)i, value / scale);
        all->tokens.id[i] = (int32_t)(value + 0.5);
    }
    for (int64_t i = 0; i < count; i++) {
        const double class = heed_npy_at(label, i);
        if (!(class >= 0.0 && class < 1 << 20))
            return heed_fail(HEED_FORMAT, "%s: class %lld is %g: from 0 to 1048575 is possible", labels,
                             (long long)i, class);
        all->label[i] = (int32_t) class;
        all->classes = all->label[i] >= all->classes ? all->label[i] + 1 : all->classes;
        for (int f = 0; f < HEED_FIELDS; f++)
            all->end[i][f] = (i + 1) * each;
    }
    all->tokens.count = picture->count;
    all->count = all->room = count;
    all->most = data->context = each;
    all->fields = 1u << HEED_FIELD_TEXT | 1u << HEED_FIELD_LABEL;
    return HEED_OK;
}

heed_status heed_data_pictures(heed_data *data, const char *path, const char *labels, double held_out)
{
    heed_npy picture, label;
    TRY(heed_npy_read(&picture, path));
    heed_status status = heed_npy_read(&label, labels);
    if (!status)
        status = take(data, &picture, &label, path, labels);
    heed_npy_free(&picture);
    heed_npy_free(&label);
    TRY(status);
    data->vocabulary = 256;
    data->held_out = (int64_t)((double)data->records.count * held_out);
    if (data->held_out < 1 || data->records.count - data->held_out < 1)
        return heed_fail(HEED_INVALID, "%s: %lld pictures are too few to train with some and judge by others",
                         path, (long long)data->records.count);
    return HEED_OK;
}
