/* Files mapped for reading. */
#ifndef HEED_MODEL_MAPPING_H
#define HEED_MODEL_MAPPING_H

#include <heed/base.h>

typedef struct heed_mapping {
    const unsigned char *data; /* never NULL; of an empty file, nothing may be read */
    uint64_t size;
} heed_mapping;

/* Maps a regular file. `shown` is its path as it may stand in a sentence. HEED_IO, HEED_FORMAT (a directory,
 * a pipe). */
heed_status heed_map(heed_mapping *mapping, const char *path, const char *shown);
void heed_unmap(heed_mapping *mapping);

#endif
