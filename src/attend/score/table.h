/* The score forms, one a line. */
HEED_ENTRY(score_dot)
HEED_ENTRY(score_cosine)
HEED_ENTRY(score_bilinear)
HEED_ENTRY(score_additive)
HEED_ENTRY(score_mlp)
HEED_ENTRY(score_gaussian)
HEED_ENTRY(score_laplace)
