/* The select forms, one a line. */
HEED_ENTRY(select_top_k)
HEED_ENTRY(select_top_p)
HEED_ENTRY(select_threshold)
HEED_ENTRY(select_quest)
HEED_ENTRY(select_moba)
HEED_ENTRY(select_block_top)
HEED_ENTRY(select_vertical_slash)
HEED_ENTRY(select_sample)
