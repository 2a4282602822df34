/* Records of a file: JSON objects a line, or rows of CSV under a header. A record has up to three texts, as
 * tokens, and a class or a number. */
#ifndef HEED_TRAIN_RECORDS_H
#define HEED_TRAIN_RECORDS_H

#include <heed/tokenizer.h>

/* Which text: what is read; what is to follow or to be like it; what is not. */
enum { HEED_FIELD_TEXT, HEED_FIELD_ANSWER, HEED_FIELD_OTHER, HEED_FIELDS };
/* Behind them, as bits of what is needed. */
enum { HEED_FIELD_LABEL = HEED_FIELDS, HEED_FIELD_NUMBER };

typedef struct heed_records {
    int64_t count, room;
    int64_t (*end)[HEED_FIELDS]; /* [count] where each text's tokens end; they follow one another */
    int32_t *label;              /* [count] -1: none */
    float *number;               /* [count] */
    unsigned fields;             /* bit f: some record has it */
    heed_tokens tokens;
    char **class_name; /* [classes] in the order in which they come; whole numbers are classes themselves */
    int classes, class_room;
    int64_t most; /* tokens of the longest record */
} heed_records;

/* .jsonl and .csv; NULL: neither. */
bool heed_is_records(const char *path);

/* `needs`: bits of fields that every record must have. tokenizer NULL: bytes. HEED_FORMAT with the line that
 * is wrong. */
heed_status heed_records_read(heed_records *records, const char *path, const heed_tokenizer *tokenizer,
                              unsigned needs);
void heed_records_free(heed_records *records);

/* A text of a record; *count of its tokens. */
const int32_t *heed_record_text(const heed_records *records, int64_t record, int field, int64_t *count);

#endif
