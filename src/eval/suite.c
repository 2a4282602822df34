#include "eval/suite.h"

#include <string.h>

enum { LEAST = 32 };

static const heed_suite suites[] = {
    {.name = "quick",
     .window = 512,
     .windows = 2,
     .text = 2048,
     .length = {512, 2048},
     .lengths = 2,
     .depths = 5,
     .trials = 1,
     .quizzes = 2,
     .written = 32},
    {.name = "long",
     .window = 512,
     .windows = 8,
     .text = 8192,
     .length = {1024, 4096, 8192},
     .lengths = 3,
     .depths = 9,
     .trials = 2,
     .quizzes = 4,
     .written = 128},
};
enum { SUITES = sizeof suites / sizeof *suites };

const char *heed_suite_word(int i)
{
    return i < SUITES ? suites[i].name : NULL;
}

static int64_t smaller(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

heed_status heed_suite_make(heed_suite *suite, const char *name, int64_t context, int64_t most)
{
    int i = 0;
    while (i < SUITES && strcmp(suites[i].name, name))
        i++;
    if (i == SUITES)
        return heed_fail(HEED_INVALID, "there is no suite '%s'", name);
    if (most > context)
        return heed_fail(HEED_INVALID, "texts of %lld tokens are longer than the model's context of %lld",
                         (long long)most, (long long)context);
    const int64_t longest = most ? most : smaller(suites[i].text, context);
    if (longest < LEAST)
        return heed_fail(HEED_INVALID, "texts of %lld tokens hold no task: at least %d are needed",
                         (long long)longest, LEAST);
    *suite = suites[i];
    suite->text = longest;
    suite->window = smaller(suite->window, longest / 2);
    suite->written = smaller(suite->written, longest / 4);
    suite->lengths = 0;
    for (int l = 0; l < suites[i].lengths && suites[i].length[l] < longest; l++)
        suite->length[suite->lengths++] = suites[i].length[l];
    suite->length[suite->lengths++] = longest;
    return HEED_OK;
}

double heed_suite_depth(const heed_suite *suite, int i)
{
    return suite->depths > 1 ? (double)i / (double)(suite->depths - 1) : 0.5;
}
