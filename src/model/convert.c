#include "model/convert.h"
#include "model/convert_rows.h"

#include <string.h>

static bool ends_with(const char *name, const char *ending)
{
    const size_t length = strlen(name), end = strlen(ending);
    return length >= end && !strcmp(name + length - end, ending);
}

heed_status heed_convert(const heed_model_file *file, const char *path, const heed_convert_options *options,
                         heed_convert_report *report)
{
    const bool gguf = heed_model_file_format(file) == HEED_FORMAT_GGUF;
    *report = (heed_convert_report){0};
    if (ends_with(path, ".safetensors"))
        return heed_convert_to_safetensors(file, path, options, report);
    if (ends_with(path, ".gguf") && gguf)
        return heed_convert_to_gguf(file, path, options, report);
    if (ends_with(path, ".gguf"))
        return heed_convert_folder(file, path, options, report);
    return heed_fail(HEED_INVALID,
                     "%s: the name must end in .gguf or .safetensors, to say which format is meant", path);
}
