/* A form of one's own, registered from outside: a learned penalty on the logarithm of distance.
 *
 *     s(i, j) += a[h] log(1 + |distance|)
 *
 * Two hooks do the work, one forward and one backward. The program runs the form in a spec like any other,
 * and holds the gradient of its parameter against finite differences.
 */
#include <heed/heed.h>
#include <stdio.h>
#include <stdlib.h>

enum { SLOPE };

static void penalty(const heed_form_state *form, int head, const int32_t *distance, int n, float *out)
{
    const float slope = form->param[SLOPE][head];
    for (int i = 0; i < n; i++)
        out[i] = slope * heed_log(1.0f + fabsf((float)distance[i]));
}

static void penalty_backward(const heed_form_state *form, int head, const int32_t *distance, int n,
                             const float *dbias)
{
    float sum = 0.0f;
    if (!form->grad[SLOPE])
        return;
    for (int i = 0; i < n; i++)
        sum += dbias[i] * heed_log(1.0f + fabsf((float)distance[i]));
    form->grad[SLOPE][head] += sum;
}

static const heed_param params[] = {
    {.name = "a", .shape = "H", .initial = -0.5f, .summary = "slope of each head"},
    {0},
};

static const heed_form log_distance = {
    .name = "log_distance",
    .stage = HEED_POSITION,
    .summary = "a learned penalty on the logarithm of distance",
    .formula = "s + a[h] log(1 + |distance|)",
    .params = params,
    .bias = penalty,
    .bias_backward = penalty_backward,
};

enum { HEADS = 3, TOKENS = 40, DIM = 16, SIZE = HEADS * TOKENS * DIM };

static float q[SIZE], k[SIZE], v[SIZE], out[SIZE], dout[SIZE], a[HEADS], da[HEADS];

static heed_tensor rows(float *x)
{
    return heed_tensor_dense(x, HEED_F32, 4, (int64_t[]){1, HEADS, TOKENS, DIM});
}

static heed_tensor list(float *x)
{
    return heed_tensor_dense(x, HEED_F32, 1, (int64_t[]){HEADS});
}

static void check(heed_status status)
{
    if (status == HEED_OK)
        return;
    fprintf(stderr, "%s\n", heed_message());
    exit(1);
}

/* The sum of out * dout, whose gradient the backward run computes. */
static double loss(const heed_plan *plan, const heed_extra *extra)
{
    const heed_tensor Q = rows(q), K = rows(k), V = rows(v), O = rows(out);
    double sum = 0.0;
    check(heed_attend(plan, &Q, &K, &V, &O, extra));
    for (int i = 0; i < SIZE; i++)
        sum += (double)out[i] * dout[i];
    return sum;
}

int main(void)
{
    const heed_form *const forms[] = {&log_distance, NULL};
    const heed_problem problem = {.batch = 1,
                                  .heads = HEADS,
                                  .queries = TOKENS,
                                  .keys = TOKENS,
                                  .dim = DIM,
                                  .with = HEED_WITH_BACKWARD,
                                  .forms = forms};
    const float step = 1e-2f;
    heed_plan *plan;
    heed_tensor A = list(a), dA = list(da);
    const heed_extra extra = {.params = &A};
    bool right = true;

    for (int i = 0; i < SIZE; i++) {
        q[i] = sinf(0.37f * (float)i);
        k[i] = cosf(0.71f * (float)i);
        v[i] = sinf(1.3f * (float)i);
        dout[i] = cosf(2.1f * (float)i);
    }
    check(heed_plan_create(&plan, "position=log_distance; where=causal", &problem));
    check(heed_plan_param_initial(plan, 0, a));
    check(heed_attend_backward(
        plan,
        &(heed_gradients){
            .q = rows(q), .k = rows(k), .v = rows(v), .dout = rows(dout), .dparams = &dA, .extra = &extra}));
    for (int h = 0; h < HEADS; h++) {
        const float before = a[h];
        a[h] = before + step;
        const double above = loss(plan, &extra);
        a[h] = before - step;
        const double below = loss(plan, &extra);
        a[h] = before;
        const double difference = (above - below) / (2.0 * step);
        printf("head %d: gradient %10.6f, finite difference %10.6f\n", h, da[h], difference);
        right = right && fabs(da[h] - difference) < 1e-3 * (1.0 + fabs(difference));
    }
    heed_plan_free(plan);
    printf("%s\n", right ? "They agree." : "They differ.");
    return right ? 0 : 1;
}
