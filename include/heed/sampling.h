/**
 * @file sampling.h
 * From logits to the next token, and from tokens to a text that stops in time.
 */
#ifndef HEED_SAMPLING_H
#define HEED_SAMPLING_H

#include <heed/base.h>

#ifdef __cplusplus
extern "C" {
#endif

/**
 * How the next token is drawn. Zeroed, it is the most likely one. The steps follow each other in this order:
 * penalties, temperature, top_k, top_p, min_p; each works on the probabilities that those before it left.
 */
typedef struct heed_sampling {
    float temperature; /**< logits are divided by it; 0: the most likely token, of equal ones that of the
                          least number */
    int32_t top_k;     /**< this many of the most likely tokens; 0: all */
    float top_p;       /**< as few of the most likely tokens as have this probability together; 0 or 1: all */
    float
        min_p; /**< tokens that have at least this share of the probability of the most likely one; 0: all */
    float repetition;       /**< tokens that were there: positive logits are divided by it, negative ones
                               multiplied; 0 or 1: none */
    float frequency;        /**< subtracted from a logit for each time the token was there */
    float presence;         /**< subtracted once from the logit of a token that was there */
    int64_t penalty_window; /**< penalties look at so many of the last tokens; 0: all of them */
    uint64_t seed;
} heed_sampling;

/** A way to draw, with the memory it needs. One thread at a time. */
typedef struct heed_sampler heed_sampler;

/** Checks the wishes. HEED_INVALID with the wrong one and what would be right, HEED_NO_MEMORY. */
HEED_API heed_status heed_sampler_create(heed_sampler **sampler, const heed_sampling *sampling,
                                         int64_t vocabulary);
HEED_API void heed_sampler_free(heed_sampler *sampler);

/**
 * Draws a token.
 * @param logits [vocabulary]; unchanged. -infinity: never.
 * @param past [count] the tokens that penalties look at, oldest first; may be NULL when count is 0.
 * @param stream, position which sequence it is for, and where: together with the seed they are the random
 * number, whatever was drawn before or is drawn beside it, on every machine.
 * @return HEED_INVALID when a logit is not a number, or none is above -infinity.
 */
HEED_API heed_status heed_sample(heed_sampler *sampler, const float *logits, const int32_t *past,
                                 int64_t count, uint64_t stream, uint64_t position, int32_t *token);

/** The number in [0, 1) that belongs to a seed, a stream and a position: Philox 4x32-10 (Salmon et al. 2011),
 * 53 bits. */
HEED_API double heed_uniform(uint64_t seed, uint64_t stream, uint64_t position);

/** log(sum(exp(logits))) of @p count logits, in double; -infinity when all are. */
HEED_API double heed_log_sum_exp(const float *logits, int64_t count);

/** A token and the logarithm of its probability. */
typedef struct heed_logprob {
    int32_t token;
    double logprob;
} heed_logprob;

/** The @p top most likely tokens, likeliest first, of equal ones the least number first. Returns how many
 * there are: top, or the vocabulary if that is less. */
HEED_API int64_t heed_top_logprobs(const float *logits, int64_t vocabulary, int64_t top, heed_logprob *best);

/**
 * Stop strings over a text that comes in pieces. Nothing of a stop is ever given out, nothing else is held
 * back for longer than it could become one. The text ends where the first stop is complete; of several that
 * are complete there, before the longest.
 */
typedef struct heed_stops heed_stops;

/** HEED_INVALID for an empty stop, HEED_NO_MEMORY. */
HEED_API heed_status heed_stops_create(heed_stops **stops, const char *const *texts, int count);
HEED_API void heed_stops_free(heed_stops *stops);
/** Forgets the text so far. */
HEED_API void heed_stops_restart(heed_stops *stops);

/**
 * More text. @p out and @p out_size become what may be shown now, valid until the next call. Returns HEED_OK,
 * or HEED_NO_MEMORY. After a stop was met nothing more comes out.
 */
HEED_API heed_status heed_stops_push(heed_stops *stops, const char *text, size_t size, const char **out,
                                     size_t *out_size);
/** The text is at its end: what was held back. */
HEED_API void heed_stops_flush(heed_stops *stops, const char **out, size_t *out_size);
/** Which stop was met; -1: none yet. */
HEED_API int heed_stops_met(const heed_stops *stops);

#ifdef __cplusplus
}
#endif
#endif
