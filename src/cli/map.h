/* A run of heed map, shared by what reads and what shows. */
#ifndef HEED_CLI_MAP_H
#define HEED_CLI_MAP_H

#include "cli/inputs.h"
#include "cli/language.h"
#include "plot/plot.h"

typedef struct map_options {
    cli_language use;
    const char *output;
    cli_list layers, heads;
    bool grid, tokens, summary;
} map_options;

typedef struct map_run {
    map_options options;
    cli_pool pool;
    heed_model *model;
    heed_model_info info;
    heed_tokens tokens;
    int64_t dropped;
    bool picture, numpy, safetensors; /* what is written */
    int64_t *layer, *head;            /* [layers], [heads] their numbers */
    int64_t layers, heads, maps;      /* chosen; maps = layers heads */
    int64_t *place;                   /* [model's layers, heads] number of the map; -1: not chosen */
    uint8_t *chosen;                  /* [model's layers, heads] */
    heed_plot_pool *drawn;            /* NULL where no map is drawn */
    float *weights;                   /* [maps, tokens, tokens] or NULL */
    float *entropy, *received;        /* [maps, tokens] or NULL */
} map_run;

heed_status cli_map_draw(map_run *run);
/* What the user reads: where the picture is, or the statistics. */
heed_status cli_map_report(map_run *run);

#endif
