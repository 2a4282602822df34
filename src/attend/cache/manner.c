/* How a chain of policies acts: when, and where kept keys then stand. Each stands anywhere behind a judge and
 * holds for the whole chain.
 *
 * Without them a chain acts when a prompt ends and, while tokens are generated, whenever so many keys more
 * than its budget are held that acting costs a twentieth of what attention does meanwhile (at least 64, and
 * at most a quarter of the budget), and keys keep their positions in the text.
 */
#include "attend/cache/judge.h"

static const heed_policy packed = {.manner = HEED_MANNER_PACKED};
static const heed_policy every = {.manner = HEED_MANNER_EVERY};
static const heed_policy chunked = {.manner = HEED_MANNER_CHUNKED};
static const heed_policy prompt_only = {.manner = HEED_MANNER_PREFILL};

static const heed_arg every_args[] = {
    {.name = "n", .kind = HEED_ARG_INT, .least = 1, .most = INFINITY, .required = true, .summary = "keys"},
    {0},
};

static const heed_arg chunked_args[] = {
    {.name = "n", .kind = HEED_ARG_INT, .least = 1, .most = INFINITY, .required = true, .summary = "tokens"},
    {0},
};

const heed_form HEED_FORM(cache_packed) = {
    .name = "packed",
    .stage = HEED_CACHE,
    .summary = "kept keys move up to positions 0, 1, 2, ..., rotated anew; else they keep their places",
    .formula = "the position of a key is the number of keys held before it",
    .policy = &packed,
};

const heed_form HEED_FORM(cache_every) = {
    .name = "every",
    .stage = HEED_CACHE,
    .summary = "while tokens are generated the policy acts when n keys more than its budget are held",
    .formula =
        "acts when held - budget >= n; without, n = 20 times what acting costs in queries, 64 at least, a "
        "quarter of the budget at most",
    .args = every_args,
    .policy = &every,
};

const heed_form HEED_FORM(cache_chunked) = {
    .name = "chunked",
    .stage = HEED_CACHE,
    .summary = "the policy acts during a long prompt too, every n tokens; else at its end only",
    .formula = "a prompt is read n tokens at a time, and acted on after each",
    .args = chunked_args,
    .policy = &chunked,
};

const heed_form HEED_FORM(cache_prompt_only) = {
    .name = "prompt_only",
    .stage = HEED_CACHE,
    .summary = "the policy acts when a prompt ends and never while tokens are generated",
    .formula = "generated tokens are kept",
    .policy = &prompt_only,
};
