#include "model/tokenizer/merges.h"

#include <stdlib.h>
#include <string.h>

heed_status heed_merges_make(heed_tokenizer *tokenizer, size_t count)
{
    if (count > INT32_MAX - 1 || !heed_merge_table_make(&tokenizer->merges, count))
        return heed_fail(HEED_NO_MEMORY, "no memory for %zu merges of the tokeniser", count);
    return HEED_OK;
}

heed_status heed_merges_add(heed_tokenizer *tokenizer, int64_t rank, const char *left, size_t left_size,
                            const char *right, size_t right_size)
{
    heed_bytes both = {0};
    heed_bytes_add(&both, left, left_size);
    heed_bytes_add(&both, right, right_size);
    if (both.failed) {
        free(both.data);
        return heed_fail(HEED_NO_MEMORY, "no memory for the tokeniser's merges");
    }
    const int32_t first = heed_text_table_find(&tokenizer->table, left, left_size);
    const int32_t second = heed_text_table_find(&tokenizer->table, right, right_size);
    const int32_t token = both.size ? heed_text_table_find(&tokenizer->table, both.data, both.size) : -1;
    free(both.data);
    if (first < 0 || second < 0 || token < 0)
        return heed_fail(
            HEED_FORMAT,
            "merge %lld of the tokeniser, '%.*s' with '%.*s', names a token that is none of the vocabulary",
            (long long)rank, (int)(left_size < 60 ? left_size : 60), left,
            (int)(right_size < 60 ? right_size : 60), right);
    heed_merge_table_add(&tokenizer->merges, first, second, (heed_merge){(int32_t)rank, token});
    return HEED_OK;
}

heed_status heed_merges_add_line(heed_tokenizer *tokenizer, int64_t rank, const char *line, size_t size)
{
    const char *space = size > 1 ? memchr(line + 1, ' ', size - 1) : NULL;
    if (!space)
        return heed_fail(HEED_FORMAT, "merge %lld of the tokeniser, '%.*s', has no space between its halves",
                         (long long)rank, (int)(size < 60 ? size : 60), line);
    const size_t left = (size_t)(space - line);
    return heed_merges_add(tokenizer, rank, line, left, space + 1, size - left - 1);
}
