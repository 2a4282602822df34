#include "train/synthetic.h"

#include <stddef.h>

extern const heed_synthetic heed_synthetic_copy, heed_synthetic_selective_copy, heed_synthetic_reversal,
    heed_synthetic_sorting, heed_synthetic_recall, heed_synthetic_multi_recall, heed_synthetic_induction,
    heed_synthetic_needle, heed_synthetic_parity, heed_synthetic_dyck, heed_synthetic_addition,
    heed_synthetic_regression, heed_synthetic_listops, heed_synthetic_graph, heed_synthetic_melody,
    heed_synthetic_events, heed_synthetic_pathfinder, heed_synthetic_shapes, heed_synthetic_points,
    heed_synthetic_blocks, heed_synthetic_same, heed_synthetic_flip_flop, heed_synthetic_counting,
    heed_synthetic_rows, heed_synthetic_texture, heed_synthetic_logs, heed_synthetic_sparse,
    heed_synthetic_scene, heed_synthetic_tones, heed_synthetic_digits, heed_synthetic_salient,
    heed_synthetic_clips, heed_synthetic_denoise, heed_synthetic_odd, heed_synthetic_replies,
    heed_synthetic_tune, heed_synthetic_glyphs;

static const heed_synthetic *const tasks[] = {
    &heed_synthetic_copy,      &heed_synthetic_selective_copy, &heed_synthetic_reversal,
    &heed_synthetic_sorting,   &heed_synthetic_recall,         &heed_synthetic_multi_recall,
    &heed_synthetic_induction, &heed_synthetic_needle,         &heed_synthetic_parity,
    &heed_synthetic_dyck,      &heed_synthetic_addition,       &heed_synthetic_regression,
    &heed_synthetic_listops,   &heed_synthetic_graph,          &heed_synthetic_melody,
    &heed_synthetic_events,    &heed_synthetic_pathfinder,     &heed_synthetic_shapes,
    &heed_synthetic_points,    &heed_synthetic_blocks,         &heed_synthetic_same,
    &heed_synthetic_flip_flop, &heed_synthetic_counting,       &heed_synthetic_rows,
    &heed_synthetic_texture,   &heed_synthetic_logs,           &heed_synthetic_sparse,
    &heed_synthetic_scene,     &heed_synthetic_tones,          &heed_synthetic_digits,
    &heed_synthetic_salient,   &heed_synthetic_clips,          &heed_synthetic_denoise,
    &heed_synthetic_odd,       &heed_synthetic_replies,        &heed_synthetic_tune,
    &heed_synthetic_glyphs,
};

const heed_synthetic *heed_synthetic_at(int i)
{
    return i >= 0 && i < (int)(sizeof tasks / sizeof *tasks) ? tasks[i] : NULL;
}
