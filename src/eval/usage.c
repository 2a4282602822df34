#include "eval/usage.h"

void heed_usage_of(const heed_session *session, heed_session_usage *usage)
{
    heed_session_info info;
    heed_session_get_info(session, &info);
    const size_t bytes = (size_t)(info.cache_token_bytes * (double)heed_session_length(session, 0));
    *usage = (heed_session_usage){.bytes = bytes, .peak_bytes = bytes};
}

double heed_usage_bytes(const heed_session *session)
{
    heed_session_usage usage;
    heed_usage_of(session, &usage);
    return (double)usage.bytes;
}
