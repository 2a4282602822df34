/* What the converters share. */
#ifndef HEED_MODEL_CONVERT_ROWS_H
#define HEED_MODEL_CONVERT_ROWS_H

#include "base/output.h"
#include "model/convert.h"
#include "model/gguf_write.h"
#include <string.h>

/* A tensor and what it becomes. */
typedef struct heed_conversion {
    const heed_model_tensor *from;
    heed_type type; /* HEED_TYPES: bytes as they are */
    int heads; /* above 0: rows of each head go from halves to neighbours, as GGUF files of llama have them */
    float shift; /* added to each number, as GGUF files of gemma have their norms */
    bool turned; /* [in, out] becomes [out, in] */
} heed_conversion;

typedef struct heed_convert_work {
    const heed_convert_options *options;
    heed_conversion *each; /* [count], in the order they are written */
    int count;
    uint64_t done, total; /* bytes */
} heed_convert_work;

/* A heed_tensor_source over `work`. */
heed_status heed_convert_source(void *work, int i, heed_output *output);

/* What a tensor of the file becomes by the wishes; counts it in the report. */
heed_status heed_convert_choose(const heed_model_tensor *tensor, bool embedding, bool matrix,
                                const heed_convert_options *options, heed_convert_report *report,
                                heed_type *type);

/* general.file_type: what most of the matrices are, by the numbers that readers of GGUF files know. */
bool heed_convert_file_type(heed_type type, uint32_t *number);

/* How a tensor is written to a GGUF file as `type` (HEED_TYPES: its own). */
heed_status heed_convert_describe(const heed_model_tensor *from, heed_type type, heed_gguf_tensor *to);

heed_status heed_convert_to_gguf(const heed_model_file *file, const char *path,
                                 const heed_convert_options *options, heed_convert_report *report);
heed_status heed_convert_to_safetensors(const heed_model_file *file, const char *path,
                                        const heed_convert_options *options, heed_convert_report *report);
/* A folder of safetensors of a known architecture, with its tokeniser. */
heed_status heed_convert_folder(const heed_model_file *file, const char *path,
                                const heed_convert_options *options, heed_convert_report *report);

#endif
