/* KERPLE: a learned kernel of distance, one for each head.
 *
 *     kind=log     s(i, j) -= r1_h log(1 + r2_h d)
 *     kind=power   s(i, j) -= r1_h d^r2_h,  r2_h <= 2          d = |p(i) - k_pos(j)|;  0 at d = 0, gradients
 * too
 *
 * Conditionally positive definite for r1, r2 > 0: a constant, which softmax does not see, makes it a kernel.
 * ALiBi is the power 1. Chi et al.: KERPLE, 2022.
 */
#include "attend/form.h"

enum { R1, R2 };
enum { LOG, POWER };

/* log d for a whole d > 0 and, from it, d^r. The logarithm keeps its whole part apart, so that the power of a
 * far distance is as exact as that of a near one. */
static inline float power(float d, double r)
{
    const uint32_t bits = heed_bits_of_float(d);
    const uint32_t k = (bits - 0x3f3504f3u) & 0xff800000u;
    const float whole = (float)((int32_t)k >> 23), mantissa = heed_float_from_bits(bits - k);
    const double log2_power = r * ((double)whole + 1.4426950408889634 * (double)heed_log(mantissa));
    const float shift = 12582912.0f, n = ((float)log2_power + shift) - shift;
    const float rest = (float)((log2_power - (double)n) * 0.6931471805599453);
    return heed_exp(rest) * heed_float_from_bits((uint32_t)((int32_t)n + 127) << 23);
}

static heed_status check(const heed_form_state *form, int param, double most)
{
    for (int64_t h = 0; h < form->sizes.heads; h++) {
        const float r = form->param[param][h];
        if (!(r > 0.0f && r <= most && r < INFINITY))
            return heed_fail(
                HEED_INVALID, "position.kerple.%s of head %lld is %g, it must be above 0 and %s%s",
                form->form->params[param].name, (long long)h, (double)r,
                most < INFINITY ? "at most 2" : "finite", most < INFINITY ? " with kind=power" : "");
    }
    return HEED_OK;
}

static heed_status begin(const heed_form_state *form)
{
    const heed_status status = check(form, R1, INFINITY);
    return status == HEED_OK ? check(form, R2, form->arg[0].number == POWER ? 2.0 : INFINITY) : status;
}

static void kernel(const heed_form_state *form, int head, const int32_t *distance, int n, float *out)
{
    const float r1 = form->param[R1][head], r2 = form->param[R2][head];
    if (form->arg[0].number == POWER)
        for (int i = 0; i < n; i++) {
            const float d = fabsf((float)distance[i]), x = -r1 * power(d, (double)r2);
            out[i] = d == 0.0f ? 0.0f : x;
        }
    else
        for (int i = 0; i < n; i++)
            out[i] = -r1 * heed_log1p(r2 * fabsf((float)distance[i]));
}

static void kernel_backward(const heed_form_state *form, int head, const int32_t *distance, int n,
                            const float *dbias)
{
    const float r1 = form->param[R1][head], r2 = form->param[R2][head];
    float dr1 = 0.0f, dr2 = 0.0f;
    if (form->arg[0].number == POWER) {
#pragma omp simd reduction(+ : dr1, dr2)
        for (int i = 0; i < n; i++) {
            const float d = fabsf((float)distance[i]), x = dbias[i] * power(d, (double)r2),
                        y = x * heed_log(d);
            dr1 -= d == 0.0f ? 0.0f : x;
            dr2 -= d == 0.0f ? 0.0f : y;
        }
        dr2 *= r1;
    } else {
#pragma omp simd reduction(+ : dr1, dr2)
        for (int i = 0; i < n; i++) {
            const float d = fabsf((float)distance[i]);
            dr1 -= dbias[i] * heed_log1p(r2 * d);
            dr2 -= dbias[i] * (r1 * d / (1.0f + r2 * d));
        }
    }
    if (form->grad[R1])
        form->grad[R1][head] += dr1;
    if (form->grad[R2])
        form->grad[R2][head] += dr2;
}

static const heed_option kinds[] = {[LOG] = {"log", NULL}, [POWER] = {"power", NULL}, {0}};

static const heed_arg args[] = {
    {.name = "kind",
     .kind = HEED_ARG_CHOICE,
     .value = LOG,
     .options = kinds,
     .summary = "log: r1 log(1 + r2 d); power: r1 d^r2, r2 at most 2"},
    {0},
};

static const heed_param params[] = {
    [R1] = {.name = "r1", .shape = "H", .initial = 1.0f, .summary = "weight of the kernel, above 0"},
    [R2] = {.name = "r2",
            .shape = "H",
            .initial = 1.0f,
            .summary = "slope inside the log, or the power; above 0"},
    {0},
};

const heed_form HEED_FORM(position_kerple) = {
    .name = "kerple",
    .stage = HEED_POSITION,
    .summary = "a learned kernel of distance for each head, logarithmic or a power",
    .formula = "log: s - r1 log(1 + r2 |distance|); power: s - r1 |distance|^r2",
    .source = "Chi et al. 2022",
    .row = "004.153",
    .args = args,
    .params = params,
    .begin = begin,
    .bias = kernel,
    .bias_backward = kernel_backward,
};
