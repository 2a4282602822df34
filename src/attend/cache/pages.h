/* What storage forms share whose pages change as they age. */
#ifndef HEED_CACHE_PAGES_FORM_H
#define HEED_CACHE_PAGES_FORM_H

#include "attend/form.h"
#include <heed/policy.h>

#define HEED_COUNT_OF_KEYS(called, by_default, said)                                                         \
    {                                                                                                        \
        .name = called, .kind = HEED_ARG_INT, .value = by_default, .least = 0, .most = INFINITY,             \
        .summary = said                                                                                      \
    }

#define HEED_BITS_ARG(called, by_default, said)                                                              \
    {                                                                                                        \
        .name = called, .kind = HEED_ARG_INT, .value = by_default, .least = 2, .most = 16, .summary = said   \
    }

/* Whether an argument of bits is one of those that there is storage for. */
static inline heed_status heed_check_bits(const heed_form_state *form, int arg, int count, const int *bits)
{
    const int asked = heed_arg_int(form, arg);
    bool right = false;
    for (int i = 0; i < count; i++)
        right |= bits[i] == asked;
    return right ? HEED_OK
                 : heed_fail(HEED_INVALID, "cache=%s: %s is %d, it must be 16, %s4 or 2", form->form->name,
                             form->form->args[arg].name, asked, count > 3 ? "8, " : "");
}

/* Pages that hold any of the first `first` keys stay as they came. */
static inline bool heed_page_stays(const heed_page_state *page, int64_t first)
{
    return page->first < first;
}

#endif
