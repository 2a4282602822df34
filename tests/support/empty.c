/* The support library is never without a source. */
typedef int heed_test_support_is_never_empty;
