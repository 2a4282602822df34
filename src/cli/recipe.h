/* Recipes: small files that say which forms are measured how, and what should come of it. heed recipe runs
 * them by the program's own commands and judges what they measure.
 */
#ifndef HEED_CLI_RECIPE_H
#define HEED_CLI_RECIPE_H

#include "cli/cli.h"

#include <cjson/cJSON.h>

enum { RECIPE_PATH = 1200, RECIPE_ARMS = 64, RECIPE_SEEDS = 100 };

/* Where recipes lie: `given`, or `recipes` in the current folder, beside the program or where it was
 * installed. */
heed_status recipe_folder(const char *given, char folder[RECIPE_PATH]);

/* Names of the recipes of a folder without ".json", in order; freed by recipe_names_free. */
typedef struct recipe_names {
    char **name;
    int count;
} recipe_names;
heed_status recipe_names_read(recipe_names *names, const char *folder);
void recipe_names_free(recipe_names *names);

typedef struct heed_recipe {
    const char *name;   /* its file's */
    cJSON *root;        /* owned */
    const char *folder; /* of all recipes */
    bool quick;         /* its `short` form is laid over the others */
    int seeds;          /* runs of each arm */
    int64_t threads;    /* 0: one a core */
    const char *keep;   /* folder that gets what arms leave behind; NULL: nothing is kept */
    cJSON *measured;    /* {arm: [{measure: number} a seed]}, owned */
    cJSON *judged;      /* what became of each expectation, owned */
    cJSON *calibrated;  /* lines of heed calibrate; NULL: none */
    bool holds;         /* all expectations, in every seed */
    double seconds;
} heed_recipe;

/* Reads a file and checks its fields. Of a quick run without a short form, `root` stays NULL. */
heed_status recipe_read(heed_recipe *recipe, const char *folder, const char *name, bool quick);
void recipe_free(heed_recipe *recipe);
const char *recipe_text(const heed_recipe *recipe, const char *field); /* "" where it has none */

/* Another model than its file says. */
heed_status recipe_set_model(heed_recipe *recipe, const char *model);
/* Whether the model that it asks for is there; a recipe without one always can be run. */
bool recipe_can_run(const heed_recipe *recipe);
/* Runs all arms and fills `measured`. */
heed_status recipe_measure(heed_recipe *recipe);

/* Judges all expectations by what was measured. */
heed_status recipe_judge(heed_recipe *recipe);
/* Mean and standard deviation (of the sample, 0 for one seed) of a measure; false: an arm or seed has none.
 */
typedef struct recipe_value {
    double mean, spread;
} recipe_value;
bool recipe_mean(const heed_recipe *recipe, const char *arm, const char *measure, recipe_value *value);

/* "form.accuracy": calls `use` for each such pair of an expectation. */
typedef struct recipe_side {
    double factor;
    char arm[64], measure[64]; /* "": it is a number */
} recipe_side;
typedef struct recipe_comparison {
    recipe_side left, right;
    char sign[3]; /* <, <=, >, >= or == */
} recipe_comparison;
heed_status recipe_read_comparison(const char *text, recipe_comparison *comparison);

/* results/NAME.json and NAME.png in the recipes' folder, and its RESULTS.md. */
heed_status recipe_record(const heed_recipe *recipe);
/* What was recorded of a recipe before, in words. */
const char *recipe_verdict(const char *folder, const char *name);
/* What is recorded of a run, freed by the caller; NULL: no memory. */
cJSON *recipe_report(const heed_recipe *recipe);

/* Runs `heed WORDS...` in a folder with its outputs kept out of sight. The last lines of JSON that it printed
 * go to `lines` (freed by the caller) as an array. Fails with the sentence that it said. */
heed_status recipe_run_heed(const char *const *words, const char *folder, cJSON **lines);
/* Whether the keyboard has stopped one. */
bool recipe_interrupted(void);
/* PATH of a new file or folder: $TMPDIR, or /tmp, and the name, whose XXXXXX are yet to be replaced. */
heed_status recipe_temporary(char path[RECIPE_PATH], const char *name);

/* The commit that the recipes' folder stands at, "" where none can be told. */
void recipe_commit(const char *folder, char commit[41]);

#endif
