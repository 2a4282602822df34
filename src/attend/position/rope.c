/* RoPE: rotates pairs of entries of queries and keys, so that their product depends on the distance.
 *
 *     (x, y)_t -> (x cos a - y sin a, x sin a + y cos a),     a = p f_t,  f_t = base^(-2t/dim),  t =
 * 0..dim/2-1
 *
 * `scaling` stretches the frequencies for contexts longer than those trained on:
 *
 *     linear   f_t / factor
 *     ntk      base becomes base factor^(dim/(dim-2))
 *     yarn     f_t (1 - r_t) + f_t/factor r_t,  r_t = (t - low)/(high - low) held to 0..1,
 *              low = floor turns(beta_fast), high = ceil turns(beta_slow),
 *              turns(b) = dim ln(original/(2 pi b)) / (2 ln base); rotated entries times 0.1 ln(factor) + 1
 *     llama3   (1 - g_t) f_t/factor + g_t f_t,  g_t = (original f_t/(2 pi) - low)/(high - low) held to 0..1
 *
 * Entries from dim on stay as they are. Su et al.: RoFormer, 2021; Chen et al.: Position Interpolation, 2023;
 * Peng et al.: YaRN, 2023; Llama 3.1, 2024.
 */
#include "attend/position/rotate.h"

enum { BASE, DIM, PAIRS, SCALING };
enum { PAIRS_HALF, PAIRS_ADJACENT };
enum { LINEAR, NTK, YARN, LLAMA3 };
enum { FACTOR, ORIGINAL, BETA_FAST, BETA_SLOW, LOW = 2, HIGH };

static const double two_pi = 6.283185307179586476925;

static double held(double x)
{
    return x < 0.0 ? 0.0 : x > 1.0 ? 1.0 : x;
}

static double plain(double base, int dim, int t)
{
    return pow(base, -2.0 * t / dim);
}

static double linear(const double *option, double base, int dim, int t)
{
    return plain(base, dim, t) / option[FACTOR];
}

static double ntk(const double *option, double base, int dim, int t)
{
    return plain(base * pow(option[FACTOR], dim / (dim - 2.0)), dim, t);
}

/* The pair that turns `beta` times over the original context. */
static double turns(double beta, double original, double base, int dim)
{
    return dim * log(original / (two_pi * beta)) / (2.0 * log(base));
}

static double yarn(const double *option, double base, int dim, int t)
{
    const double low = fmax(floor(turns(option[BETA_FAST], option[ORIGINAL], base, dim)), 0.0);
    const double high = fmin(ceil(turns(option[BETA_SLOW], option[ORIGINAL], base, dim)), dim - 1.0);
    const double r = held((t - low) / fmax(high - low, 0.001)), f = plain(base, dim, t);
    return f * (1.0 - r) + f / option[FACTOR] * r;
}

static double llama3(const double *option, double base, int dim, int t)
{
    const double f = plain(base, dim, t), n = option[ORIGINAL] * f / two_pi;
    const double g = held((n - option[LOW]) / (option[HIGH] - option[LOW]));
    return (1.0 - g) * f / option[FACTOR] + g * f;
}

static double (*const scaled[])(const double *option, double base, int dim,
                                int t) = {[LINEAR] = linear, [NTK] = ntk, [YARN] = yarn, [LLAMA3] = llama3};

static heed_status resolve(heed_form_state *form)
{
    const long long rows = (long long)form->sizes.dim;
    if (!form->arg[DIM].given) {
        form->arg[DIM].number = (double)rows;
        if (rows % 2 != 0)
            return heed_fail(
                HEED_INVALID,
                "position=rope: rows of %lld entries cannot be rotated in pairs; give an even dim", rows);
    }
    const int dim = heed_arg_int(form, DIM);
    if (dim % 2 != 0)
        return heed_fail(HEED_INVALID,
                         "position=rope(dim=%d): dim must be even, for entries are rotated in pairs", dim);
    if (dim < 2 || dim > rows)
        return heed_fail(HEED_INVALID, "position=rope(dim=%d): dim must be 2 to %lld, the entries of a row",
                         dim, rows);
    const double base = form->arg[BASE].number;
    if (!(base > 0.0 && base < INFINITY))
        return heed_fail(HEED_INVALID, "position=rope(base=%g): the base must be above 0", base);
    const int scaling = (int)form->arg[SCALING].number;
    const double *option = form->arg[SCALING].sub;
    if (scaling >= 0 && !(option[FACTOR] > 0.0 && option[FACTOR] < INFINITY))
        return heed_fail(HEED_INVALID, "position=rope: the factor of scaling is %g, it must be above 0",
                         option[FACTOR]);
    if (scaling == YARN && base <= 1.0)
        return heed_fail(HEED_INVALID, "position=rope(base=%g): scaling=yarn needs a base above 1", base);
    if (scaling == LLAMA3 && option[HIGH] <= option[LOW])
        return heed_fail(HEED_INVALID, "position=rope: scaling=llama3 has high=%g, it must be above low=%g",
                         option[HIGH], option[LOW]);
    return HEED_OK;
}

static size_t table_bytes(const heed_form_state *form)
{
    return rotation_bytes(heed_arg_int(form, DIM) / 2, &form->sizes);
}

static void setup(heed_form_state *form)
{
    rotation *r = form->table;
    const int dim = heed_arg_int(form, DIM), scaling = (int)form->arg[SCALING].number;
    const double base = form->arg[BASE].number, *option = form->arg[SCALING].sub;
    *r = rotation_sized(dim / 2, &form->sizes);
    if (scaling == YARN && option[FACTOR] > 1.0)
        r->factor = (float)(0.1 * log(option[FACTOR]) + 1.0);
    double *frequency = rotation_frequency(r);
    for (int t = 0; t < r->half; t++)
        frequency[t] = scaling < 0 ? plain(base, dim, t) : scaled[scaling](option, base, dim, t);
    rotation_fill(r);
}

static void turn(const heed_form_state *form, float factor, const heed_rows *rows)
{
    if (form->arg[PAIRS].number == PAIRS_ADJACENT)
        rotate_rows(form->table, factor, rows, true, false);
    else
        rotate_rows(form->table, factor, rows, false, false);
}

static void rotate(const heed_form_state *form, const heed_rows *rows)
{
    const rotation *r = form->table;
    turn(form, r->factor, rows);
}

/* The factor is in the keys already. */
static void move_key(const heed_form_state *form, const heed_rows *rows)
{
    turn(form, 1.0f, rows);
}

static void rotate_backward(const heed_form_state *form, const heed_rows *rows)
{
    const rotation *r = form->table;
    if (form->arg[PAIRS].number == PAIRS_ADJACENT)
        rotate_rows(r, r->factor, rows, true, true);
    else
        rotate_rows(r, r->factor, rows, false, true);
}

#define FACTOR_ARG                                                                                           \
    {                                                                                                        \
        .name = "factor", .least = 0.0, .most = 1e6, .above = true, .required = true,                        \
        .summary = "how many times longer the context is"                                                    \
    }
#define ORIGINAL_ARG                                                                                         \
    {                                                                                                        \
        .name = "original", .kind = HEED_ARG_INT, .least = 1, .most = 1 << 30, .required = true,             \
        .summary = "context trained on, in tokens"                                                           \
    }

static const heed_arg factor_args[] = {FACTOR_ARG, {0}};
static const heed_arg yarn_args[] = {
    FACTOR_ARG,
    ORIGINAL_ARG,
    {.name = "beta_fast",
     .value = 32.0,
     .least = 0.0,
     .most = 1e6,
     .above = true,
     .summary = "turns over the original context from which a frequency is kept"},
    {.name = "beta_slow",
     .value = 1.0,
     .least = 0.0,
     .most = 1e6,
     .above = true,
     .summary = "turns below which it is divided by the factor"},
    {0},
};
static const heed_arg llama3_args[] = {
    FACTOR_ARG,
    ORIGINAL_ARG,
    {.name = "low",
     .value = 1.0,
     .summary = "turns over the original context below which a frequency is divided"},
    {.name = "high", .value = 4.0, .summary = "turns from which it is kept"},
    {0},
};
static const heed_option scaling_options[] = {
    [LINEAR] = {"linear", factor_args},
    [NTK] = {"ntk", factor_args},
    [YARN] = {"yarn", yarn_args},
    [LLAMA3] = {"llama3", llama3_args},
    {0},
};
static const heed_option pairs_options[] = {
    [PAIRS_HALF] = {"half", NULL}, [PAIRS_ADJACENT] = {"adjacent", NULL}, {0}};

static const heed_arg args[] = {
    [BASE] = {.name = "base",
              .value = 10000.0,
              .least = 0.0,
              .most = 1e30,
              .above = true,
              .summary = "base of the frequencies"},
    [DIM] = {.name = "dim",
             .kind = HEED_ARG_INT,
             .value = NAN,
             .computed = "D",
             .least = 2,
             .most = 65536,
             .summary = "entries that are rotated, the first of each row; even"},
    [PAIRS] = {.name = "pairs",
               .kind = HEED_ARG_CHOICE,
               .value = PAIRS_HALF,
               .options = pairs_options,
               .summary = "half: t goes with t + dim/2; adjacent: 2t with 2t + 1"},
    [SCALING] = {.name = "scaling",
                 .kind = HEED_ARG_OPTION,
                 .value = -1,
                 .options = scaling_options,
                 .summary = "how frequencies are stretched for longer contexts"},
    {0},
};

const heed_form HEED_FORM(position_rope) = {
    .name = "rope",
    .stage = HEED_POSITION,
    .summary = "rotates pairs of entries of q and k by an angle that grows with position",
    .formula = "pair t of q by p(i) f_t, of k by k_pos(j) f_t, f_t = base^(-2t/dim)",
    .source = "Su et al. 2021; yarn: Peng et al. 2023",
    .flags = HEED_ROTATES,
    .args = args,
    .resolve = resolve,
    .table_bytes = table_bytes,
    .setup = setup,
    .prepare_query = rotate,
    .prepare_query_backward = rotate_backward,
    .prepare_key = rotate,
    .prepare_key_backward = rotate_backward,
    .move_key = move_key,
};
