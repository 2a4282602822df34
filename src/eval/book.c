#include "eval/book.h"

/* The text stands in the program as it stands in the file. */
__asm__(".section .rodata\n"
        ".balign 16\n"
        "heed_book_begin:\n"
        ".incbin \"" HEED_TEXTS "/alice.txt\"\n"
        "heed_book_end:\n"
        ".byte 0\n"
        ".text\n");

extern const char heed_book_begin[] __attribute__((visibility("hidden")));
extern const char heed_book_end[] __attribute__((visibility("hidden")));

const char *heed_book(size_t *size)
{
    *size = (size_t)(heed_book_end - heed_book_begin);
    return heed_book_begin;
}
