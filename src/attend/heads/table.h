/* The heads forms, one a line. */
