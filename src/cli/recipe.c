/* heed recipe: experiments that say what a form should do, run and judged. */
#include "cli/recipe.h"
#include "base/clock.h"

#include <stdlib.h>
#include <string.h>

typedef struct recipe_options {
    bool list, quick, all, json, no_record;
    const char *folder, *keep, *model;
    int64_t threads, seeds;
} recipe_options;

static const cli_option options[] = {
    CLI_FLAG_OPTION(recipe_options, list, "list", "what recipes there are, and what came of them"),
    CLI_FLAG_OPTION(recipe_options, all, "all", "run all of them"),
    CLI_FLAG_OPTION(recipe_options, quick, "quick", "the short form of each; nothing is recorded"),
    CLI_FLAG_OPTION(recipe_options, no_record, "no-record", "leave results as they are"),
    CLI_WHOLE_OPTION(recipe_options, seeds, "seeds", 1, RECIPE_SEEDS, "runs of each arm; as the recipe says"),
    CLI_TEXT_OPTION(recipe_options, folder, "folder", "FOLDER",
                    "where recipes lie; `recipes` here or above the program"),
    CLI_TEXT_OPTION(recipe_options, model, "model", "MODEL",
                    "instead of the one that a recipe asks for; nothing is recorded"),
    CLI_TEXT_OPTION(recipe_options, keep, "keep", "FOLDER", "trained models, logs and curves stay there"),
    CLI_THREADS_OPTION(recipe_options, threads),
    CLI_FLAG_OPTION(recipe_options, json, "json", "each result as a line of JSON"),
    {0},
};

/* What became of the recipes of one call. */
typedef struct recipe_tally {
    int done, failed, skipped;
} recipe_tally;

static void print_side(const cJSON *one, const char *side)
{
    char with[40];
    snprintf(with, sizeof with, "%s_spread", side);
    const cJSON *spread = cJSON_GetObjectItem(one, with);
    printf("%.4g", cJSON_GetNumberValue(cJSON_GetObjectItem(one, side)));
    if (spread)
        printf(" ± %.2g", spread->valuedouble);
}

static void print_judged(const heed_recipe *recipe)
{
    const cJSON *one;
    cJSON_ArrayForEach(one, recipe->judged)
    {
        const bool holds = cJSON_IsTrue(cJSON_GetObjectItem(one, "holds"));
        printf("  %s  %s   (", holds ? "holds" : "fails",
               cJSON_GetStringValue(cJSON_GetObjectItem(one, "expectation")));
        print_side(one, "left");
        printf(", ");
        print_side(one, "right");
        if (recipe->seeds > 1) {
            printf("; difference ");
            print_side(one, "difference");
            printf("; in %.0f of %d", cJSON_GetNumberValue(cJSON_GetObjectItem(one, "seeds_that_hold")),
                   recipe->seeds);
        }
        printf(")\n");
    }
    printf("  %s, in %.0f s\n", recipe->holds ? "as published" : "not reproduced at this size",
           recipe->seconds);
}

static void print_report(const heed_recipe *recipe)
{
    cJSON *report = recipe_report(recipe);
    char *text = report ? cJSON_PrintUnformatted(report) : NULL;
    if (text)
        printf("%s\n", text);
    free(text);
    cJSON_Delete(report);
}

static heed_status run_recipe(const recipe_options *wanted, const char *folder, const char *name,
                              recipe_tally *tally)
{
    heed_recipe recipe;
    heed_status status = recipe_read(&recipe, folder, name, wanted->quick);
    if (status || !recipe.root)
        return status;
    recipe.threads = wanted->threads;
    recipe.keep = wanted->keep;
    recipe.seeds = wanted->seeds ? (int)wanted->seeds : recipe.seeds;
    if (wanted->model && *recipe_text(&recipe, "model"))
        status = recipe_set_model(&recipe, wanted->model);
    if (!wanted->json)
        printf("%s: %s\n", name, recipe_text(&recipe, "says"));
    fflush(stdout);
    if (status) {
        recipe_free(&recipe);
        return status;
    }
    if (!recipe_can_run(&recipe)) {
        if (!wanted->json)
            printf("  skipped: the model %s is not there\n", recipe_text(&recipe, "model"));
        tally->skipped++;
        recipe_free(&recipe);
        return HEED_OK;
    }
    const double start = heed_seconds();
    status = recipe_measure(&recipe);
    recipe.seconds = heed_seconds() - start;
    if (!status)
        status = recipe_judge(&recipe);
    if (!status && !wanted->quick && !wanted->no_record && !wanted->model)
        status = recipe_record(&recipe);
    if (!status && wanted->json)
        print_report(&recipe);
    else if (!status)
        print_judged(&recipe);
    fflush(stdout);
    tally->done += !status;
    tally->failed += !status && !recipe.holds;
    recipe_free(&recipe);
    return status;
}

/* A word stands for the recipe of that name, or else for all that have it in their names. */
static bool stands_for(const recipe_names *names, const char *word, const char *name)
{
    for (int i = 0; i < names->count; i++)
        if (!strcmp(names->name[i], word))
            return !strcmp(name, word);
    return strstr(name, word);
}

static bool is_asked_for(const recipe_names *names, const char *name, const cli_arguments *arguments)
{
    for (int i = 0; i < arguments->count; i++)
        if (stands_for(names, arguments->word[i], name))
            return true;
    return arguments->count == 0;
}

static heed_status list(const char *folder, const recipe_names *names, const cli_arguments *arguments)
{
    heed_status status = HEED_OK;
    for (int i = 0; i < names->count && !status; i++) {
        heed_recipe recipe;
        if (!is_asked_for(names, names->name[i], arguments))
            continue;
        status = recipe_read(&recipe, folder, names->name[i], false);
        if (status)
            break;
        const bool trained = cJSON_GetObjectItem(recipe.root, "train");
        printf("%-32s %-9s %-28s %s\n", recipe.name, trained ? "trained" : recipe_text(&recipe, "model"),
               recipe_verdict(folder, recipe.name), recipe_text(&recipe, "says"));
        recipe_free(&recipe);
    }
    return status;
}

/* A word that stands for no recipe; NULL: there is none. */
static const char *unknown_word(const recipe_names *names, const cli_arguments *arguments)
{
    for (int a = 0; a < arguments->count; a++) {
        bool found = false;
        for (int i = 0; i < names->count && !found; i++)
            found = strstr(names->name[i], arguments->word[a]);
        if (!found)
            return arguments->word[a];
    }
    return NULL;
}

static int run_all(const recipe_options *wanted, const char *folder, const recipe_names *names,
                   const cli_arguments *arguments)
{
    recipe_tally tally = {0, 0, 0};
    int broken = 0;
    for (int i = 0; i < names->count; i++)
        if (is_asked_for(names, names->name[i], arguments) &&
            run_recipe(wanted, folder, names->name[i], &tally)) {
            cli_fail_message("recipe");
            broken++;
        }
    if (!wanted->json && (tally.done + broken != 1 || tally.skipped)) {
        printf("%d recipes run, %d as published", tally.done + broken, tally.done - tally.failed);
        printf(tally.skipped ? ", %d skipped\n" : "\n", tally.skipped);
    }
    return broken ? CLI_ERROR : tally.failed ? 1 : tally.done ? CLI_OK : 77;
}

static int run(int argc, char **argv)
{
    recipe_options wanted = {.threads = 0};
    cli_arguments arguments;
    recipe_names names;
    char folder[RECIPE_PATH];
    int status;
    if (!cli_parse(&cli_recipe, argc, argv, &wanted, &arguments, 0, CLI_ARGUMENTS, &status))
        return status;
    if (!arguments.count && !wanted.all && !wanted.list)
        return cli_fail("recipe", "a recipe's name is missing, or --all; --list has them");
    if (recipe_folder(wanted.folder, folder) || recipe_names_read(&names, folder))
        return cli_fail_message("recipe");
    const char *unknown = unknown_word(&names, &arguments);
    if (unknown)
        status = cli_fail("recipe", "no recipe has '%.100s' in its name; --list has them", unknown);
    else if (wanted.list)
        status = list(folder, &names, &arguments) ? cli_fail_message("recipe") : CLI_OK;
    else
        status = run_all(&wanted, folder, &names, &arguments);
    recipe_names_free(&names);
    return status;
}

const cli_command cli_recipe = {
    .name = "recipe",
    .arguments = "[NAME...]",
    .summary = "experiments that say what a form should do: run, judged and recorded",
    .details =
        "Each recipe is a small file: models trained with a form and with a baseline, equal in everything "
        "else and over several\n"
        "seeds, or a pretrained model evaluated with both; and what was published of it as comparisons, "
        "which hold when they\n"
        "do in every seed. What was measured goes to recipes/results: JSON, a picture, a line of RESULTS.md "
        "with commit and\n"
        "processor. A name may be a part of one. Status 1: a comparison fails; 77: no recipe could be run.\n",
    .example = "heed recipe --list\n"
               "heed recipe copy --quick\n",
    .options = options,
    .run = run,
};
