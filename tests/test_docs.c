/* docs/spec.md says what a spec prints as and how a wrong one is refused: in its ```spec blocks each text is
 * followed by a line "=> canonical text" or "!! message". */
#include <heed/attend.h>

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

static void examples_on_the_page_of_specs_hold(void **state)
{
    (void)state;
    FILE *page = fopen(HEED_TEST_DATA "/../docs/spec.md", "r");
    assert_non_null(page);
    char line[1024], text[1024] = "", printed[1024];
    bool inside = false;
    int held = 0;
    while (fgets(line, sizeof line, page)) {
        line[strcspn(line, "\n")] = 0;
        if (!strncmp(line, "```", 3)) {
            inside = !strcmp(line, "```spec");
            continue;
        }
        if (!inside || !*line)
            continue;
        if (strncmp(line, "=> ", 3) && strncmp(line, "!! ", 3)) {
            strcpy(text, line);
            continue;
        }
        const bool refused = line[0] == '!';
        const heed_status status = heed_spec_canonical(text, NULL, printed, sizeof printed);
        const char *said = status == HEED_OK ? printed : heed_message();
        if ((status != HEED_OK) != refused || strcmp(said, line + 3))
            fail_msg("'%s': the page says\n%s, heed says\n%s", text, line, said);
        held++;
    }
    fclose(page);
    assert_true(held > 10);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(examples_on_the_page_of_specs_hold)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
