/* What is reused between steps, as text, and when AdaCache computes again. */
#include "attend/spec_reader.h"
#include "base/try.h"
#include "train/sampler.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* As published for 100 steps of Open-Sora (Kahatapitiya et al. 2024). */
static const heed_reuse usual = {.m = 10,
                                 .threshold = 0.1,
                                 .every = 3,
                                 .below = {0.03, 0.05, 0.07, 0.09, 0.11, 1.0},
                                 .after = {12, 10, 8, 6, 4, 3},
                                 .codes = 6,
                                 .scale = 0.385,
                                 .power = 8};

static const char *const kinds[] = {"none", "tgate", "adacache", "fixed"};

static heed_status read_codes(heed_reuse *reuse, const char *text)
{
    reuse->codes = 0;
    while (*text) {
        char *end;
        const double below = strtod(text, &end);
        if (end == text || *end != ':' || reuse->codes == HEED_CODEBOOK)
            return heed_fail(HEED_INVALID, "codes: at most %d pairs like 0.05:10 are needed, not '%.40s'",
                             HEED_CODEBOOK, text);
        text = end + 1;
        const long long after = strtoll(text, &end, 10);
        if (end == text || after < 1 || after > HEED_SAMPLER_STEPS || !(below > 0.0) ||
            (reuse->codes && below <= reuse->below[reuse->codes - 1]))
            return heed_fail(HEED_INVALID,
                             "codes: changes rise, and steps are at least 1, other than in '%.40s'", text);
        reuse->below[reuse->codes] = below;
        reuse->after[reuse->codes++] = after;
        text = end + strspn(end, " ");
    }
    return reuse->codes ? HEED_OK : heed_fail(HEED_INVALID, "codes: there are none");
}

static heed_status set(heed_reuse *reuse, const char *name, const char *value)
{
    const struct {
        heed_reuse_kind kind;
        const char *name;
        int64_t *whole;
        double *number;
        double least;
    } keys[] = {{HEED_REUSE_TGATE, "m", &reuse->m, NULL, 0},
                {HEED_REUSE_TGATE, "threshold", NULL, &reuse->threshold, 0},
                {HEED_REUSE_FIXED, "every", &reuse->every, NULL, 1},
                {HEED_REUSE_ADACACHE, "scale", NULL, &reuse->scale, 1e-9},
                {HEED_REUSE_ADACACHE, "power", NULL, &reuse->power, 0}};
    char *end = NULL;
    if (reuse->kind == HEED_REUSE_ADACACHE && !strcmp(name, "codes"))
        return read_codes(reuse, value);
    if (reuse->kind == HEED_REUSE_ADACACHE && !strcmp(name, "motion")) {
        reuse->motion = !strcmp(value, "yes");
        return reuse->motion || !strcmp(value, "no")
                   ? HEED_OK
                   : heed_fail(HEED_INVALID, "motion is yes or no, not '%.40s'", value);
    }
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++) {
        if (keys[i].kind != reuse->kind || strcmp(keys[i].name, name) != 0)
            continue;
        const double number = strtod(value, &end);
        if (end == value || *end || !(number >= keys[i].least && number <= 1e6) ||
            (keys[i].whole && number != floor(number)))
            return heed_fail(HEED_INVALID, "%s = '%.40s': a number of at least %g is needed", name, value,
                             keys[i].least);
        if (keys[i].whole)
            *keys[i].whole = (int64_t)number;
        else
            *keys[i].number = number;
        return HEED_OK;
    }
    return heed_fail(HEED_INVALID, "%s has no argument '%.40s'", kinds[reuse->kind], name);
}

heed_status heed_reuse_read(heed_reuse *reuse, const char *text)
{
    char copy[400], *rest = copy;
    *reuse = usual;
    if (snprintf(copy, sizeof copy, "%s", text) >= (int)sizeof copy)
        return heed_fail(HEED_INVALID, "what is reused takes %zu characters at most", sizeof copy - 1);
    const size_t length = strcspn(copy, "(");
    const bool open = copy[length] == '(';
    copy[length] = 0;
    int kind = 0;
    while (kind < 4 && strcmp(copy, kinds[kind]) != 0)
        kind++;
    if (kind == 4)
        return heed_fail(HEED_INVALID, "'%.40s' is nothing that steps reuse: none, tgate, adacache or fixed",
                         copy);
    reuse->kind = (heed_reuse_kind)kind;
    if (!open)
        return HEED_OK;
    rest = copy + length + 1;
    char *close = strrchr(rest, ')');
    if (!close || close[1])
        return heed_fail(HEED_INVALID, "a closing bracket is missing in '%.60s'", text);
    *close = 0;
    while (*rest) {
        rest += strspn(rest, " ,");
        char *equals = strchr(rest, '=');
        if (!equals)
            return heed_fail(HEED_INVALID, "'%.40s': arguments are name=value", rest);
        char *end = equals + 1 + strcspn(equals + 1, ",");
        const bool last = !*end;
        *equals = *end = 0;
        TRY(set(reuse, rest, equals + 1));
        rest = last ? end : end + 1;
    }
    return HEED_OK;
}

/* sum |a - b| and sum |a| of what frames further on have and those before. */
static double motion_of(const float *p, int64_t batch, int64_t count, int64_t frames)
{
    const int64_t each = count / frames, all = count - each;
    double apart = 0.0, size = 0.0;
    for (int64_t b = 0; b < batch; b++)
        for (int64_t i = 0; i < all; i++) {
            const double early = (double)p[b * count + i], late = (double)p[b * count + i + each];
            apart += fabs(late - early);
            size += fabs(late) + fabs(early);
        }
    return size > 0.0 ? apart / size : 0.0;
}

int64_t heed_adacache_next(const heed_reuse *reuse, const float *before, const float *p, int64_t batch,
                           int64_t count, int64_t frames, int64_t k, bool regularise, double *motion)
{
    double apart = 0.0, size = 0.0;
    for (int64_t i = 0; i < batch * count; i++) {
        apart += fabs((double)before[i] - (double)p[i]);
        size += fabs((double)before[i]);
    }
    double c = apart > 0.0 ? apart / ((double)k * size) : 0.0;
    if (reuse->motion && frames > 1) {
        const double m = pow(motion_of(p, batch, count, frames) / reuse->scale, reuse->power),
                     gradient = isnan(*motion) ? 0.0 : 10.0 * (m - *motion) / (double)k;
        *motion = m;
        if (regularise)
            c *= m + fabs(gradient);
    }
    int code = 0;
    while (code + 1 < reuse->codes && !(c < reuse->below[code]))
        code++;
    return reuse->after[code];
}
