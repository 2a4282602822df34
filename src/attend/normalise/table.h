/* The normalise forms, one a line. */
HEED_ENTRY(normalise_softmax)
HEED_ENTRY(normalise_softmax1)
HEED_ENTRY(normalise_sink)
HEED_ENTRY(normalise_sigmoid)
HEED_ENTRY(normalise_relu)
HEED_ENTRY(normalise_sparsemax)
HEED_ENTRY(normalise_entmax)
HEED_ENTRY(normalise_softcap)
