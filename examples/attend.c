/* Causal attention over eight tokens, in ten lines. */
#include <heed/heed.h>
#include <stdio.h>

int main(void)
{
    static float q[2 * 8 * 4], k[2 * 8 * 4], v[2 * 8 * 4], out[2 * 8 * 4]; /* [1, heads 2, tokens 8, dim 4] */
    for (int i = 0; i < 2 * 8 * 4; i++)
        q[i] = k[i] = v[i] = (float)(i % 7) - 3.0f;
    const int64_t shape[] = {1, 2, 8, 4};
    const heed_tensor Q = heed_tensor_dense(q, HEED_F32, 4, shape),
                      K = heed_tensor_dense(k, HEED_F32, 4, shape),
                      V = heed_tensor_dense(v, HEED_F32, 4, shape),
                      O = heed_tensor_dense(out, HEED_F32, 4, shape);
    const heed_problem problem = {.batch = 1, .heads = 2, .queries = 8, .keys = 8, .dim = 4};
    heed_plan *plan;
    if (heed_plan_create(&plan, "position=rope; where=causal & window(4)", &problem) ||
        heed_attend(plan, &Q, &K, &V, &O, NULL))
        return fprintf(stderr, "%s\n", heed_message()), 1;
    for (int i = 0; i < 8; i++)
        printf("token %d: %8.5f %8.5f %8.5f %8.5f\n", i, out[4 * i], out[4 * i + 1], out[4 * i + 2],
               out[4 * i + 3]);
    heed_plan_free(plan);
}
