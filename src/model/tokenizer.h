/* The tokeniser of a model file that is open. */
#ifndef HEED_MODEL_TOKENIZER_H
#define HEED_MODEL_TOKENIZER_H

#include "model/file.h"

#include <heed/tokenizer.h>

/* As heed_tokenizer_load. The tokeniser keeps nothing of the file. */
heed_status heed_tokenizer_from_file(heed_tokenizer **tokenizer, const heed_model_file *file);

#endif
