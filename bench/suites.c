/* The works of each benchmark. */
#include "bench.h"

#define PREFILL .heads = 8, .kv_heads = 8, .queries = 4096, .keys = 4096

static const bench_work attention[] = {
    {.name = "causal, dim 64", .spec = "where=causal", PREFILL, .dim = 64},
    {.name = "causal, dim 128", .spec = "where=causal", PREFILL, .dim = 128},
    {.name = "alibi, dim 64",
     .spec = "where=causal; position=alibi",
     PREFILL,
     .dim = 64,
     .against = "causal, dim 64",
     .share = 1.0},
    {.name = "soft cap, dim 64",
     .spec = "where=causal; normalise=softcap(30)",
     PREFILL,
     .dim = 64,
     .against = "causal, dim 64",
     .share = 1.0},
    {.name = "window, dim 64", .spec = "where=causal & window(1024)", PREFILL, .dim = 64},
    {.name = "rope, dim 64",
     .spec = "where=causal; position=rope",
     PREFILL,
     .dim = 64,
     .against = "causal, dim 64",
     .share = 1.0},
    {.name = "8 heads on 2, dim 64",
     .spec = "where=causal",
     .heads = 8,
     .kv_heads = 2,
     .queries = 4096,
     .keys = 4096,
     .dim = 64},
    {.name = "bf16, dim 64",
     .spec = "where=causal",
     PREFILL,
     .dim = 64,
     .q_type = HEED_BF16,
     .kv_type = HEED_BF16},
    {.name = "bf16, dim 128",
     .spec = "where=causal",
     PREFILL,
     .dim = 128,
     .q_type = HEED_BF16,
     .kv_type = HEED_BF16},
    {.name = "f16 keys, dim 64", .spec = "where=causal", PREFILL, .dim = 64, .kv_type = HEED_F16},
    {.name = "q8 keys, dim 64",
     .spec = "where=causal",
     PREFILL,
     .dim = 64,
     .kv_type = HEED_Q8,
     .against = "f16 keys, dim 64",
     .share = 1.0},
    {.name = "q4 keys, dim 64",
     .spec = "where=causal",
     PREFILL,
     .dim = 64,
     .kv_type = HEED_Q4,
     .against = "f16 keys, dim 64",
     .share = 1.0},
    {.name = "131072 keys, dim 64",
     .spec = "where=causal",
     .heads = 1,
     .kv_heads = 1,
     .queries = 131072,
     .keys = 131072,
     .dim = 64,
     .slow = true},
    {0},
};

#define DECODE .spec = "where=causal", .queries = 1, .keys = 32768, .dim = 128

static const bench_work decode[] = {
    {.name = "32 heads on 8, f16", DECODE, .heads = 32, .kv_heads = 8, .kv_type = HEED_F16},
    {.name = "32 heads on 8, bf16", DECODE, .heads = 32, .kv_heads = 8, .kv_type = HEED_BF16},
    {.name = "32 heads on 8, q8",
     DECODE,
     .heads = 32,
     .kv_heads = 8,
     .kv_type = HEED_Q8,
     .against = "32 heads on 8, f16",
     .share = 1.0},
    {.name = "32 heads on 8, q4",
     DECODE,
     .heads = 32,
     .kv_heads = 8,
     .kv_type = HEED_Q4,
     .against = "32 heads on 8, q8",
     .share = 1.0},
    {.name = "8 heads, f16", DECODE, .heads = 8, .kv_heads = 8, .kv_type = HEED_F16},
    {.name = "8 heads, q8",
     DECODE,
     .heads = 8,
     .kv_heads = 8,
     .kv_type = HEED_Q8,
     .against = "8 heads, f16",
     .share = 1.0},
    {.name = "8 heads, q4",
     DECODE,
     .heads = 8,
     .kv_heads = 8,
     .kv_type = HEED_Q4,
     .against = "8 heads, q8",
     .share = 1.0},
    {.name = "8 heads, f32", DECODE, .heads = 8, .kv_heads = 8},
    {0},
};

/* The caches of small models: keys of 64 that three heads share, and of 256 that four share. */
#define CACHE(keys_, dim_, heads_, kv_, type_, slow_)                                                        \
    .spec = "where=causal", .queries = 1, .keys = keys_, .dim = dim_, .heads = heads_, .kv_heads = kv_,      \
    .kv_type = type_, .slow = slow_
#define CACHE_TYPES(text, keys_, dim_, heads_, kv_, slow_)                                                   \
    {.name = text ", f16", CACHE(keys_, dim_, heads_, kv_, HEED_F16, slow_)},                                \
        {.name = text ", bf16",                                                                              \
         CACHE(keys_, dim_, heads_, kv_, HEED_BF16, slow_),                                                  \
         .against = text ", f16",                                                                            \
         .share = 1.0},                                                                                      \
        {.name = text ", q8",                                                                                \
         CACHE(keys_, dim_, heads_, kv_, HEED_Q8, slow_),                                                    \
         .against = text ", f16",                                                                            \
         .share = 1.0},                                                                                      \
        {.name = text ", q4",                                                                                \
         CACHE(keys_, dim_, heads_, kv_, HEED_Q4, slow_),                                                    \
         .against = text ", f16",                                                                            \
         .share = 1.0},                                                                                      \
    {                                                                                                        \
        .name = text ", window", .spec = "where=causal & (window(1636) | first(4))", .queries = 1,           \
        .keys = keys_, .dim = dim_, .heads = heads_, .kv_heads = kv_, .kv_type = HEED_F16, .slow = slow_,    \
        .against = text ", f16", .share = 1640.0 / (keys_), .read = 1640.0 / (keys_)                         \
    }

static const bench_work cache[] = {
    CACHE_TYPES("32k, 9 on 3, dim 64", 32768, 64, 9, 3, false),
    CACHE_TYPES("32k, 4 on 1, dim 256", 32768, 256, 4, 1, false),
    CACHE_TYPES("128k, 9 on 3, dim 64", 131072, 64, 9, 3, true),
    CACHE_TYPES("128k, 4 on 1, dim 256", 131072, 256, 4, 1, true),
    {0},
};

static const bench_work backward[] = {
    {.name = "backward, dim 64", .spec = "where=causal", PREFILL, .dim = 64, .with = HEED_WITH_BACKWARD},
    {.name = "backward, dim 128", .spec = "where=causal", PREFILL, .dim = 128, .with = HEED_WITH_BACKWARD},
    {.name = "backward, alibi",
     .spec = "where=causal; position=alibi",
     PREFILL,
     .dim = 64,
     .with = HEED_WITH_BACKWARD,
     .against = "backward, dim 64",
     .share = 1.0},
    {.name = "backward, t5",
     .spec = "where=causal; position=t5",
     PREFILL,
     .dim = 64,
     .with = HEED_WITH_BACKWARD,
     .against = "backward, dim 64",
     .share = 1.0},
    {0},
};

/* n of 64 key blocks for each block of 64 queries */
#define SPARSE(n)                                                                                            \
    {                                                                                                        \
        .name = #n " of 64 blocks", .spec = "where=random(" #n ", block=64, seed=1)", PREFILL, .dim = 64,    \
        .against = "dense", .share = n / 64.0                                                                \
    }

/* One query at 32768 keys: all of them, and pages whose keys are a twentieth of them. */
#define LONG(heads_, kv_heads_, dim_, type_)                                                                 \
    .heads = heads_, .kv_heads = kv_heads_, .queries = 1, .keys = 32768, .dim = dim_, .kv_type = type_,      \
    .drifting = true
#define QUEST(name_, against_, heads_, kv_heads_, dim_, type_)                                               \
    {                                                                                                        \
        .name = name_, .spec = "where=causal; select=quest(page=16, budget=1638, share=group)",              \
        LONG(heads_, kv_heads_, dim_, type_), .with = HEED_WITH_SUMMARIES | HEED_WITH_PREPARED_KEYS,         \
        .against = against_, .share = 1.0                                                                    \
    }

/* 8192 queries, of whose causal pairs about a fifth is read. */
#define LONG_PREFILL(dim_)                                                                                   \
    .heads = 2, .kv_heads = 2, .queries = 8192, .keys = 8192, .dim = dim_, .drifting = true
#define BLOCKS(name_, select_, against_, dim_)                                                               \
    {                                                                                                        \
        .name = name_, .spec = "where=causal; select=" select_, LONG_PREFILL(dim_), .against = against_,     \
        .share = 1.0                                                                                         \
    }
#define LINES "vertical_slash(block=64, columns=12, slashes=12)"

static const bench_work sparse[] = {
    {.name = "4 heads on 1, all keys", .spec = "where=causal", LONG(4, 1, 256, HEED_F16)},
    QUEST("4 heads on 1, quest", "4 heads on 1, all keys", 4, 1, 256, HEED_F16),
    {.name = "32 heads on 8, all keys", .spec = "where=causal", LONG(32, 8, 128, HEED_F16)},
    QUEST("32 heads on 8, quest", "32 heads on 8, all keys", 32, 8, 128, HEED_F16),
    {.name = "8 on 2, q8, all keys", .spec = "where=causal", LONG(8, 2, 128, HEED_Q8)},
    QUEST("8 on 2, q8, quest", "8 on 2, q8, all keys", 8, 2, 128, HEED_Q8),
    {.name = "prefill, dim 64", .spec = "where=causal", LONG_PREFILL(64)},
    BLOCKS("block_top, dim 64", "block_top(block=64, k=13)", "prefill, dim 64", 64),
    BLOCKS("vertical_slash, dim 64", LINES, "prefill, dim 64", 64),
    BLOCKS("hip, dim 64", "hip(k=768, block=32, window=64)", "prefill, dim 64", 64),
    {.name = "prefill, dim 128", .spec = "where=causal", LONG_PREFILL(128)},
    BLOCKS("block_top, dim 128", "block_top(block=64, k=13)", "prefill, dim 128", 128),
    BLOCKS("vertical_slash, dim 128", LINES, "prefill, dim 128", 128),
    BLOCKS("hip, dim 128", "hip(k=768, block=32, window=64)", "prefill, dim 128", 128),
    {.name = "dense", .spec = "where=all", PREFILL, .dim = 64},
    SPARSE(3),
    SPARSE(6),
    SPARSE(13),
    SPARSE(32),
    {0},
};

static const bench_work statistics[] = {
    {.name = "plain", .spec = "where=causal", PREFILL, .dim = 64},
    {.name = "entropies",
     .spec = "where=causal",
     PREFILL,
     .dim = 64,
     .with = HEED_WITH_ENTROPY,
     .against = "plain",
     .share = 1.0},
    {.name = "key sums",
     .spec = "where=causal",
     PREFILL,
     .dim = 64,
     .with = HEED_WITH_KEY_SUMS,
     .against = "plain",
     .share = 1.0},
    {.name = "entropies and key sums",
     .spec = "where=causal",
     PREFILL,
     .dim = 64,
     .with = HEED_WITH_ENTROPY | HEED_WITH_KEY_SUMS,
     .against = "plain",
     .share = 1.0},
    {.name = "top 8 links",
     .spec = "where=causal",
     PREFILL,
     .dim = 64,
     .with = HEED_WITH_TOP,
     .against = "plain",
     .share = 1.0},
    {0},
};

#define FORM(name_, spec_)                                                                                   \
    {                                                                                                        \
        .name = name_, .spec = "where=causal; " spec_, .heads = 8, .kv_heads = 8, .queries = 1024,           \
        .keys = 1024, .dim = 64, .against = "softmax of dot", .share = 1.0                                   \
    }

static const bench_work forms[] = {
    {.name = "softmax of dot",
     .spec = "where=causal",
     .heads = 8,
     .kv_heads = 8,
     .queries = 1024,
     .keys = 1024,
     .dim = 64},
    FORM("cosine", "score=cosine"),
    FORM("bilinear", "score=bilinear"),
    FORM("gaussian", "score=gaussian"),
    FORM("laplace", "score=laplace"),
    FORM("additive", "score=additive"),
    FORM("mlp", "score=mlp"),
    FORM("rope", "position=rope"),
    FORM("alibi", "position=alibi"),
    FORM("t5", "position=t5"),
    FORM("shaw", "position=shaw"),
    FORM("kerple", "position=kerple"),
    FORM("fire", "position=fire"),
    FORM("xpos", "position=xpos"),
    FORM("cope", "position=cope"),
    FORM("sandwich", "position=sandwich"),
    FORM("softcap", "normalise=softcap(30)"),
    FORM("softmax1", "normalise=softmax1"),
    FORM("sink", "normalise=sink"),
    FORM("sigmoid", "normalise=sigmoid"),
    FORM("relu", "normalise=relu"),
    FORM("sparsemax", "normalise=sparsemax"),
    FORM("entmax", "normalise=entmax(1.5)"),
    FORM("top_k", "select=top_k(64)"),
    FORM("top_p", "select=top_p(0.95)"),
    FORM("threshold", "select=threshold(0.1)"),
    FORM("quest", "select=quest(page=16, budget=256)"),
    FORM("moba", "select=moba(block=64, k=4)"),
    FORM("talking", "heads=talking"),
    {0},
};

static const bench_suite suite_attention = {"attention", "prefill: many queries against as many keys",
                                            attention};
static const bench_suite suite_decode = {"decode", "one query against a long cache", decode};
static const bench_suite suite_cache = {"cache", "one query against what a cache holds", cache};
static const bench_suite suite_backward = {"backward", "gradients of q, k and v", backward};
static const bench_suite suite_sparse = {"sparse", "lists of open key blocks", sparse};
static const bench_suite suite_forms = {"forms", "every form beside plain attention", forms};
static const bench_suite suite_statistics = {"statistics", "what captured statistics cost", statistics};

const bench_suite *const bench_suites[] = {&suite_attention,  &suite_decode, &suite_cache,
                                           &suite_backward,   &suite_sparse, &suite_forms,
                                           &suite_statistics, NULL};
