/* The read forms, one a line. */
HEED_ENTRY(read_sum)
HEED_ENTRY(read_gate)
