/**
 * @file base.h
 * Statuses, messages and version. Every call that can fail returns a heed_status; heed_message() gives the
 * sentence that goes with the last failure in the calling thread.
 */
#ifndef HEED_BASE_H
#define HEED_BASE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define HEED_VERSION_MAJOR 0
#define HEED_VERSION_MINOR 1
#define HEED_VERSION_PATCH 0

#if defined(__GNUC__)
#define HEED_API __attribute__((visibility("default")))
#define HEED_PRINTF(text, first) __attribute__((format(printf, text, first)))
#else
#define HEED_API
#define HEED_PRINTF(text, first)
#endif

#ifdef __cplusplus
extern "C" {
#endif

/** What became of a call. */
typedef enum heed_status {
    HEED_OK = 0,
    HEED_INVALID,     /**< an argument, a shape or a spec is wrong */
    HEED_UNSUPPORTED, /**< understood, but cannot be done exactly, so it is refused */
    HEED_NO_MEMORY,   /**< memory could not be had */
    HEED_IO,          /**< a file could not be read or written */
    HEED_FORMAT,      /**< a file is not what it claims to be */
} heed_status;

/** The sentence for the last failure in this thread; "" when there was none. Valid until the next failure. */
HEED_API const char *heed_message(void);

/** Records the sentence for this thread and returns @p status, so that a form can write `return
 * heed_fail(...)`. */
HEED_API heed_status heed_fail(heed_status status, const char *format, ...) HEED_PRINTF(2, 3);

/** Version of the library that is running, as "major.minor.patch". */
HEED_API const char *heed_version(void);

#ifdef __cplusplus
}
#endif
#endif
