/* A folder of a test program's own below /tmp. */
#ifndef HEED_SUPPORT_FOLDER_H
#define HEED_SUPPORT_FOLDER_H

/* Its path, once made. */
extern char test_folder[];

/* As set-up and tear-down of a group of tests; 0, or -1. */
int test_folder_make(void **state);
int test_folder_remove(void **state);

#endif
