/* Saved sequences: sections of one file, each with its length and its checksum. docs/sessions.md */
#ifndef HEED_MODEL_SESSION_FILE_H
#define HEED_MODEL_SESSION_FILE_H

#include "base/output.h"
#include "model/session.h"

#define HEED_SAVED_MAGIC "heedkept"
/* The second has sections of what layers carry along, and is written where there are some. */
enum { HEED_SAVED_VERSION = 1, HEED_SAVED_CARRYING };

/* Sections, in this order; HEED_SAVED_LAYER once a layer, HEED_SAVED_CARRIED
 * behind that of a layer which carries something along. */
enum heed_saved_section {
    HEED_SAVED_IDENTITY = 1,
    HEED_SAVED_TOKENS,
    HEED_SAVED_LAYER,
    HEED_SAVED_END,
    HEED_SAVED_CARRIED
};

/* FNV-1a of 64 bits; begin with HEED_SUM_START. http://www.isthe.com/chongo/tech/comp/fnv/ */
#define HEED_SUM_START UINT64_C(0xcbf29ce484222325)
static inline uint64_t heed_sum(uint64_t sum, const void *data, size_t bytes)
{
    const unsigned char *at = data;
    for (size_t i = 0; i < bytes; i++)
        sum = (sum ^ at[i]) * UINT64_C(0x100000001b3);
    return sum;
}

/* Lines that say what must be the same for what is saved to be of use: the model, how its products are
 * computed, and each layer's spec and types. Freed with free(); NULL without memory. */
char *heed_session_identity(const heed_session *session);

#endif
