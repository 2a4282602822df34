/* Files that appear whole or not at all: written under another name in the same folder and renamed when
 * complete.
 *
 * A device or a pipe cannot be replaced, so it is written to. Through symbolic links, what they point at is
 * replaced and not the link.
 */
#ifndef HEED_BASE_OUTPUT_H
#define HEED_BASE_OUTPUT_H

#include <heed/base.h>

typedef struct heed_output {
    const char *path; /* as given; must outlive the output */
    char *real;       /* behind links; NULL: the same */
    char *temporary;  /* NULL when `path` itself is written to */
    int descriptor;
    uint64_t written; /* bytes so far, those in `buffer` too */
    unsigned char *buffer;
    size_t buffered;
} heed_output;

/* HEED_IO when the place cannot be written to. */
heed_status heed_output_open(heed_output *output, const char *path);
heed_status heed_output_write(heed_output *output, const void *data, size_t bytes);
/* Zeros up to a multiple of `alignment`. */
heed_status heed_output_pad(heed_output *output, uint64_t alignment);

/* Ends it, if it was opened: keeps the file when `status` is HEED_OK and everything arrived, else removes
 * what was written. Returns `status`, or HEED_IO. */
heed_status heed_output_close(heed_output *output, heed_status status);

#endif
