/* Layers that carry a state, or keep their inputs: reading with them. */
#include "model/session_carry.h"
#include "base/arena.h"
#include "base/try.h"
#include "model/session.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Tokens of a state that go through the layer together; what is left goes by the shorter ones. */
static const int64_t lengths[HEED_CARRY_RUNS] = {256, 32, 8, 1};

static heed_status make_runs(const heed_session *session, int64_t l, heed_carry *carry)
{
    const heed_model *model = session->model;
    const int64_t trained = model->config.context,
                  whole = session->context > trained ? session->context : trained;
    const bool inputs = carry->carries == HEED_CARRIES_INPUTS;
    for (int i = 0; i < (inputs ? 1 : HEED_CARRY_RUNS); i++) {
        if (!inputs && lengths[i] > session->chunk && lengths[i] > 1)
            continue;
        TRY(heed_carried_make(&carry->run[carry->runs], &model->config, model->carried, l,
                              inputs ? whole : lengths[i], session->threads, model->isa));
        carry->runs++;
    }
    carry->floats = inputs ? session->context * model->config.width : heed_carried_floats(&carry->run[0]);
    return HEED_OK;
}

static heed_status open_layer(heed_session *session, int64_t l)
{
    heed_carry *carry = &session->carry[l];
    size_t bytes;
    carry->carries = session->model->carries[l];
    if (carry->carries == HEED_CARRIES_NOTHING)
        return HEED_OK;
    TRY(make_runs(session, l, carry));
    TRY(heed_tensor_bytes(HEED_F32, 2, (int64_t[]){session->sequences + 1, carry->floats}, &bytes));
    carry->held = heed_allocate(bytes, 1);
    if (!carry->held)
        return heed_fail(HEED_NO_MEMORY, "no memory for what layer %lld carries along: %zu bytes",
                         (long long)l, bytes);
    return HEED_OK;
}

heed_status heed_carry_open(heed_session *session)
{
    const int64_t layers = session->model->config.layers;
    if (!session->model->carried)
        return HEED_OK;
    session->carry = calloc((size_t)layers, sizeof *session->carry);
    if (!session->carry)
        return heed_fail(HEED_NO_MEMORY, "no memory for a session");
    for (int64_t l = 0; l < layers; l++)
        TRY(open_layer(session, l));
    if (session->prune.form || session->repeat.each)
        return heed_fail(
            HEED_UNSUPPORTED,
            "cache=%s: layers of this model carry a state or keep inputs of all tokens, so that a "
            "prompt cannot be read in parts or twice",
            session->prune.form ? session->prune.form->name : "kvzip");
    return HEED_OK;
}

void heed_carry_close(heed_session *session)
{
    for (int64_t l = 0; session->carry && l < session->model->config.layers; l++) {
        heed_carry *carry = &session->carry[l];
        for (int i = 0; i < carry->runs; i++)
            heed_carried_free(&carry->run[i]);
        free(carry->held);
    }
    free(session->carry);
}

int64_t heed_carry_layers(const heed_session *session, heed_carries carries)
{
    int64_t count = 0;
    for (int64_t l = 0; l < session->model->config.layers; l++)
        count += session->model->carries[l] == carries;
    return count;
}

bool heed_carry_any(const heed_session *session)
{
    return session->model->carried != NULL;
}

bool heed_carry_is_state(const heed_session *session, int64_t l)
{
    return session->model->carries[l] == HEED_CARRIES_STATE;
}

float *heed_carry_held(const heed_session *session, int64_t l, int64_t sequence)
{
    const heed_carry *carry = &session->carry[l];
    return carry->held + sequence * carry->floats;
}

int64_t heed_carry_floats(const heed_session *session, int64_t l, int64_t length)
{
    if (!session->carry)
        return 0;
    const heed_carry *carry = &session->carry[l];
    return carry->carries == HEED_CARRIES_INPUTS ? length * session->model->config.width : carry->floats;
}

void heed_carry_empty(heed_session *session, int64_t sequence)
{
    for (int64_t l = 0; session->carry && l < session->model->config.layers; l++)
        if (session->carry[l].carries == HEED_CARRIES_STATE)
            memset(heed_carry_held(session, l, sequence), 0,
                   (size_t)session->carry[l].floats * sizeof(float));
}

void heed_carry_copy(heed_session *session, int64_t from, int64_t to, int64_t length)
{
    for (int64_t l = 0; session->carry && l < session->model->config.layers; l++) {
        const int64_t floats = heed_carry_floats(session, l, length);
        if (floats > 0)
            memcpy(heed_carry_held(session, l, to), heed_carry_held(session, l, from),
                   (size_t)floats * sizeof(float));
    }
}

size_t heed_carry_bytes(const heed_session *session)
{
    size_t bytes = 0;
    for (int64_t l = 0; session->carry && l < session->model->config.layers; l++)
        for (int64_t s = 0; s < session->sequences; s++)
            bytes += (size_t)heed_carry_floats(session, l, session->read[s].count) * sizeof(float);
    return bytes;
}

/* x[rows] += y */
static void add_rows(const heed_session *session, float *x, const float *y, int64_t rows)
{
    const int64_t width = session->model->config.width;
    for (int64_t r = 0; r < rows; r++)
        session->model->rows->add(x + r * width, y + r * width, width);
}

/* A few tokens at a time, the state going along. */
static heed_status read_with_state(heed_session *session, int64_t l, const heed_piece *piece,
                                   const float *input)
{
    const heed_carry *carry = &session->carry[l];
    const int64_t width = session->model->config.width;
    heed_past_of(session, piece->sequence, l)->acted = piece->first + piece->count; /* whatever comes of it */
    for (int64_t done = 0, i = 0; done < piece->count;) {
        const heed_carried *run = &carry->run[i];
        if (run->tokens > piece->count - done) {
            i++;
            continue;
        }
        heed_carried_along(run, heed_carry_held(session, l, piece->sequence));
        memcpy(heed_graph_data(run->graph, run->in), input + done * width,
               (size_t)(run->tokens * width) * sizeof(float));
        TRY(heed_graph_forward(run->graph));
        add_rows(session, session->work.x + (piece->row + done) * width,
                 heed_graph_data(run->graph, run->out), run->tokens);
        done += run->tokens;
    }
    return HEED_OK;
}

/* The layer over all inputs, of which those behind the piece do not matter. */
static heed_status read_again(heed_session *session, int64_t l, const heed_piece *piece, const float *input)
{
    const heed_carried *run = &session->carry[l].run[0];
    const int64_t width = session->model->config.width, read = piece->first + piece->count;
    float *held = heed_carry_held(session, l, piece->sequence), *in = heed_graph_data(run->graph, run->in);
    memcpy(held + piece->first * width, input, (size_t)(piece->count * width) * sizeof *held);
    memcpy(in, held, (size_t)(read * width) * sizeof *in);
    memset(in + read * width, 0, (size_t)((run->tokens - read) * width) * sizeof *in);
    TRY(heed_graph_forward(run->graph));
    add_rows(session, session->work.x + piece->row * width,
             (const float *)heed_graph_data(run->graph, run->out) + piece->first * width, piece->count);
    return HEED_OK;
}

heed_status heed_carry_read(heed_session *session, int64_t l, const heed_step *step, const float *input)
{
    const int64_t width = session->model->config.width;
    for (int64_t p = 0; p < step->pieces; p++) {
        const heed_piece *piece = &session->work.piece[p];
        TRY((heed_carry_is_state(session, l) ? read_with_state : read_again)(session, l, piece,
                                                                             input + piece->row * width));
    }
    return HEED_OK;
}

int heed_carry_describe(const heed_session *session, int64_t l, char *text, size_t size)
{
    const heed_carry *carry = &session->carry[l];
    if (carry->carries == HEED_CARRIES_STATE)
        return snprintf(text, size,
                        "%s: a recurrence, read %lld tokens at a time and token by token\n"
                        "a state of %lld numbers is carried along, however long the text; nothing is kept of "
                        "keys and values\n",
                        session->layer[l].text, (long long)carry->run[0].tokens, (long long)carry->floats);
    return snprintf(text, size,
                    "%s: computed again for each call, over all %lld places of the context\n"
                    "inputs of the layer are kept, %lld numbers a token\n",
                    session->layer[l].text, (long long)carry->run[0].tokens,
                    (long long)session->model->config.width);
}
