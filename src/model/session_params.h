/* Learnt tensors that come beside a model, in a session. */
#ifndef HEED_MODEL_SESSION_PARAMS_H
#define HEED_MODEL_SESSION_PARAMS_H

#include "model/session.h"

/* Reads the file that options name, if they do. Refuses tensors of layers or parameters that do not exist. */
heed_status heed_session_open_params(heed_session *session, const heed_session_options *options);

/* A layer's tensors, in the order of its plans' parameters: layer->param. Refuses wrong shapes, and required
 * ones that are missing. */
heed_status heed_session_bind_params(heed_session *session, int64_t layer);

#endif
