/* The low-rank forms, one a line. */
HEED_ENTRY(linformer)
HEED_ENTRY(nystrom)
HEED_ENTRY(efficient)
HEED_ENTRY(fast)
