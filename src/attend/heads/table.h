/* The heads forms, one a line. */
HEED_ENTRY(heads_shared)
HEED_ENTRY(heads_talking)
