#include "model/convert.h"
#include "base/text.h"
#include "model/convert_rows.h"

heed_status heed_convert(const heed_model_file *file, const char *path, const heed_convert_options *options,
                         heed_convert_report *report)
{
    const bool gguf = heed_model_file_format(file) == HEED_FORMAT_GGUF;
    *report = (heed_convert_report){0};
    if (heed_ends_with(path, ".safetensors"))
        return heed_convert_to_safetensors(file, path, options, report);
    if (heed_ends_with(path, ".gguf") && gguf)
        return heed_convert_to_gguf(file, path, options, report);
    if (heed_ends_with(path, ".gguf"))
        return heed_convert_folder(file, path, options, report);
    return heed_fail(HEED_INVALID,
                     "%s: the name must end in .gguf or .safetensors, to say which format is meant", path);
}
