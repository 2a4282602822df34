/* Where tests find the models that models/get fetches. */
#ifndef HEED_TEST_MODELS_H
#define HEED_TEST_MODELS_H

#include <stdbool.h>
#include <stddef.h>

/* What a test program returns when it could check nothing, so that CTest says "skipped". */
enum { TEST_SKIPPED = 77 };

/* The path of a file or folder of the store ("smollm2.gguf", "minilm"), from HEED_MODELS or ~/.cache/heed;
 * NULL, and a line on stderr, when it isn't there. Valid until the next call. */
const char *fetched_model(const char *name);

#endif
