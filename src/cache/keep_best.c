/* The keys that a budget keeps: both ends and the highest scores between them. */
#include "attend/cache/best.h"
#include "cache/keep_parts.h"

#include <string.h>

void heed_keep_best(const float *score, int64_t count, int64_t budget, int64_t first, int64_t recent,
                    uint8_t *keep, float *work)
{
    if (budget >= count) {
        memset(keep, 1, (size_t)count);
        return;
    }
    first = first < budget ? first : budget;
    recent = recent < budget - first ? recent : budget - first;
    const int64_t end = count - recent;
    memset(keep, 1, (size_t)count);
    heed_score_cut cut = heed_cut_of(score + first, end - first, budget - first - recent, work);
    for (int64_t j = end - 1; j >= first; j--) {
        const bool tie = score[j] == cut.score && cut.ties > 0;
        keep[j] = score[j] > cut.score || tie || score[j] == INFINITY;
        cut.ties -= tie;
    }
}
