/* Expectations: comparisons of numbers and measures, "form.accuracy > 0.9 * baseline.accuracy". */
#include "base/try.h"
#include "cli/recipe.h"

#include <ctype.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

static const char *skip(const char *text)
{
    return text + strspn(text, " ");
}

/* A number, arm.measure, or number [*] arm.measure, up to `end`. */
static bool read_side(const char *text, const char *end, recipe_side *side)
{
    char part[200], *at = part, *behind;
    const size_t length = (size_t)(end - text);
    *side = (recipe_side){.factor = 1.0};
    if (length >= sizeof part)
        return false;
    memcpy(part, text, length);
    part[length] = 0;
    at += strspn(at, " ");
    const double factor = strtod(at, &behind);
    const bool number = behind > at && isdigit((unsigned char)at[*at == '-']);
    if (number) {
        side->factor = factor;
        at = behind + strspn(behind, " ");
        if (*at == '*')
            at++;
        at += strspn(at, " ");
    }
    const size_t arm = strspn(at, "abcdefghijklmnopqrstuvwxyz_0123456789");
    if (!*at)
        return number;
    if (!arm || arm >= sizeof side->arm || at[arm] != '.')
        return false;
    memcpy(side->arm, at, arm);
    at += arm + 1;
    const size_t measure = strspn(at, "abcdefghijklmnopqrstuvwxyz_0123456789");
    if (!measure || measure >= sizeof side->measure || *skip(at + measure))
        return false;
    memcpy(side->measure, at, measure);
    return true;
}

heed_status recipe_read_comparison(const char *text, recipe_comparison *comparison)
{
    const char *sign = text + strcspn(text, "<>=");
    const size_t length = strspn(sign, "<>=");
    memset(comparison, 0, sizeof *comparison);
    if (length >= 1 && length <= 2)
        memcpy(comparison->sign, sign, length);
    static const char *const signs[] = {"<", "<=", ">", ">=", "=="};
    bool known = false;
    for (size_t i = 0; i < sizeof signs / sizeof *signs; i++)
        known = known || !strcmp(comparison->sign, signs[i]);
    if (!known || !read_side(text, sign, &comparison->left) ||
        !read_side(sign + length, text + strlen(text), &comparison->right))
        return heed_fail(HEED_FORMAT, "'%.150s' is no comparison of numbers and arm.measure", text);
    return HEED_OK;
}

static const cJSON *seed_of(const heed_recipe *recipe, const char *arm, int seed)
{
    return cJSON_GetArrayItem(cJSON_GetObjectItemCaseSensitive(recipe->measured, arm), seed);
}

static bool value_of(const heed_recipe *recipe, const recipe_side *side, int seed, double *value)
{
    const cJSON *found =
        *side->arm ? cJSON_GetObjectItemCaseSensitive(seed_of(recipe, side->arm, seed), side->measure) : NULL;
    if (*side->arm && !cJSON_IsNumber(found))
        return false;
    *value = side->factor * (*side->arm ? found->valuedouble : 1.0);
    return true;
}

static bool holds(const char *sign, double a, double b)
{
    return !strcmp(sign, "<")    ? a < b
           : !strcmp(sign, "<=") ? a <= b
           : !strcmp(sign, ">")  ? a > b
           : !strcmp(sign, ">=") ? a >= b
                                 : a == b;
}

static recipe_value mean_of(const double *value, int count)
{
    double sum = 0.0, squares = 0.0;
    for (int i = 0; i < count; i++)
        sum += value[i];
    const double mean = sum / count;
    for (int i = 0; i < count; i++)
        squares += (value[i] - mean) * (value[i] - mean);
    return (recipe_value){mean, count > 1 ? sqrt(squares / (count - 1)) : 0.0};
}

bool recipe_mean(const heed_recipe *recipe, const char *arm, const char *measure, recipe_value *value)
{
    double all[RECIPE_SEEDS];
    recipe_side side = {.factor = 1.0};
    snprintf(side.arm, sizeof side.arm, "%s", arm);
    snprintf(side.measure, sizeof side.measure, "%s", measure);
    for (int seed = 0; seed < recipe->seeds; seed++)
        if (!value_of(recipe, &side, seed, &all[seed]))
            return false;
    *value = mean_of(all, recipe->seeds);
    return true;
}

static void add_value(cJSON *object, const char *name, recipe_value value, bool spread)
{
    char with[80];
    cJSON_AddNumberToObject(object, name, value.mean);
    snprintf(with, sizeof with, "%s_spread", name);
    if (spread)
        cJSON_AddNumberToObject(object, with, value.spread);
}

static heed_status judge_one(heed_recipe *recipe, const char *text)
{
    recipe_comparison comparison;
    double left[RECIPE_SEEDS], right[RECIPE_SEEDS], apart[RECIPE_SEEDS];
    int held = 0;
    TRY(recipe_read_comparison(text, &comparison));
    for (int seed = 0; seed < recipe->seeds; seed++) {
        const recipe_side *const sides[] = {&comparison.left, &comparison.right};
        double *const to[] = {&left[seed], &right[seed]};
        for (int i = 0; i < 2; i++)
            if (!value_of(recipe, sides[i], seed, to[i]))
                return heed_fail(HEED_INVALID, "'%.100s': %s.%s was not measured", text, sides[i]->arm,
                                 sides[i]->measure);
        held += holds(comparison.sign, left[seed], right[seed]);
        apart[seed] = left[seed] - right[seed];
    }
    const bool several = recipe->seeds > 1;
    cJSON *one = cJSON_CreateObject();
    cJSON_AddStringToObject(one, "expectation", text);
    add_value(one, "left", mean_of(left, recipe->seeds), several && *comparison.left.arm);
    add_value(one, "right", mean_of(right, recipe->seeds), several && *comparison.right.arm);
    add_value(one, "difference", mean_of(apart, recipe->seeds), several);
    cJSON_AddNumberToObject(one, "seeds_that_hold", held);
    cJSON_AddBoolToObject(one, "holds", held == recipe->seeds);
    recipe->holds = recipe->holds && held == recipe->seeds;
    return cJSON_AddItemToArray(recipe->judged, one)
               ? HEED_OK
               : heed_fail(HEED_NO_MEMORY, "no memory to judge a recipe");
}

heed_status recipe_judge(heed_recipe *recipe)
{
    const cJSON *text;
    recipe->judged = cJSON_CreateArray();
    recipe->holds = true;
    cJSON_ArrayForEach(text, cJSON_GetObjectItem(recipe->root, "expect"))
        TRY(judge_one(recipe, text->valuestring));
    return HEED_OK;
}
