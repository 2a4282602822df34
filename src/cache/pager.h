/* Pages in a file, of which so many are in memory as a budget allows.
 *
 * The file has no name and goes with the process. It is mapped as a whole, so pages are read and written
 * where they lie; what is not in memory comes back by itself when it is touched. The pager knows which pages
 * were touched, asks for those that will be, and takes others out of memory: no choice of its changes a
 * number. Touching may be said by any thread.
 */
#ifndef HEED_CACHE_PAGER_H
#define HEED_CACHE_PAGER_H

#include <heed/base.h>
#include <pthread.h>

typedef struct heed_pager {
    char *memory; /* [pages][page_bytes], the file; NULL: there is no pager */
    size_t page_bytes;
    int64_t pages;
    int64_t backed; /* pages from the first on for which the file has room on its disk */
    int64_t most;   /* pages in memory */
    int64_t recent; /* so many touched last stay: somebody may be reading them */
    int file;
    const char *folder; /* for messages */
    int32_t *listed;    /* [pages] those in memory, in any order, */
    int32_t *at;        /* [pages] and where in this list; -1: not in memory */
    uint64_t *touched;  /* [pages] when, in touches */
    int64_t resident;
    uint64_t clock, dice;
    uint64_t fetched; /* pages that came back */
    pthread_mutex_t lock;
} heed_pager;

/* What a pager needs at least. */
int64_t heed_pager_least(int64_t recent);

/* A file in `folder`, which must lie on a disk, for `pages` pages of whole pages of the system's; `recent` as
 * above. HEED_IO where it cannot be made. */
heed_status heed_pager_open(heed_pager *pager, const char *folder, size_t page_bytes, int64_t pages,
                            int64_t most, int64_t recent);
void heed_pager_close(heed_pager *pager);

/* Room on the disk for the first `pages` pages. HEED_IO, with nothing changed, where it is full. */
heed_status heed_pager_back(heed_pager *pager, int64_t pages);

/* A page is about to be read or written. */
void heed_pager_touch(heed_pager *pager, int32_t page);
/* A page is full: it may begin to go to the disk. */
void heed_pager_filled(heed_pager *pager, int32_t page);

#endif
