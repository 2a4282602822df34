/* A mix by trials: from the best single policy on, room goes to where it is worth most.
 *
 * First each layer has more or less room, or another policy, than all others, and what that loses is measured
 * there, so that losses are those around the point of work and not of one layer alone. The choice whose
 * losses add up to least within the budget is tried. Then the same again for single heads of the layers that
 * matter, one step up and one down; in the end pairs of heads change room one by one, and only what was
 * measured to lose less stays.
 */
#include "base/try.h"
#include "cache/pages.h"
#include "eval/tune_parts.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { FORMS = HEED_PROBE_FORMS, ROUNDS = 2, MOST_HEADS = 96, PAIRS = 48 };

/* Form 0 keeps everything; then the first policy from much to little room, the second, and what a streaming
 * head keeps. Rooms are whole pages, from what the best single has as many steps on as here, or a part. */
enum { MIDDLE = 4, SECOND = 9, STREAMING = 11 };
static const int8_t step[FORMS] = {0, 4, 2, 1, 0, -1, -2, 0, 0, 0, 0, 0};
static const double part[FORMS] = {1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 0.5, 0.2, 1.0, 0.5, 0.125};
static const int8_t more[FORMS] = {-1, 0, 1, 2, 3, 4, 5, 6, 7, 3, 9, 8},
                    less[FORMS] = {1, 2, 3, 4, 5, 6, 7, 8, 11, 10, 8, -1};

typedef struct search {
    heed_tune_run *run;
    const char *type;
    char text[FORMS][HEED_TUNE_POLICY];
    const char *policy[FORMS]; /* as the mix has it, from form 1 on */
    bool there[FORMS];
    double *bytes;   /* [units, FORMS] */
    double *loss;    /* [units, FORMS] less that of the choice at hand; NaN: not tried */
    int32_t *choice; /* [units] forms */
    int32_t *tried;  /* the same, of a trial */
    heed_trial now;
} search;

/* No more trials are wanted. */
static bool is_over(const search *s)
{
    return s->run->wanted->trials && s->run->result->trials >= s->run->wanted->trials;
}

static heed_status measure(search *s, const int32_t *form, heed_trial *trial)
{
    heed_tune_run *run = s->run;
    int32_t *choice = malloc((size_t)run->units * sizeof *choice);
    if (!choice)
        return heed_fail(HEED_NO_MEMORY, "no memory for a choice");
    for (int64_t u = 0; u < run->units; u++)
        choice[u] = form[u] - 1;
    heed_status status = heed_tune_write(run, s->type, s->policy, choice);
    if (!status)
        status = heed_probe_try_choice(&run->probe, s->type, run->text, form, trial);
    free(choice);
    run->result->trials++;
    heed_tune_advance(run, (double)run->probe.rows);
    return status;
}

/* Takes over what was tried if it fits and loses less. */
static heed_status improve(search *s, bool *improved)
{
    heed_trial trial;
    TRY(measure(s, s->tried, &trial));
    *improved = trial.bytes <= s->run->limit && heed_trial_loss(&trial) < heed_trial_loss(&s->now);
    if (*improved) {
        memcpy(s->choice, s->tried, (size_t)s->run->units * sizeof *s->choice);
        s->now = trial;
    }
    return HEED_OK;
}

/* What each form takes at each head, and what it leaves of the prompts. */
static heed_status prepare_forms(search *s)
{
    char(*spec)[HEED_TUNE_POLICY + 100] = malloc(FORMS * sizeof *spec);
    const char *specs[FORMS] = {NULL};
    double *each = malloc((size_t)s->run->units * sizeof *each);
    heed_status status = each && spec ? HEED_OK : heed_fail(HEED_NO_MEMORY, "no memory for a choice");
    for (int f = 0; f < FORMS && !status; f++) {
        if (!s->there[f])
            continue;
        snprintf(spec[f], sizeof *spec, "cache=%s%s%.60s", s->text[f], f ? " > " : "", s->type);
        specs[f] = spec[f];
        status = heed_probe_weigh(&s->run->probe, s->type, spec[f], each);
        for (int64_t u = 0; u < s->run->units && !status; u++)
            s->bytes[u * FORMS + f] = each[u];
    }
    if (!status)
        status = heed_probe_prepare(&s->run->probe, s->type, specs, FORMS);
    free(each);
    free(spec);
    return status;
}

/* What heads first...first+count lose as each form that is there, the others as they are. */
static heed_status try_group(search *s, int64_t first, int64_t count, const bool *forms)
{
    for (int f = 0; f < FORMS; f++) {
        heed_trial trial = s->now;
        if (!forms[f] || !s->there[f] || is_over(s))
            continue;
        memcpy(s->tried, s->choice, (size_t)s->run->units * sizeof *s->tried);
        bool same = true;
        for (int64_t u = first; u < first + count; u++) {
            same &= s->tried[u] == f;
            s->tried[u] = f;
        }
        if (!same)
            TRY(measure(s, s->tried, &trial));
        for (int64_t u = first; u < first + count; u++)
            s->loss[u * FORMS + f] = heed_trial_loss(&trial) - heed_trial_loss(&s->now);
    }
    return HEED_OK;
}

/* The best choice by losses that add up, for groups of `each` heads; where together they lose more than the
 * sum, what costs is believed to cost more than measured. */
static heed_status try_choices(search *s, int64_t each, bool *improved)
{
    static const double doubt[] = {1.0, 2.0, 4.0};
    const int64_t groups = s->run->units / each;
    double *loss = malloc((size_t)(groups * FORMS) * sizeof *loss),
           *bytes = malloc((size_t)(groups * FORMS) * sizeof *bytes);
    int32_t *from = malloc((size_t)s->run->units * sizeof *from),
            *chosen = malloc((size_t)groups * sizeof *chosen);
    heed_status status =
        loss && bytes && from && chosen ? HEED_OK : heed_fail(HEED_NO_MEMORY, "no memory for a choice");
    *improved = false;
    for (size_t d = 0; d < sizeof doubt / sizeof *doubt && !status; d++) {
        bool fits = false, better = false;
        for (int64_t i = 0; i < groups * FORMS; i++) {
            const int64_t g = i / FORMS, f = i % FORMS;
            const double x = s->loss[g * each * FORMS + f];
            loss[i] = x > 0.0 ? doubt[d] * x : x;
            bytes[i] = 0.0;
            for (int64_t u = g * each; u < (g + 1) * each; u++)
                bytes[i] += s->bytes[u * FORMS + f];
        }
        status = heed_mix_fit(loss, bytes, groups, FORMS, s->run->limit, chosen, &fits);
        for (int64_t u = 0; u < s->run->units && fits; u++)
            s->tried[u] = chosen[u / each];
        if (!status && fits)
            status = improve(s, &better);
        *improved |= better;
    }
    free(loss);
    free(bytes);
    free(from);
    free(chosen);
    return status;
}

static void forget_losses(search *s)
{
    for (int64_t u = 0; u < s->run->units; u++)
        for (int f = 0; f < FORMS; f++)
            s->loss[u * FORMS + f] = s->choice[u] == f ? 0.0 : NAN;
}

static heed_status by_layers(search *s)
{
    static const bool all[FORMS] = {true, true, true, true, true, true, true, true, true, true, true, true};
    const int64_t heads = s->run->info.kv_heads;
    bool improved;
    s->run->what = "layers";
    forget_losses(s);
    for (int64_t l = 0; l < s->run->info.layers; l++)
        TRY(try_group(s, l * heads, heads, all));
    return try_choices(s, heads, &improved);
}

/* How much a layer's room matters: the largest change of the loss that was seen there. */
static double weight_of(const search *s, int64_t l)
{
    double most = 0.0;
    for (int f = 0; f < FORMS; f++) {
        const double x = fabs(s->loss[l * s->run->info.kv_heads * FORMS + f]);
        most = x > most ? x : most;
    }
    return most;
}

/* Marks the layers that matter most, with MOST_HEADS kv heads in all. */
static void choose_layers(const search *s, bool *marked)
{
    const int64_t layers = s->run->info.layers, heads = s->run->info.kv_heads;
    for (int64_t n = 0; n < layers && (n == 0 || (n + 1) * heads <= MOST_HEADS); n++) {
        int64_t best = -1;
        for (int64_t l = 0; l < layers; l++)
            if (!marked[l] && (best < 0 || weight_of(s, l) > weight_of(s, best)))
                best = l;
        marked[best] = true;
    }
}

static heed_status try_heads(search *s, const bool *layers)
{
    s->run->what = "heads";
    forget_losses(s);
    for (int64_t u = 0; u < s->run->units; u++) {
        bool forms[FORMS] = {false};
        if (!layers[u / s->run->info.kv_heads])
            continue;
        for (int f = more[s->choice[u]]; f >= 0 && !forms[f]; f = s->there[f] ? -1 : more[f])
            forms[f] = s->there[f];
        for (int f = less[s->choice[u]]; f >= 0 && !forms[f]; f = s->there[f] ? -1 : less[f])
            forms[f] = s->there[f];
        TRY(try_group(s, u, 1, forms));
    }
    return HEED_OK;
}

/* The step that promises most for its bytes: of those that win (up) or those that pay for it (down), not yet
 * `used`. */
static bool next_step(const search *s, bool up, const bool *used, int64_t *unit, int *form)
{
    double best = -INFINITY;
    *unit = -1;
    for (int64_t u = 0; u < s->run->units; u++)
        for (int f = 0; f < FORMS; f++) {
            const double loss = s->loss[u * FORMS + f],
                         bytes = s->bytes[u * FORMS + f] - s->bytes[u * FORMS + s->choice[u]];
            if (isnan(loss) || used[u] || (up ? bytes <= 0.0 : bytes >= 0.0))
                continue;
            const double worth = up ? -loss : -loss / -bytes;
            if (worth > best) {
                best = worth;
                *unit = u;
                *form = f;
            }
        }
    return *unit >= 0 && (!up || best > 0.0);
}

/* One head gets more and others pay for it. */
static heed_status by_pairs(search *s)
{
    bool *used = calloc((size_t)s->run->units, sizeof *used), *paid = calloc((size_t)s->run->units, 1);
    heed_status status = used && paid ? HEED_OK : heed_fail(HEED_NO_MEMORY, "no memory for a choice");
    int64_t unit, payer;
    int form = 0, to = 0;
    s->run->what = "pairs";
    for (int i = 0; i < PAIRS && !status && !is_over(s) && next_step(s, true, used, &unit, &form); i++) {
        bool improved = false;
        memcpy(paid, used, (size_t)s->run->units);
        memcpy(s->tried, s->choice, (size_t)s->run->units * sizeof *s->tried);
        double over = s->now.bytes + s->bytes[unit * FORMS + form] -
                      s->bytes[unit * FORMS + s->choice[unit]] - s->run->limit;
        s->tried[unit] = form;
        used[unit] = paid[unit] = true;
        while (over > 0.0 && next_step(s, false, paid, &payer, &to)) {
            over += s->bytes[payer * FORMS + to] - s->bytes[payer * FORMS + s->choice[payer]];
            s->tried[payer] = to;
            paid[payer] = true;
        }
        if (over <= 0.0)
            status = improve(s, &improved);
        if (improved)
            memcpy(used, paid, (size_t)s->run->units);
    }
    free(used);
    free(paid);
    return status;
}

static heed_status find(search *s)
{
    bool *layers = calloc((size_t)s->run->info.layers, sizeof *layers), improved = true;
    if (!layers)
        return heed_fail(HEED_NO_MEMORY, "no memory for a choice");
    for (int64_t u = 0; u < s->run->units; u++)
        s->choice[u] = MIDDLE;
    heed_status status = measure(s, s->choice, &s->now);
    if (!status)
        status = by_layers(s);
    choose_layers(s, layers);
    for (int round = 0; round < ROUNDS && improved && !status && !is_over(s); round++) {
        status = try_heads(s, layers);
        if (!status)
            status = try_choices(s, 1, &improved);
    }
    if (!status && improved) /* losses are those around an earlier choice */
        status = try_heads(s, layers);
    if (!status)
        status = by_pairs(s);
    heed_trial last;
    if (!status)
        status = measure(s, s->choice, &last);
    if (!status)
        status = heed_tune_keep(s->run, s->type, &last);
    free(layers);
    return status;
}

/* The best single of another policy than `not`. */
static const heed_tuned *best_single(const heed_tune_result *result, const char * not )
{
    const heed_tuned *best = NULL;
    for (int i = 0; i < result->singles; i++)
        if ((!not || (*result->single[i].policy && strcmp(result->single[i].policy, not ) != 0)) &&
            (!best || heed_trial_loss(&result->single[i].trial) < heed_trial_loss(&best->trial)))
            best = &result->single[i];
    return best;
}

static double share_of(const heed_tuned *single)
{
    return strtod(strstr(single->spec, "(share=") + strlen("(share="), NULL);
}

/* With which a head that sees all of a text holds so many full pages at its end; to four digits. */
static double share_of_pages(const search *s, double pages)
{
    const heed_probe_item *text = &s->run->probe.item[0];
    return floor((pages * HEED_PAGE - (double)text->rows) / (double)text->before * 1e4) * 1e-4;
}

static heed_status make_forms(search *s, const heed_tuned *first, const heed_tuned *second)
{
    const heed_probe_item *text = &s->run->probe.item[0];
    const double share = share_of(first),
                 pages = floor((share * (double)text->before + (double)text->rows) / HEED_PAGE),
                 unit = pages < 8.0 ? 1.0 : floor(pages / 8.0);
    s->there[0] = true;
    for (int f = 1; f < FORMS; f++) {
        const char *policy = f < SECOND       ? first->policy
                             : f >= STREAMING ? "streaming"
                             : second         ? second->policy
                                              : NULL;
        const double here = f == MIDDLE ? share
                            : pages > 1.0
                                ? share_of_pages(s, fmax(1.0, floor(part[f] * pages) + step[f] * unit))
                                : share * part[f] * exp2(0.25 * step[f]);
        s->policy[f - 1] = s->text[f];
        s->there[f] = policy && here < 0.97 && here > 0.0;
        if (s->there[f])
            TRY(heed_tune_with_share(policy, here, s->text[f], sizeof s->text[f]));
    }
    return HEED_OK;
}

double heed_tune_trials_expected(const heed_tune_run *run)
{
    const int64_t heads = run->units < MOST_HEADS ? run->units : MOST_HEADS;
    return (double)(run->info.layers * (FORMS - 1) + ROUNDS * 2 * heads + PAIRS);
}

heed_status heed_tune_by_trials(heed_tune_run *run)
{
    const heed_tuned *best = best_single(run->result, NULL);
    if (!*best->policy) { /* storage alone is best: there is nothing to share out */
        strcpy(run->text, best->spec);
        return heed_tune_keep(run, best->type, &best->trial);
    }
    const size_t cells = (size_t)run->units * FORMS;
    search s = {.run = run,
                .type = best->type,
                .bytes = calloc(cells, sizeof(double)),
                .loss = calloc(cells, sizeof(double)),
                .choice = calloc((size_t)run->units, sizeof(int32_t)),
                .tried = calloc((size_t)run->units, sizeof(int32_t))};
    heed_status status = s.bytes && s.loss && s.choice && s.tried
                             ? make_forms(&s, best, best_single(run->result, best->policy))
                             : heed_fail(HEED_NO_MEMORY, "no memory for the trials of a search");
    if (!status)
        status = prepare_forms(&s);
    if (!status)
        status = find(&s);
    free(s.bytes);
    free(s.loss);
    free(s.choice);
    free(s.tried);
    return status;
}
