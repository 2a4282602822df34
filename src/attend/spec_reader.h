/* What the files of the spec parser and printer share. */
#ifndef HEED_ATTEND_SPEC_READER_H
#define HEED_ATTEND_SPEC_READER_H

#include "attend/spec.h"

#include <locale.h>

#define HEED_SPEC_BYTES 65536 /* longest text */
#define HEED_SPEC_DEPTH 200   /* brackets, ! and `over` inside each other */
#define HEED_SPEC_PARTS 1000  /* forms and marks of one expression, which bounds the depth of its tree */
#define HEED_OVER "over"      /* argument of every form of select: form(over=first) is first > form */

typedef enum heed_word_kind {
    HEED_WORD_END,
    HEED_WORD_NAME,
    HEED_WORD_NUMBER,  /* decimal, without sign */
    HEED_WORD_MARK,    /* one of = ; : , ( ) & | ! > + - */
    HEED_WORD_STRANGE, /* anything else: 4abc, $ */
} heed_word_kind;

/* A piece of the text; not ended by 0. */
typedef struct heed_word {
    heed_word_kind kind;
    const char *text;
    int length;
} heed_word;

typedef struct heed_reader {
    const char *text;
    heed_word now;      /* the word being looked at */
    const char *behind; /* end of the word before it */
    int fixed_column;   /* of every error, when this text is not what was written; else 0 */
    const heed_form *const *forms;
    heed_spec *spec;
    int first_node;                /* of the expression that is being read */
    int overs;                     /* `over` inside each other, where the reader stands */
    bool replaceable[HEED_STAGES]; /* the unprefixed clause is a combination's */
} heed_reader;

/* words: spec_words.c */
void heed_reader_start(heed_reader *reader, const char *text);
void heed_reader_next(heed_reader *reader);
heed_word heed_reader_peek(const heed_reader *reader);
bool heed_word_is(heed_word word, const char *name);
bool heed_word_is_mark(heed_word word, const char *marks); /* is it one of these? */
int heed_reader_column(const heed_reader *reader, const char *at);
/* Fails with "column N: " and the sentence. */
heed_status heed_reader_fail(const heed_reader *reader, const char *at, const char *format, ...)
    HEED_PRINTF(3, 4);
/* Fails because the present word is not `what`. */
heed_status heed_reader_expected(const heed_reader *reader, const char *format, ...) HEED_PRINTF(2, 3);

/* A word as it is quoted in a message: on one line, printable, cut when long. */
typedef struct heed_quote {
    char text[72];
} heed_quote;

heed_quote heed_quoted(const char *text, int length);
heed_quote heed_quoted_word(heed_word word);

/* the nearest known name: spec_names.c */
typedef struct heed_names {
    heed_word word;
    const char *nearest;
    int distance;
    char list[320]; /* all names, as far as they fit */
    bool full;
} heed_names;

typedef struct heed_hint {
    char text[480];
} heed_hint;

void heed_names_start(heed_names *names, heed_word word);
void heed_names_add(heed_names *names, const char *name);
/* "; the nearest is 'window'", with the list when that is not near at all; "" when there are no names. */
heed_hint heed_names_hint(const heed_names *names);

/* arguments: spec_arguments.c. Reads `(...)` if it stands there; `stage` is NULL for a combination. `over` is
 * NULL where there is no such argument; else it is HEED_ABSENT, and becomes the node of what is given. */
heed_status heed_read_arguments(heed_reader *reader, const char *stage, heed_word name, const heed_arg *args,
                                heed_value value[HEED_MAX_ARGS], int *over);

/* a user's own forms: spec_forms.c */
heed_status heed_check_forms(const heed_form *const *forms);
bool heed_stage_allows_none(heed_stage stage);
const heed_form *heed_find_form(const heed_form *const *forms, heed_stage stage, heed_word name);
heed_status heed_unknown_form(const heed_reader *reader, heed_stage stage);

/* expressions: spec_expression.c. The root is HEED_NONE for `none`. */
heed_status heed_read_over(heed_reader *reader, int *over); /* the form that stands behind `over=` */
heed_status heed_read_expression(heed_reader *reader, heed_stage stage, int *root);

/* prefixes and groups: spec_groups.c */
bool heed_at_prefix(const heed_reader *reader);
heed_status heed_read_prefixes(heed_reader *reader, heed_ranges *layers, heed_ranges *heads);
heed_status heed_place_clause(heed_reader *reader, const heed_ranges *layers, const heed_ranges *heads,
                              heed_stage stage, const char *at, int root);

/* text out: spec_print.c. Counts on when the room is used up. */
typedef struct heed_out {
    char *text;
    size_t size, length;
} heed_out;

void heed_put(heed_out *out, const char *text);
void heed_put_bytes(heed_out *out, const char *text, size_t length);
void heed_put_number(heed_out *out, double number); /* the shortest text that reads back as the same number */
void heed_put_value(heed_out *out, const heed_arg *arg, const heed_value *value);

/* Numbers are written with a point whatever the caller's locale says. */
typedef struct heed_plain_locale {
    locale_t plain, before;
} heed_plain_locale;

static inline heed_plain_locale heed_plain_locale_enter(void)
{
    const locale_t plain = newlocale(LC_ALL_MASK, "C", (locale_t)0);
    return (heed_plain_locale){plain, plain ? uselocale(plain) : (locale_t)0};
}

static inline void heed_plain_locale_leave(heed_plain_locale locale)
{
    if (!locale.plain)
        return;
    uselocale(locale.before);
    freelocale(locale.plain);
}

#endif
