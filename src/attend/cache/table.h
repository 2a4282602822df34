/* The cache forms, one a line. */
HEED_ENTRY(cache_f32)
HEED_ENTRY(cache_f16)
HEED_ENTRY(cache_bf16)
HEED_ENTRY(cache_q8)
HEED_ENTRY(cache_q4)
