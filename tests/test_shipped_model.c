/* The small language model that lies in models/: it foresees English that it has not read, writes words, and
 * shows of forms and caches what random weights cannot: what they lose. */
#include "support/program.h"

#include <ctype.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MODEL HEED_TEST_DATA "/../models/austen.gguf"
#define BOOK HEED_TEST_DATA "/../src/eval/texts/alice.txt"

/* The end of Pride and Prejudice, which training kept for evaluation. */
static const char held_out[] = "Lady Catherine was extremely indignant on the marriage of her nephew; and as "
                               "she gave way to all the genuine frankness of "
                               "her character in her reply to the letter which announced its arrangement, "
                               "she sent him language so very abusive, especially "
                               "of Elizabeth, that for some time all intercourse was at an end. But at "
                               "length, by Elizabeth's persuasion, he was prevailed on "
                               "to overlook the offence, and seek a reconciliation; and, after a little "
                               "further resistance on the part of his aunt, her "
                               "resentment gave way, either to her affection for him, or her curiosity to "
                               "see how his wife conducted herself; and she "
                               "condescended to wait on them at Pemberley, in spite of that pollution which "
                               "its woods had received, not merely from the "
                               "presence of such a mistress, but the visits of her uncle and aunt from the "
                               "city.\n\nWith the Gardiners, they were always on "
                               "the most intimate terms. Darcy, as well as Elizabeth, really loved them; and "
                               "they were both ever sensible of the warmest "
                               "gratitude towards the persons who, by bringing her into Derbyshire, had been "
                               "the means of uniting them.\n";

/* Of the held-out text, with the model's own attention (NULL) or another. */
static double nll(const char *attention)
{
    if (attention)
        run("perplexity -m " MODEL " end.txt --json --threads 1 --attention '%s'", attention);
    else
        run("perplexity -m " MODEL " end.txt --json --threads 1");
    const char *found = strstr(ran.out, "\"nll\":");
    if (ran.status || !found)
        fail_msg("%s%s", ran.out, ran.err);
    return strtod(found + 6, NULL);
}

static void it_foresees_text_that_it_has_not_read(void **state)
{
    (void)state;
    write_text("end.txt", held_out);
    const double own = nll(NULL);
    if (!(own < 4.0)) /* of log(2048) = 7.6 */
        fail_msg("%g nats a token", own);
}

static void caches_and_windows_lose_what_they_should(void **state)
{
    (void)state;
    write_text("end.txt", held_out);
    const double own = nll(NULL), eight = nll("cache=q8"), two = nll("cache=q2"),
                 all = nll("where=causal & window(256)"), wide = nll("where=causal & window(32)"),
                 narrow = nll("where=causal & window(2)");
    if (!(fabs(all - own) < 1e-5 && fabs(eight - own) < 0.01 && narrow > own + 0.2 && narrow > wide &&
          fabs(wide - own) < 0.2 && fabs(two - own) > fabs(eight - own)))
        fail_msg("own %g, window of all %g, of 32 %g, of 2 %g; q8 %g, q2 %g", own, all, wide, narrow, eight,
                 two);
}

/* How many of the words in a text another text has too, as words. */
static double share_of_words(const char *text, const char *known)
{
    int words = 0, found = 0;
    for (const char *at = text; *at;) {
        char word[60] = " ";
        size_t size = 1;
        while (*at && !isalpha((unsigned char)*at))
            at++;
        for (; isalpha((unsigned char)*at); at++)
            if (size < sizeof word - 2)
                word[size++] = (char)tolower((unsigned char)*at);
        word[size] = ' ';
        word[size + 1] = 0;
        if (size == 1 || !*at) /* the last may be cut */
            continue;
        words++;
        found += strstr(known, word) != NULL;
    }
    assert_true(words > 20);
    return (double)found / words;
}

static void it_writes_words(void **state)
{
    (void)state;
    static char book[200000];
    FILE *file = fopen(BOOK, "r");
    assert_non_null(file);
    const size_t size = fread(book, 1, sizeof book - 1, file);
    fclose(file);
    for (size_t i = 0; i < size; i++)
        book[i] = isalpha((unsigned char)book[i]) ? (char)tolower((unsigned char)book[i]) : ' ';
    run("run -m " MODEL " -p 'The young lady was not at all' -n 120 --temperature 0.6 --seed 1 --threads 1");
    assert_int_equal(ran.status, 0);
    const double share = share_of_words(ran.out, book);
    if (share < 0.75) /* of Alice's, a book by another author; letters at random make one in twenty */
        fail_msg("%.2f of the words are known: %s", share, ran.out);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(it_foresees_text_that_it_has_not_read),
        cmocka_unit_test(caches_and_windows_lose_what_they_should),
        cmocka_unit_test(it_writes_words),
    };
    return cmocka_run_group_tests(tests, program_folder, program_folder_remove);
}
