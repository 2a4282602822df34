#include "model/looks_like.h"

#include <ctype.h>
#include <string.h>
#include <strings.h>

typedef struct signature {
    const char *start;
    size_t length;
    const char *what;
} signature;

#define SIGNATURE(bytes, what)                                                                               \
    {                                                                                                        \
        bytes, sizeof bytes - 1, what                                                                        \
    }

static const signature signatures[] = {
    SIGNATURE("version https://git-lfs", "a Git LFS pointer: fetch the file itself with `git lfs pull`"),
    SIGNATURE("GGUF", "a GGUF file"),
    SIGNATURE("PK\003\004", "a zip archive, as PyTorch checkpoints are"),
    SIGNATURE("\200\002", "a Python pickle"),
    SIGNATURE("\200\003", "a Python pickle"),
    SIGNATURE("\200\004", "a Python pickle"),
    SIGNATURE("\200\005", "a Python pickle"),
    SIGNATURE("\223NUMPY", "a NumPy array"),
    SIGNATURE("\211HDF\r\n", "an HDF5 file"),
    SIGNATURE("\037\213", "a gzip archive"),
    SIGNATURE("\050\265\057\375", "a zstd archive"),
    SIGNATURE("tjgg", "a GGML file from before GGUF: convert it with the tools of its time"),
    SIGNATURE("fmgg", "a GGML file from before GGUF: convert it with the tools of its time"),
    SIGNATURE("lmgg", "a GGML file from before GGUF: convert it with the tools of its time"),
    SIGNATURE("\177ELF", "a program"),
};

static const signature texts[] = {
    SIGNATURE("<!doctype", "a web page"),
    SIGNATURE("<html", "a web page"),
    SIGNATURE("<head", "a web page"),
    SIGNATURE("<?xml", "an XML document, perhaps a server's error message"),
    SIGNATURE("{", "JSON text, perhaps the index of a model in several files"),
};

const char *heed_looks_like(const unsigned char *start, size_t size)
{
    if (size == 0)
        return "an empty file";
    for (size_t i = 0; i < sizeof signatures / sizeof *signatures; i++)
        if (size >= signatures[i].length && !memcmp(start, signatures[i].start, signatures[i].length))
            return signatures[i].what;
    size_t skip =
        size >= 3 && !memcmp(start, "\357\273\277", 3) ? 3 : 0; /* the mark that some editors write first */
    while (skip < size && isspace(start[skip]))
        skip++;
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++)
        if (size - skip >= texts[i].length &&
            !strncasecmp((const char *)start + skip, texts[i].start, texts[i].length))
            return texts[i].what;
    return NULL;
}
