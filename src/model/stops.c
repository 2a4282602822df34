/* Stop strings: an automaton whose state is the longest end of the text that begins a stop (Aho, Corasick
 * 1975). */
#include <heed/sampling.h>

#include "base/try.h"
#include "model/tokenizer/bytes.h"

#include <stdlib.h>
#include <string.h>

enum { MOST_BYTES = 1 << 20 };

typedef struct stop_state {
    int32_t child, sibling; /* -1: none */
    int32_t fallback;       /* the longest shorter end of it that begins a stop */
    int32_t depth;          /* bytes of it */
    int32_t stop;           /* the longest stop that it ends with; -1: none */
    char byte;              /* its last one */
} stop_state;

struct heed_stops {
    stop_state *state;
    int32_t *length; /* of each stop */
    int32_t states, now;
    int met;
    heed_bytes held, out;
};

static int32_t child_of(const heed_stops *stops, int32_t state, char byte)
{
    int32_t child = stops->state[state].child;
    while (child >= 0 && stops->state[child].byte != byte)
        child = stops->state[child].sibling;
    return child;
}

static void add_stop(heed_stops *stops, const char *text, int32_t stop)
{
    int32_t at = 0;
    for (; *text; text++) {
        int32_t next = child_of(stops, at, *text);
        if (next < 0) {
            next = stops->states++;
            stops->state[next] = (stop_state){.child = -1,
                                              .sibling = stops->state[at].child,
                                              .depth = stops->state[at].depth + 1,
                                              .stop = -1,
                                              .byte = *text};
            stops->state[at].child = next;
        }
        at = next;
    }
    if (stops->state[at].stop < 0)
        stops->state[at].stop = stop;
}

/* The state after one more byte. */
static int32_t step(const heed_stops *stops, int32_t state, char byte)
{
    int32_t next;
    while ((next = child_of(stops, state, byte)) < 0 && state)
        state = stops->state[state].fallback;
    return next < 0 ? 0 : next;
}

/* Fallbacks, shallow states first: `queue` has room for all states. */
static void link_states(heed_stops *stops, int32_t *queue)
{
    int32_t count = 0;
    queue[count++] = 0;
    for (int32_t i = 0; i < count; i++) {
        const stop_state *from = &stops->state[queue[i]];
        for (int32_t child = from->child; child >= 0; child = stops->state[child].sibling) {
            stop_state *to = &stops->state[child];
            to->fallback = queue[i] ? step(stops, from->fallback, to->byte) : 0;
            if (to->stop < 0)
                to->stop = stops->state[to->fallback].stop;
            queue[count++] = child;
        }
    }
}

heed_status heed_stops_create(heed_stops **out, const char *const *texts, int count)
{
    size_t bytes = 1;
    for (int i = 0; i < count; i++) {
        if (!*texts[i])
            return heed_fail(HEED_INVALID, "stop string %d is empty", i + 1);
        bytes += strlen(texts[i]);
    }
    if (bytes > MOST_BYTES)
        return heed_fail(HEED_INVALID, "the stop strings have %zu bytes together; at most %d can be", bytes,
                         MOST_BYTES);
    heed_stops *stops = calloc(1, sizeof *stops);
    int32_t *queue = malloc(bytes * sizeof *queue);
    if (stops) {
        stops->state = calloc(bytes, sizeof *stops->state);
        stops->length = calloc((size_t)count + 1, sizeof *stops->length);
    }
    if (!stops || !queue || !stops->state || !stops->length) {
        heed_stops_free(stops);
        free(queue);
        return heed_fail(HEED_NO_MEMORY, "no memory for the stop strings");
    }
    stops->met = -1;
    stops->state[0] = (stop_state){.child = -1, .sibling = -1, .stop = -1};
    stops->states = 1;
    for (int i = 0; i < count; i++) {
        stops->length[i] = (int32_t)strlen(texts[i]);
        add_stop(stops, texts[i], i);
    }
    link_states(stops, queue);
    free(queue);
    *out = stops;
    return HEED_OK;
}

void heed_stops_free(heed_stops *stops)
{
    if (!stops)
        return;
    free(stops->state);
    free(stops->length);
    free(stops->held.data);
    free(stops->out.data);
    free(stops);
}

void heed_stops_restart(heed_stops *stops)
{
    stops->now = 0;
    stops->met = -1;
    stops->held.size = stops->out.size = 0;
}

/* Gives out all that is held but the last `keep` bytes. */
static void release(heed_stops *stops, size_t keep)
{
    const size_t size = stops->held.size - keep;
    if (!size)
        return;
    heed_bytes_add(&stops->out, stops->held.data, size);
    memmove(stops->held.data, stops->held.data + size, keep);
    stops->held.size = keep;
}

heed_status heed_stops_push(heed_stops *stops, const char *text, size_t size, const char **out,
                            size_t *out_size)
{
    stops->out.size = 0;
    for (size_t i = 0; i < size && stops->met < 0; i++) {
        heed_bytes_add(&stops->held, text + i, 1);
        if (stops->held.failed)
            break;
        stops->now = step(stops, stops->now, text[i]);
        stops->met = stops->state[stops->now].stop;
        release(stops, (size_t)(stops->met < 0 ? stops->state[stops->now].depth : stops->length[stops->met]));
    }
    if (stops->met >= 0)
        stops->held.size = 0;
    *out = stops->out.size ? stops->out.data : "";
    *out_size = stops->out.size;
    return stops->held.failed || stops->out.failed ? heed_fail(HEED_NO_MEMORY, "no memory for the text")
                                                   : HEED_OK;
}

void heed_stops_flush(heed_stops *stops, const char **out, size_t *out_size)
{
    *out_size = stops->met < 0 ? stops->held.size : 0;
    *out = *out_size ? stops->held.data : "";
    stops->now = 0;
    stops->held.size = 0; /* its bytes stay where they are until the next call */
}

int heed_stops_met(const heed_stops *stops)
{
    return stops->met;
}
