/* Recurrences: time a token as texts grow, beside the recurrence written out as a loop. */
#include "base/clock.h"
#include "base/cpu.h"
#include "bench.h"
#include <cjson/cJSON.h>
#include <heed/scan.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { HEADS = 2, DIM = 64, TENSORS = 9 };

/* What a form's recurrence does, written plainly: which loop is its own. */
typedef enum plain_kind { SCALAR, VECTOR, DELTA, SLOTS } plain_kind;

static const struct {
    const char *spec;
    plain_kind plain;
} forms[] = {{"scan=linear", SCALAR},     {"scan=retention", SCALAR}, {"scan=lightning", SCALAR},
             {"scan=simple_gla", SCALAR}, {"scan=mamba2", SCALAR},    {"scan=gla", VECTOR},
             {"scan=hgrn2", VECTOR},      {"scan=gsa", SLOTS},        {"scan=delta", DELTA},
             {"scan=gated_delta", DELTA}, {"scan=kda", DELTA},        {"scan=rwkv7", DELTA}};
static const int64_t lengths[] = {4096, 16384, 65536, 262144, 1048576};
enum { FORMS = sizeof forms / sizeof *forms, LENGTHS = sizeof lengths / sizeof *lengths, SHORT = 3 };
#define PLAIN_TOKENS 16384

/* Random rows, by a generator that is fast: the numbers do not matter. Logs of decays lie in -0.1..0. */
static float *random_rows(int64_t floats, float scale, float shift)
{
    float *x = bench_allocate((size_t)floats * sizeof *x);
    uint32_t state = 1;
    for (int64_t i = 0; x && i < floats; i++) {
        state = state * 1664525u + 1013904223u;
        x[i] = scale * ((float)(state >> 8) * 0x1p-24f) + shift;
    }
    return x;
}

typedef struct scan_data {
    float *rows[TENSORS]; /* q k v gate erase rate out, and decay beta */
    heed_scan_tensors all;
} scan_data;

static bool make(scan_data *d, int64_t tokens)
{
    const int64_t rows[] = {1, HEADS, tokens, DIM}, numbers[] = {1, HEADS, tokens};
    const float scale[TENSORS] = {1, 1, 1, -0.1f, 1, 1, 0, -0.1f, 1};
    heed_tensor t[TENSORS];
    bool fine = true;
    for (int i = 0; i < TENSORS; i++) {
        d->rows[i] = random_rows(HEADS * tokens * (i < 7 ? DIM : 1), scale[i], i < 3 || i == 4 ? -0.5f : 0);
        fine &= d->rows[i] != NULL;
        t[i] = heed_tensor_dense(d->rows[i], HEED_F32, i < 7 ? 4 : 3, i < 7 ? rows : numbers);
    }
    d->all = (heed_scan_tensors){.q = t[0],
                                 .k = t[1],
                                 .v = t[2],
                                 .gate = t[3],
                                 .erase = t[4],
                                 .rate = t[5],
                                 .out = t[6],
                                 .decay = t[7],
                                 .beta = t[8]};
    return fine;
}

static void drop(scan_data *d)
{
    for (int i = 0; i < TENSORS; i++)
        free(d->rows[i]);
}

static heed_scan_tensors read_by(const heed_scan_plan *plan, const scan_data *d)
{
    const unsigned flags = heed_scan_flags(plan);
    heed_scan_tensors t = d->all;
    const struct {
        heed_tensor *tensor;
        bool read;
    } given[] = {{&t.k, !(flags & HEED_SCAN_NO_KEYS)},      {&t.decay, flags & HEED_SCAN_READS_DECAY},
                 {&t.gate, flags & HEED_SCAN_READS_GATE},   {&t.beta, flags & HEED_SCAN_READS_BETA},
                 {&t.erase, flags & HEED_SCAN_READS_ERASE}, {&t.rate, flags & HEED_SCAN_READS_RATE}};
    for (size_t i = 0; i < sizeof given / sizeof *given; i++)
        if (!given[i].read)
            given[i].tensor->data = NULL;
    return t;
}

/* The plain loops take one number after another, whatever the compiler would rather do. */
#if defined(__clang__)
#define ONE_BY_ONE
#define EACH(i) _Pragma("clang loop vectorize(disable) interleave(disable)") for (int i = 0; i < DIM; i++)
#else
#define ONE_BY_ONE __attribute__((optimize("no-tree-vectorize,no-tree-slp-vectorize")))
#define EACH(i) for (int i = 0; i < DIM; i++)
#endif

/* The tensors of a head. */
typedef struct plain_head {
    const float *q, *k, *v, *gate, *erase, *decay, *beta;
    float *out;
} plain_head;

/* S = keep S + k v^T with one keep for all rows, or one for each; out = S^T q. state: [columns][rows] */
static ONE_BY_ONE void plain_decay(const plain_head *h, int64_t t, bool by_row, float state[DIM][DIM])
{
    const float *q = h->q + t * DIM, *k = h->k + t * DIM, *v = h->v + t * DIM;
    float keep[DIM];
    EACH(r)
    keep[r] = expf(by_row ? h->gate[t * DIM + r] : h->decay[t]);
    EACH(c)
    {
        float sum = 0;
        EACH(r)
        {
            state[c][r] = keep[r] * state[c][r] + k[r] * v[c];
            sum += q[r] * state[c][r];
        }
        h->out[t * DIM + c] = sum / sqrtf(DIM);
    }
}

/* The same, where what is read by a first row leaves with a second one. */
static ONE_BY_ONE void plain_delta(const plain_head *h, int64_t t, float state[DIM][DIM])
{
    const float *q = h->q + t * DIM, *k = h->k + t * DIM, *v = h->v + t * DIM, *erase = h->erase + t * DIM;
    float keep[DIM];
    EACH(r)
    keep[r] = expf(h->gate[t * DIM + r]);
    EACH(c)
    {
        float seen = 0, sum = 0;
        EACH(r)
        seen += erase[r] * state[c][r];
        EACH(r)
        {
            state[c][r] = keep[r] * state[c][r] - h->beta[t] * seen * erase[r] + k[r] * v[c];
            sum += q[r] * state[c][r];
        }
        h->out[t * DIM + c] = sum;
    }
}

/* Slots of keys and of values; a query reads the second by a softmax over the first. */
static ONE_BY_ONE void plain_slots(const plain_head *h, int64_t t, float keys[DIM][DIM],
                                   float values[DIM][DIM])
{
    const float *q = h->q + t * DIM, *k = h->k + t * DIM, *v = h->v + t * DIM;
    float weight[DIM], all = 0;
    EACH(s)
    {
        const float keep = expf(h->gate[t * DIM + s]);
        float score = 0;
        EACH(r)
        {
            keys[s][r] = keep * keys[s][r] + (1 - keep) * k[r];
            values[s][r] = keep * values[s][r] + (1 - keep) * v[r];
            score += q[r] * keys[s][r];
        }
        all += weight[s] = expf(score / sqrtf(DIM));
    }
    EACH(c)
    {
        float sum = 0;
        EACH(s)
        sum += weight[s] * values[s][c];
        h->out[t * DIM + c] = sum / all;
    }
}

/* A recurrence as its formula stands, a token after the other, by one thread; seconds. Rows that a form makes
 * of what it is given are taken as given. */
static double plain_loop(const scan_data *d, plain_kind kind)
{
    static float state[2][DIM][DIM];
    const double start = heed_processor_seconds();
    for (int64_t n = 0; n < HEADS; n++) {
        const int64_t row = n * PLAIN_TOKENS, at = row * DIM;
        const plain_head h = {d->rows[0] + at, d->rows[1] + at,  d->rows[2] + at,  d->rows[3] + at,
                              d->rows[4] + at, d->rows[7] + row, d->rows[8] + row, d->rows[6] + at};
        memset(state, 0, sizeof state);
        for (int64_t t = 0; t < PLAIN_TOKENS; t++)
            if (kind == SLOTS)
                plain_slots(&h, t, state[0], state[1]);
            else if (kind == DELTA)
                plain_delta(&h, t, state[0]);
            else
                plain_decay(&h, t, kind == VECTOR, state[0]);
    }
    return heed_processor_seconds() - start;
}

typedef struct measured {
    const char *spec;
    int64_t tokens, floats; /* of the state */
    double seconds, cpu;    /* of processor time, which neighbours of the machine do not lengthen */
    double first;           /* that of the shortest text, in nanoseconds a token and head */
    double plain;           /* that of the plain loop; 0: not measured */
} measured;

static void print(const bench_options *o, const measured *m)
{
    const double tokens = (double)(m->tokens * HEADS), each = m->cpu / tokens * 1e9;
    const double alone = m->plain / m->cpu, together = alone * (double)o->threads;
    const double bytes = (double)m->floats * sizeof(float);
    if (!o->json) {
        printf(
            "%-17s %8lld tokens %7.1f ns of processor time a token and head (%.1f of the clock), %.2f times "
            "that of %lld; state %.0f bytes",
            m->spec, (long long)m->tokens, each, m->seconds / tokens * 1e9, each / m->first,
            (long long)lengths[0], bytes);
        if (m->plain > 0)
            printf("; the plain loop takes %.1f times as long, %.1f times with all threads", alone, together);
        puts("");
        return;
    }
    cJSON *line = cJSON_CreateObject();
    cJSON_AddStringToObject(line, "bench", "scan");
    cJSON_AddStringToObject(line, "work", m->spec);
    cJSON_AddNumberToObject(line, "tokens", (double)m->tokens);
    cJSON_AddNumberToObject(line, "nanoseconds", m->seconds / tokens * 1e9);
    cJSON_AddNumberToObject(line, "processor_nanoseconds", each);
    cJSON_AddNumberToObject(line, "state_bytes", bytes);
    if (m->plain > 0)
        cJSON_AddNumberToObject(line, "plain_loop", together);
    char *text = cJSON_PrintUnformatted(line);
    if (text)
        puts(text);
    free(text);
    cJSON_Delete(line);
}

/* The best of the rounds. */
static heed_status time_spec(const bench_options *o, const scan_data *d, measured *m)
{
    const heed_scan_problem problem = {.batch = 1,
                                       .heads = HEADS,
                                       .tokens = m->tokens,
                                       .dim = DIM,
                                       .threads = (int)o->threads,
                                       .isa = (heed_isa)o->isa};
    heed_scan_plan *plan;
    heed_status status = heed_scan_create(&plan, m->spec, &problem);
    if (status)
        return status;
    const heed_scan_tensors t = read_by(plan, d);
    m->floats = heed_scan_state_floats(plan);
    m->seconds = m->cpu = INFINITY;
    for (int64_t round = 0; round < o->rounds && !status; round++) {
        const double start = heed_seconds(), cpu = heed_processor_seconds();
        status = heed_scan(plan, &t);
        m->seconds = fmin(m->seconds, heed_seconds() - start);
        m->cpu = fmin(m->cpu, heed_processor_seconds() - cpu);
    }
    heed_scan_free(plan);
    return status;
}

int bench_scan(const bench_options *o)
{
    double first[FORMS] = {0};
    char processor[128];
    heed_cpu_name(processor, sizeof processor);
    if (!o->json)
        printf("%s, %lld thread%s; %d heads of %d\n", processor, (long long)o->threads,
               o->threads == 1 ? "" : "s", HEADS, DIM);
    for (int n = 0; n < (o->with_slow ? LENGTHS : SHORT); n++) {
        scan_data d;
        bool fine = make(&d, lengths[n]);
        for (int s = 0; s < FORMS && fine; s++) {
            measured m = {.spec = forms[s].spec, .tokens = lengths[n]};
            if (o->only && !strstr(m.spec, o->only))
                continue;
            fine = time_spec(o, &d, &m) == HEED_OK;
            if (n == 0)
                first[s] = m.cpu / (double)(lengths[0] * HEADS) * 1e9;
            m.first = first[s];
            if (m.tokens == PLAIN_TOKENS)
                m.plain = plain_loop(&d, forms[s].plain);
            if (fine)
                print(o, &m);
        }
        drop(&d);
        if (!fine) {
            fprintf(stderr, "heed bench: %s\n", heed_message());
            return 2;
        }
    }
    return 0;
}
