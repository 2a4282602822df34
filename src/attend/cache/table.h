/* The cache forms, one a line. */
