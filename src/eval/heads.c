#include "eval/heads.h"
#include "base/try.h"

#include <math.h>
#include <stdlib.h>

/* Each weight that counts has a place of its own, so that sums do not depend on the order of tiles. */
typedef struct search {
    int64_t heads, start, block, repeats;
    float *echo, *induction; /* [layers, heads, repeats block, repeats]: by how many blocks back it looks */
} search;

static size_t place_of(const search *s, int64_t layer, int64_t head, int64_t query, int64_t back)
{
    const int64_t row = (layer * s->heads + head) * s->repeats * s->block + query;
    return (size_t)(row * s->repeats + back);
}

static void take_tile(void *context, int64_t layer, int64_t sequence, const heed_weights_tile *tile)
{
    const search *s = context;
    (void)sequence;
    for (int r = 0; r < tile->rows; r++) {
        const int64_t query = tile->query0 + r - s->start;
        for (int64_t back = 1; query >= s->block && query < s->block * s->repeats && back * s->block <= query;
             back++) {
            const int64_t same = query - back * s->block + s->start - tile->key0, next = same + 1;
            const float *row = tile->weight + r * tile->stride;
            const size_t place = place_of(s, layer, tile->head, query, back);
            if (same >= 0 && same < tile->cols)
                s->echo[place] = row[same];
            if (next >= 0 && next < tile->cols)
                s->induction[place] = row[next];
        }
    }
}

static void sum_up(const search *s, int64_t layers, heed_head_scores *score)
{
    const int64_t n = s->block * s->repeats;
    for (int64_t h = 0; h < layers * s->heads; h++) {
        double echo = 0.0, induction = 0.0;
        for (int64_t query = s->block; query < n; query++)
            for (int64_t back = 1; back < s->repeats; back++) {
                const size_t place = (size_t)((h * n + query) * s->repeats + back);
                echo += (double)s->echo[place];
                induction += (double)s->induction[place];
            }
        score[h] = (heed_head_scores){(float)(echo / (double)(n - s->block)),
                                      (float)(induction / (double)(n - s->block))};
    }
}

heed_status heed_heads_score(heed_session *session, const heed_model *model, const heed_material *material,
                             int64_t block, int64_t repeats, uint64_t seed, heed_head_scores *score)
{
    heed_model_info info;
    heed_model_get_info(model, &info);
    heed_tokens text = {.id = NULL};
    heed_dice dice = heed_dice_for(seed, 9);
    const size_t places = (size_t)(info.layers * info.heads * block * repeats) * (size_t)repeats;
    search s = {info.heads, material->start.count,         block,
                repeats,    calloc(places, sizeof(float)), calloc(places, sizeof(float))};
    heed_status status = s.echo && s.induction
                             ? heed_tokens_join(&text, &material->start)
                             : heed_fail(HEED_NO_MEMORY, "no memory for the weights of %zu links", places);
    for (int64_t i = 0; i < block && !status; i++)
        status = heed_tokens_add(&text, heed_material_token(material, &dice));
    for (int64_t i = block; i < block * repeats && !status; i++)
        status = heed_tokens_add(&text, text.id[s.start + i - block]);
    if (!status)
        status = heed_feed(session, &(heed_feed_item){.tokens = text.id, .count = text.count}, 1,
                           &(heed_feed_wants){.weights = take_tile, .context = &s});
    if (!status)
        sum_up(&s, info.layers, score);
    heed_tokens_free(&text);
    free(s.echo);
    free(s.induction);
    return status;
}

/* Marks the `share` of all heads with the highest values of one of the two scores. */
static void mark(const heed_head_scores *score, int64_t heads, double share, bool echo, bool *taken,
                 bool *retrieval)
{
    const int64_t count = (int64_t)fmax(1.0, floor(share * (double)heads + 0.5));
    for (int64_t h = 0; h < heads; h++)
        taken[h] = false;
    for (int64_t i = 0; i < count && i < heads; i++) {
        int64_t best = -1;
        for (int64_t h = 0; h < heads; h++) {
            const float x = echo ? score[h].echo : score[h].induction;
            if (!taken[h] && (best < 0 || x > (echo ? score[best].echo : score[best].induction)))
                best = h;
        }
        taken[best] = retrieval[best] = true;
    }
}

heed_status heed_heads_classify(const heed_head_scores *score, int64_t heads, double echo, double induction,
                                bool *retrieval)
{
    bool *taken = calloc((size_t)heads + 1, sizeof *taken);
    if (!taken)
        return heed_fail(HEED_NO_MEMORY, "no memory for the classes of %lld heads", (long long)heads);
    for (int64_t h = 0; h < heads; h++)
        retrieval[h] = false;
    mark(score, heads, echo, true, taken, retrieval);
    mark(score, heads, induction, false, taken, retrieval);
    free(taken);
    return HEED_OK;
}
