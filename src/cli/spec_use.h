/* What a spec asks of the tensors that go with it. */
#ifndef HEED_CLI_SPEC_USE_H
#define HEED_CLI_SPEC_USE_H

#include <heed/attend.h>

typedef struct cli_spec_use {
    unsigned flags;         /* heed_form_flags of all its forms together */
    heed_type keys, values; /* what the `cache` clause stores k and v as; HEED_TYPES where it does not say */
} cli_spec_use;

/* Parses the spec for one layer. */
heed_status cli_spec_use_of(const char *spec, int64_t layer, cli_spec_use *use);

/* The types that k and v are stored as, from --kv (an index of cli_kv_word, or -1) and the spec; HEED_TYPES
 * where neither says. HEED_INVALID when they disagree, or when there are gradients to compute. */
heed_status cli_kv_types(int kv, const cli_spec_use *use, bool backward, heed_type type[2]);

#endif
