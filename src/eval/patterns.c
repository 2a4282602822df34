/* The search hangs on heed_calibrate: a form outside the library looks on while the model reads with its own
 * attention, and lets each pattern attend with the same queries and keys. With lse of full attention and lse'
 * of a pattern's, exp(lse' - lse) is the share of a query's weight that the pattern keeps. */
#include "eval/patterns.h"
#include "base/try.h"
#include "model/params.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { A_SHAPE, BLOCK_TOP = HEED_PATTERNS - 1 };
enum { BLOCK, BLOCKS };
#define MARGIN 1.02f /* what a pattern may read, times what a_shape reads */

enum { SHARE, READ, QUERIES, NUMBERS }; /* sums of a head and pattern */

/* a_shape and block_top read `blocks` blocks a row. Columns that few rows reach and columns that meet
 * diagonals make lines read fewer than their number, so there are three numbers of them. */
static void write_pattern(int pattern, int64_t block, int64_t blocks, char text[96])
{
    const int64_t others = blocks - 1,
                  lines = (others * (pattern + 1) + 3) / 4; /* a half, 3/4, all of them */
    if (pattern == A_SHAPE)
        snprintf(text, 96, "a_shape(sinks=%lld, window=%lld, block=%lld)",
                 (long long)(others > 0 ? block : 0), (long long)(others > 1 ? (others - 1) * block : 0),
                 (long long)block);
    else if (pattern == BLOCK_TOP)
        snprintf(text, 96, "block_top(block=%lld, k=%lld)", (long long)block, (long long)blocks);
    else /* the diagonal of the current blocks counts as one */
        snprintf(text, 96, "vertical_slash(block=%lld, columns=%lld, slashes=%lld)", (long long)block,
                 (long long)lines, (long long)(lines + 1));
}

static int64_t sums_of(const heed_form_state *form)
{
    return form->sizes.heads * HEED_PATTERNS * NUMBERS;
}

static int64_t work_of(const heed_form_state *form, int64_t tokens)
{
    const int64_t group = form->sizes.heads / form->sizes.kv_heads;
    return group * tokens * (form->sizes.dim + 2);
}

/* Full attention, or a pattern's: lse [group][tokens]; pairs [2]. */
static heed_status attend(const heed_shown *shown, const char *select, float *out, float *lse, double *pairs)
{
    const int64_t n = shown->tokens, group = shown->group, dim = shown->dim;
    char spec[256];
    snprintf(spec, sizeof spec, "score=dot(1); where=causal & window(%lld)%s%s", (long long)shown->span,
             *select ? "; select=" : "", select);
    const heed_problem problem = {
        .batch = 1, .heads = group, .kv_heads = 1, .queries = n, .keys = n, .dim = dim, .threads = 1};
    heed_plan *plan;
    TRY(heed_plan_create(&plan, spec, &problem));
    const heed_tensor q =
        heed_tensor_dense((void *)(uintptr_t)shown->query, HEED_F32, 4, (int64_t[]){1, group, n, dim});
    const heed_tensor k =
        heed_tensor_dense((void *)(uintptr_t)shown->key, HEED_F32, 4, (int64_t[]){1, 1, n, dim});
    const heed_tensor v =
        heed_tensor_dense((void *)(uintptr_t)shown->value, HEED_F32, 4, (int64_t[]){1, 1, n, dim});
    heed_tensor to = heed_tensor_dense(out, HEED_F32, 4, (int64_t[]){1, group, n, dim});
    const heed_extra extra = {.lse = heed_tensor_dense(lse, HEED_F32, 3, (int64_t[]){1, group, n}),
                              .capture.pairs = pairs};
    const heed_status status = heed_attend(plan, &q, &k, &v, &to, &extra);
    heed_plan_free(plan);
    return status;
}

static void gather(const heed_form_state *form, const heed_shown *shown, double *sums, float *work)
{
    const int64_t n = shown->tokens, group = shown->group;
    float *out = work, *full = out + group * n * shown->dim, *lse = full + group * n;
    double pairs[2] = {0};
    bool failed = attend(shown, "", out, full, pairs) != HEED_OK;
    for (int p = 0; p < HEED_PATTERNS; p++) {
        char text[96];
        double read[2] = {0};
        write_pattern(p, heed_arg_int(form, BLOCK), heed_arg_int(form, BLOCKS), text);
        failed = failed || attend(shown, text, out, lse, read) != HEED_OK;
        for (int64_t h = 0; h < group; h++) {
            double *sum = sums + ((shown->kv_head * group + h) * HEED_PATTERNS + p) * NUMBERS;
            for (int64_t i = 0; i < n && !failed; i++)
                sum[SHARE] += exp((double)lse[h * n + i] - (double)full[h * n + i]);
            sum[READ] += failed ? NAN : read[0] / pairs[0] * (double)n;
            sum[QUERIES] += (double)n;
        }
    }
}

static heed_status settle(const heed_form_state *form, const double *sums, float *const *param)
{
    for (int64_t i = 0; i < form->sizes.heads * HEED_PATTERNS; i++)
        for (int n = 0; n < 2; n++)
            param[0][2 * i + n] = (float)(sums[i * NUMBERS + n] / sums[i * NUMBERS + QUERIES]);
    return HEED_OK;
}

/* It only looks on. */
static void choose_all(const heed_form_state *form, heed_row *row)
{
    (void)form, (void)row;
}

static const heed_calibration calibration = {
    .sums = sums_of, .work = work_of, .gather = gather, .settle = settle};

static const heed_arg args[] = {
    [BLOCK] =
        {.name = "block", .kind = HEED_ARG_INT, .value = 64, .least = 2, .most = 256, .summary = "keys"},
    [BLOCKS] =
        {.name = "blocks", .kind = HEED_ARG_INT, .value = 16, .least = 1, .most = 65536, .summary = ""},
    {0},
};

static const heed_param params[] = {
    {.name = "score", .shape = "H,5,2", .summary = "share and pairs read of each pattern"}, {0}};

static const heed_form pattern_search = {
    .name = "pattern_search",
    .stage = HEED_SELECT,
    .summary = "looks on",
    .formula = "",
    .args = args,
    .params = params,
    .choose = choose_all,
    .calibration = &calibration,
};

/* The heads of a layer with a pattern as "0-2,5". */
static int write_heads(const uint8_t *best, int64_t heads, int pattern, char *text, size_t size)
{
    int length = 0;
    for (int64_t h = 0, end; h < heads; h = end) {
        end = h + 1;
        if (best[h] != pattern)
            continue;
        while (end < heads && best[end] == pattern)
            end++;
        length += snprintf(text + length, size - (size_t)length, "%s%lld", length ? "," : "", (long long)h);
        if (end - h > 1)
            length += snprintf(text + length, size - (size_t)length, "-%lld", (long long)(end - 1));
    }
    return length;
}

/* The pattern of most heads for all, and by layer what differs. */
static heed_status write_spec(heed_pattern_result *result)
{
    const int64_t all = result->layers * result->heads;
    const size_t room = 256 * (size_t)(all + 2), list = 16 * (size_t)result->heads + 1;
    int64_t count[HEED_PATTERNS] = {0};
    int most = 0;
    for (int64_t i = 0; i < all; i++)
        count[result->best[i]]++;
    for (int p = 1; p < HEED_PATTERNS; p++)
        most = count[p] > count[most] ? p : most;
    result->spec = malloc(room);
    char *heads = malloc(list);
    if (!result->spec || !heads) {
        free(heads);
        return heed_fail(HEED_NO_MEMORY, "no memory for a spec of %lld heads", (long long)all);
    }
    size_t length = (size_t)snprintf(result->spec, room, "select=%s", result->pattern[most]);
    for (int64_t l = 0; l < result->layers; l++)
        for (int p = 0; p < HEED_PATTERNS; p++)
            if (p != most && write_heads(result->best + l * result->heads, result->heads, p, heads, list) > 0)
                length += (size_t)snprintf(result->spec + length, room - length,
                                           "; layers %lld: heads %s: select=%s", (long long)l, heads,
                                           result->pattern[p]);
    free(heads);
    return HEED_OK;
}

static heed_status take_scores(const heed_params *found, heed_pattern_result *result)
{
    for (int64_t l = 0; l < result->layers; l++) {
        const heed_param_tensor *tensor = heed_params_find(found, l, "select.pattern_search.score");
        if (!tensor)
            return heed_fail(HEED_INVALID, "layer %lld was not looked at", (long long)l);
        const float *score = tensor->tensor.data;
        for (int64_t h = 0; h < result->heads; h++) {
            const int64_t at = l * result->heads + h;
            for (int p = 0; p < HEED_PATTERNS; p++) {
                const float *one = score + (h * HEED_PATTERNS + p) * 2;
                if (!(one[1] > 0))
                    return heed_fail(HEED_NO_MEMORY, "layer %lld could not be looked at", (long long)l);
                result->score[at * HEED_PATTERNS + p] = (heed_pattern_score){(double)one[0], (double)one[1]};
                if (one[0] > score[(h * HEED_PATTERNS + result->best[at]) * 2] &&
                    one[1] <= MARGIN * score[h * HEED_PATTERNS * 2 + 1])
                    result->best[at] = (uint8_t)p;
            }
        }
    }
    return HEED_OK;
}

heed_status heed_find_patterns(const heed_pattern_search *search, const int32_t *tokens, int64_t count,
                               heed_pattern_result *result)
{
    const heed_form *const forms[] = {&pattern_search, NULL};
    heed_model_info info;
    heed_model_get_info(search->model, &info);
    *result = (heed_pattern_result){.layers = info.layers, .heads = info.heads};
    const size_t all = (size_t)(info.layers * info.heads);
    result->score = calloc(all * HEED_PATTERNS, sizeof *result->score);
    result->best = calloc(all, 1);
    char attention[96];
    snprintf(attention, sizeof attention, "select=pattern_search(block=%lld, blocks=%lld)",
             (long long)search->block, (long long)search->blocks);
    for (int p = 0; p < HEED_PATTERNS; p++)
        write_pattern(p, search->block, search->blocks, result->pattern[p]);
    const heed_calibration_options how = {.attention = attention,
                                          .window = search->window,
                                          .threads = search->threads,
                                          .forms = forms,
                                          .progress = search->progress,
                                          .context = search->context};
    heed_params *found = NULL;
    heed_status status = result->score && result->best
                             ? heed_calibrate(&found, search->model, &how, tokens, count)
                             : heed_fail(HEED_NO_MEMORY, "no memory for %zu heads", all);
    status = status ? status : take_scores(found, result);
    status = status ? status : write_spec(result);
    heed_params_free(found);
    if (status)
        heed_pattern_result_free(result);
    return status;
}

void heed_pattern_result_free(heed_pattern_result *result)
{
    free(result->score);
    free(result->best);
    free(result->spec);
    *result = (heed_pattern_result){0};
}
