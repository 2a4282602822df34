/* Which learnt tensors a session's attention takes at their initial values. */
#include "attend/spec_reader.h"
#include "model/session.h"

#include <string.h>

/* Whether a plan of an earlier kind has the tensor already. */
static bool known(const heed_session *session, int kinds, const char *name)
{
    for (int k = 0; k < kinds; k++) {
        const heed_plan *plan = session->kind[k].rung[0];
        heed_plan_param_info info;
        for (int i = 0; i < heed_plan_params(plan); i++)
            if (!heed_plan_param(plan, i, &info) && !strcmp(info.name, name))
                return true;
    }
    return false;
}

size_t heed_session_untrained(const heed_session *session, char *text, size_t size)
{
    heed_out out = {text, size, 0};
    if (size)
        text[0] = 0;
    for (int k = 0; k < session->kinds; k++) {
        const heed_plan *plan = session->kind[k].rung[0];
        heed_plan_param_info info;
        for (int i = 0; i < heed_plan_params(plan); i++)
            if (!heed_plan_param(plan, i, &info) && !known(session, k, info.name)) {
                heed_put(&out, out.length ? ", " : "");
                heed_put(&out, info.name);
            }
    }
    return out.length;
}
