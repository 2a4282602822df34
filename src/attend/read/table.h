/* The read forms, one a line. */
