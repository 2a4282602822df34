/* A text that is read in pieces by selectors that remember. */
#ifndef HEED_SUPPORT_PIECES_H
#define HEED_SUPPORT_PIECES_H

#include "support/gathered.h"

#include <heed/recall.h>

/* Queries first .. first + count - 1 of the first batch entry, whose keys before them were read with the same
 * memory of up to `room` keys; it gets its arrays when it has none. */
heed_status read_piece(gathered *g, const char *spec, int64_t first, int64_t count, int64_t room,
                       heed_memory *memory);

/* All of them one after the other from the first query on, none of which may fail. */
void read_pieces(gathered *g, const char *spec, const int64_t *pieces, size_t count, int64_t room,
                 heed_memory *memory);

#endif
