#include "eval/usage.h"

double heed_usage_bytes(const heed_session *session)
{
    heed_session_usage usage;
    heed_session_get_usage(session, &usage);
    return (double)usage.bytes;
}
