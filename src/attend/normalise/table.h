/* The normalise forms, one a line. */
