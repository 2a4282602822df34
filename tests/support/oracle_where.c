/* where: which pairs may be seen. */
#include "support/oracle_parts.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* One coordinate of a neighbourhood, its window moved inside at the borders. */
static bool near(int64_t query, int64_t key, int64_t side, int64_t radius)
{
    if (side < 2 * radius + 1)
        return true;
    int64_t first = query - radius;
    first = first < 0 ? 0 : first;
    first = first > side - (2 * radius + 1) ? side - (2 * radius + 1) : first;
    return key >= first && key <= first + 2 * radius;
}

static uint64_t hash(uint64_t seed, uint64_t block, uint64_t d)
{
    uint64_t z = seed * 0x9E3779B97F4A7C15u + block * 0xBF58476D1CE4E5B9u + d * 0x94D049BB133111EBu;
    z = (z ^ z >> 30) * 0xBF58476D1CE4E5B9u;
    z = (z ^ z >> 27) * 0x94D049BB133111EBu;
    return z ^ z >> 31;
}

static int64_t block_of(const oracle_form *f, int64_t pos)
{
    return floor_div(pos, (int64_t)oracle_number(f, 3, "block", 64));
}

double oracle_block_share(const oracle_form *f, int64_t pos, int64_t key_pos)
{
    const int64_t query = block_of(f, pos), key = block_of(f, key_pos);
    if (query == key || key == 0)
        return 1;
    return fmax(oracle_number(f, 1, "pmin", 0.1),
                exp(-oracle_number(f, 0, "lam", 0.05) * (double)llabs(query - key)));
}

static bool oracle_block_drawn(const oracle_form *f, int64_t pos, int64_t key_pos)
{
    const uint64_t factor[2] = {0xBF58476D1CE4E5B9u, 0x94D049BB133111EBu};
    uint64_t z = (uint64_t)(int64_t)oracle_number(f, 2, "seed", 0) * 0x9E3779B97F4A7C15u;
    z += (uint64_t)block_of(f, pos) * factor[0] + (uint64_t)block_of(f, key_pos) * factor[1];
    z = (z ^ (z >> 30)) * factor[0];
    z = (z ^ (z >> 27)) * factor[1];
    z = z ^ (z >> 31);
    return ldexp((double)(z >> 11), -53) < oracle_block_share(f, pos, key_pos);
}

static bool in_random_blocks(int64_t pos, int64_t key_pos, int64_t keys, int64_t n, int64_t block,
                             uint64_t seed)
{
    const int64_t blocks = (keys + block - 1) / block;
    const int64_t wanted = floor_div(key_pos, block);
    if (wanted < 0 || wanted >= blocks)
        return false;
    bool *chosen = calloc((size_t)blocks, sizeof *chosen);
    int64_t found = 0;
    for (uint64_t d = 0; found < n && found < blocks; d++) {
        const int64_t c = (int64_t)(hash(seed, (uint64_t)floor_div(pos, block), d) % (uint64_t)blocks);
        found += !chosen[c];
        chosen[c] = true;
    }
    const bool open = chosen[wanted];
    free(chosen);
    return open;
}

static const int32_t *entry_row(const int32_t *x, bool batched, int64_t b, int64_t n)
{
    return batched ? x + b * n : x;
}

static bool form_sees(const oracle_row *row, const oracle_form *f, int64_t h, int64_t j, int64_t key_end)
{
    const oracle_problem *problem = &row->o->problem;
    const int64_t p = row->pos, kp = row->key[h * problem->keys + j].pos, distance = p - kp;
    const char *name = f->name;
    const int64_t n0 = (int64_t)oracle_number(f, 0, "", 0), n1 = (int64_t)oracle_number(f, 1, "", 0);
    if (strcmp(name, "all") == 0)
        return true;
    if (strcmp(name, "none") == 0)
        return false;
    if (strcmp(name, "causal") == 0)
        return kp <= (oracle_word_is(f, 0, "align", "start") ? row->i : p);
    if (strcmp(name, "window") == 0)
        return llabs(distance) < n0;
    if (strcmp(name, "dilated") == 0)
        return llabs(distance) < n0 * n1 && floor_mod(distance, n1) == 0;
    if (strcmp(name, "first") == 0)
        return kp < n0;
    if (strcmp(name, "last") == 0)
        return kp >= key_end - n0;
    if (strcmp(name, "block") == 0)
        return floor_div(p, n0) == floor_div(kp, n0);
    if (strcmp(name, "strided") == 0)
        return floor_mod(distance, n0) == 0;
    if (strcmp(name, "global") == 0)
        return p < n0 || kp < n0;
    if (strcmp(name, "self") == 0)
        return distance == 0;
    if (strcmp(name, "segments") == 0)
        return entry_row(problem->q_segment, problem->q_segment_batched, row->b, problem->queries)[row->i] ==
               entry_row(problem->k_segment, problem->k_segment_batched, row->b, problem->keys)[j];
    if (strcmp(name, "neighbourhood") == 0) {
        const int64_t radius = (int64_t)oracle_number(f, 2, "radius", 0), places = n0 * n1;
        return p >= 0 && p < places && kp >= 0 && kp < places && near(p / n1, kp / n1, n0, radius) &&
               near(p % n1, kp % n1, n1, radius);
    }
    if (strcmp(name, "random") == 0)
        return in_random_blocks(p, kp, problem->keys, n0, n1, (uint64_t)oracle_number(f, 2, "seed", 0));
    if (strcmp(name, "dam") == 0)
        return oracle_dam_sees(row, f, h, kp);
    if (strcmp(name, "columns") == 0) {
        const int64_t c = (int64_t)oracle_number(f, 1, "c", 1), at = (int64_t)oracle_number(f, 2, "at", 0);
        const int64_t place = floor_mod(kp, n0);
        return place >= n0 - (at + 1) * c && place < n0 - at * c;
    }
    if (strcmp(name, "power") == 0) {
        const int64_t size = (int64_t)oracle_number(f, 0, "block", 64), key = floor_div(kp, size);
        const int64_t apart = llabs(floor_div(p, size) - key);
        for (int64_t two = 1; two <= apart; two *= 2)
            if (two == apart)
                return true;
        return apart < (int64_t)oracle_number(f, 1, "w", 1) ||
               (key >= 0 && key < (int64_t)oracle_number(f, 2, "s", 1));
    }
    if (strcmp(name, "halo") == 0) {
        const int64_t b = (int64_t)oracle_number(f, 2, "b", 8), rim = (int64_t)oracle_number(f, 3, "h", 3);
        if (p < 0 || p >= n0 * n1 || kp < 0 || kp >= n0 * n1)
            return false;
        const int64_t r = p / n1 / b * b, c = p % n1 / b * b;
        return kp / n1 >= r - rim && kp / n1 < r + b + rim && kp % n1 >= c - rim && kp % n1 < c + b + rim;
    }
    if (strcmp(name, "arrow") == 0) {
        const int32_t mine =
            entry_row(problem->q_segment, problem->q_segment_batched, row->b, problem->queries)[row->i];
        const int32_t other =
            entry_row(problem->k_segment, problem->k_segment_batched, row->b, problem->keys)[j];
        return mine == other || other == 0 || (mine == 0 && !oracle_word_is(f, 0, "one_way", "yes"));
    }
    if (strcmp(name, "lsg") == 0) {
        const int64_t b = (int64_t)oracle_number(f, 0, "b", 128), s = (int64_t)oracle_number(f, 1, "s", 128);
        const int64_t factor = (int64_t)oracle_number(f, 2, "f", 2), g = (int64_t)oracle_number(f, 3, "g", 1);
        const int64_t first = (floor_div(p, b) - 1) * b, end = first + 3 * b;
        return (kp >= first && kp < end) || p < g || kp < g ||
               (kp >= first - factor * s && kp < end + factor * s && floor_mod(kp, factor) == h % factor);
    }
    if (strcmp(name, "pr_blocks") == 0)
        return oracle_block_drawn(f, p, kp);
    if (strcmp(name, "mask") == 0) {
        const int64_t b = problem->mask_batch == 1 ? 0 : row->b, head = problem->mask_heads == 1 ? 0 : h;
        return problem
            ->mask[((b * problem->mask_heads + head) * problem->queries + row->i) * problem->keys + j];
    }
    fprintf(stderr, "the oracle knows no where=%s\n", name);
    abort();
}

bool oracle_sees(const oracle_row *row, const oracle_node *where, int64_t h, int64_t j, int64_t key_end)
{
    if (!where)
        return true;
    switch (where->kind) {
    case '!':
        return !oracle_sees(row, where->left, h, j, key_end);
    case '&':
        return oracle_sees(row, where->left, h, j, key_end) && oracle_sees(row, where->right, h, j, key_end);
    case '|':
        return oracle_sees(row, where->left, h, j, key_end) || oracle_sees(row, where->right, h, j, key_end);
    default:
        return form_sees(row, &where->form, h, j, key_end);
    }
}
