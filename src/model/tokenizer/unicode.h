/* Characters by class, as the reference tokenisers class them. */
#ifndef HEED_MODEL_TOKENIZER_UNICODE_H
#define HEED_MODEL_TOKENIZER_UNICODE_H

#include <heed/base.h>

bool heed_is_space(int32_t character); /* Unicode's White_Space */
bool heed_is_word(int32_t character);  /* letters, marks, numbers, connectors */
bool heed_is_mark(int32_t character);
bool heed_is_nonspacing_mark(int32_t character);
bool heed_is_other(int32_t character); /* control, format, private */
bool heed_is_ideograph(int32_t character);
int32_t heed_lowercase(int32_t character, int32_t *second); /* *second is 0 but for one character */

#endif
