/* Passes a failure on: the caller returns the status of a call that did not succeed. */
#ifndef HEED_BASE_TRY_H
#define HEED_BASE_TRY_H

#include <heed/base.h>

#define TRY(call)                                                                                            \
    do {                                                                                                     \
        const heed_status status_ = (call);                                                                  \
        if (status_ != HEED_OK)                                                                              \
            return status_;                                                                                  \
    } while (0)

#endif
