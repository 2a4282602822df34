#include "attend/kernels/flash.h"

const char *heed_decode_refuses(const heed_plan *plan, const heed_pipeline *pipeline)
{
    (void)plan;
    (void)pipeline;
    return "it is not built";
}

int64_t heed_decode_most_queries(const heed_plan *plan, const heed_pipeline *pipeline)
{
    (void)plan;
    (void)pipeline;
    return 0;
}

void heed_decode_layout(const heed_plan *plan, heed_pipeline *pipeline, size_t *shared, size_t *per_thread)
{
    (void)plan;
    (void)pipeline;
    (void)shared;
    (void)per_thread;
}

void heed_decode_forward(const heed_run *run, const heed_pipeline *pipeline)
{
    (void)run;
    (void)pipeline;
}
