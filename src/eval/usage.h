/* What a session's caches take now. */
#ifndef HEED_EVAL_USAGE_H
#define HEED_EVAL_USAGE_H

#include <heed/model.h>

double heed_usage_bytes(const heed_session *session);

#endif
