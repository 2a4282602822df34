/* Published combinations: a name that stands for a whole spec. What is written after it overrides its
 * clauses. */
#include "attend/registry.h"

#define WHOLE .kind = HEED_ARG_INT, .least = 1, .most = INFINITY

static const heed_arg streaming_args[] = {
    {.name = "first", WHOLE, .value = 4, .summary = "first tokens that stay in sight"},
    {.name = "window", WHOLE, .value = 1020, .summary = "last tokens in sight, the query's own counted"},
    {0},
};

static const heed_arg twilight_args[] = {
    {.name = "p", .value = 0.95, .most = 1.0, .above = true, .summary = "share of the weight that is kept"},
    {.name = "page", WHOLE, .value = 16, .summary = "keys a page"},
    {.name = "budget", WHOLE, .value = 1024, .summary = "tokens in the pages looked at"},
    {0},
};

static const heed_arg twilight_estimated_args[] = {
    {.name = "p", .value = 0.95, .most = 1.0, .above = true, .summary = "share of the weight that is kept"},
    {.name = "page", WHOLE, .value = 16, .summary = "keys a page"},
    {.name = "budget", WHOLE, .value = 1024, .summary = "tokens in the pages looked at"},
    {.name = "bits",
     .kind = HEED_ARG_INT,
     .least = 1,
     .most = 16,
     .value = 4,
     .summary = "of an entry of the copy of the keys"},
    {0},
};

static const heed_arg longformer_args[] = {
    {.name = "window", WHOLE, .value = 257, .summary = "distances below it are open, to both sides"},
    {.name = "global", WHOLE, .value = 1, .summary = "first tokens that see all and are seen by all"},
    {0},
};

static const heed_arg bigbird_args[] = {
    {.name = "window", WHOLE, .value = 97, .summary = "distances below it are open, to both sides"},
    {.name = "global", WHOLE, .value = 128, .summary = "first tokens that see all and are seen by all"},
    {.name = "random", WHOLE, .value = 3, .summary = "key blocks drawn for each block of queries"},
    {.name = "block", WHOLE, .value = 64, .summary = "tokens in a block"},
    {.name = "seed", .kind = HEED_ARG_INT, .most = 2147483647, .summary = "chooses the random blocks"},
    {0},
};

static const heed_arg stride_args[] = {
    {.name = "stride", WHOLE, .value = 128, .summary = "length of the stretch and distance of the columns"},
    {0},
};

static const heed_arg column_args[] = {
    {.name = "stride", WHOLE, .value = 128, .summary = "length of a stretch"},
    {.name = "columns",
     WHOLE,
     .value = 8,
     .summary = "last places of each stretch that all later tokens see"},
    {0},
};

static const heed_arg prefix_args[] = {
    {.name = "prefix", WHOLE, .required = true, .summary = "tokens of the prefix, which all see"},
    {0},
};

static const heed_arg t5_args[] = {
    {.name = "buckets",
     .kind = HEED_ARG_INT,
     .least = 2,
     .most = INFINITY,
     .value = 32,
     .summary = "buckets of distances, even"},
    {.name = "max", WHOLE, .value = 128, .summary = "distance from which all fall into the last bucket"},
    {0},
};

#define BASE(number)                                                                                         \
    .name = "base", .value = number, .above = true, .most = 1e30,                                            \
    .summary = "base of the rotation's frequencies"

static const heed_arg mistral_args[] = {
    {.name = "window", WHOLE, .value = 4096, .summary = "last tokens in sight, the query's own counted"},
    {BASE(10000)},
    {0},
};

static const heed_arg llama3_args[] = {
    {BASE(500000)},
    {.name = "factor",
     .value = 8,
     .least = 1,
     .most = 1e9,
     .summary = "by how much the context was stretched"},
    {.name = "original", WHOLE, .value = 8192, .summary = "context before it was stretched"},
    {0},
};

static const heed_arg gemma2_args[] = {
    {.name = "cap", .value = 50, .above = true, .most = 1e30, .summary = "bound of the scores"},
    {BASE(10000)},
    {0},
};

static const heed_arg gemma2_local_args[] = {
    {.name = "window", WHOLE, .value = 4096, .summary = "last tokens in sight, the query's own counted"},
    {.name = "cap", .value = 50, .above = true, .most = 1e30, .summary = "bound of the scores"},
    {BASE(10000)},
    {0},
};

static const heed_arg gpt_oss_args[] = {
    {.name = "window", WHOLE, .value = 128, .summary = "last tokens in sight, the query's own counted"},
    {BASE(150000)},
    {0},
};

const heed_combination heed_combinations[] = {
    {
        .name = "streaming",
        .spec = "where=causal & (window({window}) | first({first}))",
        .args = streaming_args,
        .summary = "a window that moves on while the first tokens stay, for text without end",
        .source = "Xiao et al.: Efficient Streaming Language Models with Attention Sinks, 2024",
    },
    {
        .name = "twilight",
        .spec = "where=causal; select=quest({page}, {budget}) > top_p({p})",
        .args = twilight_args,
        .summary = "pages by bound, then the fewest of their keys that hold a share of the weight",
        .source = "Lin et al.: Twilight, 2025; weights of the candidates are exact here, not estimated",
        .row = "001.004",
    },
    {
        .name = "twilight_estimated",
        .spec = "where=causal; select=quest({page}, {budget}) > top_p_estimated({p}, {bits})",
        .args = twilight_estimated_args,
        .summary = "pages by bound, then the fewest of their keys that hold a share of the estimated weight",
        .source = "Lin et al.: Twilight, 2025; the copy has the values of few bits but is stored as floats",
        .row = "001.004",
    },
    {
        .name = "longformer",
        .spec = "where=window({window}) | global({global})",
        .args = longformer_args,
        .summary = "a window around each token, and a few tokens that see all",
        .source = "Beltagy, Peters, Cohan: Longformer, 2020",
    },
    {
        .name = "bigbird",
        .spec = "where=window({window}) | global({global}) | random({random}, {block}, {seed})",
        .args = bigbird_args,
        .summary = "a window, a few tokens that see all, and random blocks",
        .source = "Zaheer et al.: Big Bird, 2020",
    },
    {
        .name = "sparse_transformer",
        .spec = "where=causal & (window({stride}) | strided({stride}))",
        .args = stride_args,
        .summary = "the last stretch of tokens, and every stride-th one before, in one head",
        .source =
            "Child et al.: Generating Long Sequences with Sparse Transformers, 2019 (the strided pattern)",
        .row = "001.242",
    },
    {
        .name = "sparse_transformer_fixed",
        .spec = "where=causal & (block({stride}) | columns({stride}, {columns}))",
        .args = column_args,
        .summary = "the token's own stretch, and the last columns of all stretches before, in one head",
        .source =
            "Child et al.: Generating Long Sequences with Sparse Transformers, 2019 (the fixed pattern)",
        .row = "001.242",
    },
    {
        .name = "prefix_lm",
        .spec = "where=causal | first({prefix})",
        .args = prefix_args,
        .summary = "a prefix seen from both sides, then text from left to right",
        .source = "Liu et al.: Generating Wikipedia by Summarizing Long Sequences, 2018; Raffel et al. 2020",
    },
    {
        .name = "t5",
        .spec = "score=dot(1); position=t5({buckets}, {max})",
        .args = t5_args,
        .summary = "products without scale and a learnt bias by bucket of distance, as in T5's encoder",
        .source = "Raffel et al.: Exploring the Limits of Transfer Learning (T5), 2020",
    },
    {
        .name = "bloom",
        .spec = "position=alibi; where=causal",
        .summary = "a decoder with ALiBi's penalty on distance",
        .source = "Le Scao et al.: BLOOM, 2022; Press, Smith, Lewis: Train Short, Test Long, 2022",
    },
    {
        .name = "mistral",
        .spec = "position=rope({base}); where=causal & window({window})",
        .args = mistral_args,
        .summary = "a decoder with rotary positions and a sliding window",
        .source = "Jiang et al.: Mistral 7B, 2023",
    },
    {
        .name = "llama3",
        .spec = "position=rope({base}, scaling=llama3({factor}, {original})); where=causal",
        .args = llama3_args,
        .summary = "a decoder with rotary positions stretched to a long context, as in Llama 3.1",
        .source = "Grattafiori et al.: The Llama 3 Herd of Models, 2024",
    },
    {
        .name = "gemma2",
        .spec = "position=rope({base}); where=causal; normalise=softcap({cap})",
        .args = gemma2_args,
        .summary = "a decoder with capped scores; the layers of Gemma 2 that see all",
        .source = "Gemma Team: Gemma 2, 2024",
    },
    {
        .name = "gemma2_local",
        .spec = "position=rope({base}); where=causal & window({window}); normalise=softcap({cap})",
        .args = gemma2_local_args,
        .summary = "a decoder with capped scores; the layers of Gemma 2 that see a window",
        .source = "Gemma Team: Gemma 2, 2024",
    },
    {
        .name = "gpt_oss",
        .spec = "position=rope({base}); where=causal & window({window}); normalise=sink",
        .args = gpt_oss_args,
        .summary = "a decoder with a window and a learnt sink in each head; rotary positions not stretched",
        .source = "OpenAI: gpt-oss-120b and gpt-oss-20b model card, 2025",
    },
    {0},
};
