/* The graph: embeddings, layers, the last norm and logits, for the pieces of one step. */
#include "base/try.h"
#include "model/session.h"

#include <string.h>

enum { PARALLEL_FROM = 1 << 15 }; /* entries of rows below which threads cost more than they save */

static bool worth_threads(int64_t rows, int64_t entries)
{
    return rows > 1 && rows * entries >= PARALLEL_FROM;
}

static heed_norm norm_of(const heed_config *c, const heed_norm_weights *weights, int64_t n)
{
    return (heed_norm){
        .kind = c->norm, .eps = (float)c->eps, .n = n, .weight = weights->weight, .bias = weights->bias};
}

/* out = norm(x), row by row; a norm that the model lacks copies nothing. `out` may be `x`. */
static void norm_rows(const heed_session *session, const heed_norm_weights *weights, const float *x,
                      float *out, int64_t rows)
{
    const heed_norm norm = norm_of(&session->model->config, weights, session->model->config.width);
    const heed_rows_table *table = session->model->rows;
#pragma omp parallel for schedule(static) num_threads(session->threads) if (worth_threads(rows, norm.n))
    for (int64_t r = 0; r < rows; r++)
        table->norm(&norm, x + r * norm.n, out + r * norm.n);
}

static void embed_row(const heed_session *session, int32_t token, int64_t position, float *x)
{
    const heed_model *model = session->model;
    const heed_config *c = &model->config;
    heed_weights_embed(model, token, x);
    if (c->embedding_scale != 1.0)
        model->rows->scale(x, (float)c->embedding_scale, c->width);
    if (model->token_types)
        model->rows->add(x, model->token_types, c->width);
    if (model->positions)
        model->rows->add(x, model->positions + position * c->width, c->width);
    if (model->embedding_norm.weight) {
        const heed_norm norm = norm_of(c, &model->embedding_norm, c->width);
        model->rows->norm(&norm, x, x);
    }
}

void heed_session_embed(const heed_session *session, const heed_step *step)
{
    const heed_work *work = &session->work;
    const int64_t width = session->model->config.width;
    for (int64_t p = 0; p < step->pieces; p++) {
        const heed_piece *piece = &work->piece[p];
#pragma omp parallel for schedule(static)                                                                    \
    num_threads(session->threads) if (worth_threads(piece->count, width))
        for (int64_t t = 0; t < piece->count; t++)
            embed_row(session, piece->tokens[t], piece->first + t, work->x + (piece->row + t) * width);
    }
}

/* x += W from + bias; with a norm on what is added, or on the sum, where the model has one. */
static void add_part(const heed_session *session, const heed_linear *linear, const heed_norm_weights *post,
                     const heed_norm_weights *sum, const float *from, int64_t stride, int64_t rows)
{
    const heed_work *work = &session->work;
    const heed_rows_table *table = session->model->rows;
    const int64_t width = session->model->config.width;
    const heed_linear_work linear_work = {work->linear, session->threads};
    heed_linear_apply(linear, from, stride, rows, post->weight ? work->h : work->x, width, !post->weight,
                      &linear_work);
    if (post->weight) {
        const heed_norm norm = norm_of(&session->model->config, post, width);
#pragma omp parallel for schedule(static) num_threads(session->threads) if (worth_threads(rows, width))
        for (int64_t r = 0; r < rows; r++) {
            table->norm(&norm, work->h + r * width, work->h + r * width);
            table->add(work->x + r * width, work->h + r * width, width);
        }
    }
    if (sum->weight)
        norm_rows(session, sum, work->x, work->x, rows);
}

/* The input of a part: normed where the model does so before. */
static const float *input_of(const heed_session *session, const heed_norm_weights *before, int64_t rows)
{
    const heed_work *work = &session->work;
    if (!before->weight)
        return work->x;
    norm_rows(session, before, work->x, work->h, rows);
    return work->h;
}

static heed_status attention(heed_session *session, int64_t l, const heed_step *step)
{
    const heed_config *c = &session->model->config;
    const heed_layer *layer = &session->model->layer[l];
    const heed_work *work = &session->work;
    const heed_linear_work linear_work = {work->linear, session->threads};
    const float *input = input_of(session, &layer->attention_norm, step->rows);
    if (session->model->carries[l] != HEED_CARRIES_NOTHING)
        return heed_carry_read(session, l, step, input);
    heed_linear_apply(&layer->query_key_value, input, c->width, step->rows, work->qkv,
                      layer->query_key_value.rows, false, &linear_work);
    TRY(heed_session_attend(session, l, step));
    if (session->prune.tokens > 0 && l == session->prune.layer)
        TRY(heed_prune_look(session, step));
    add_part(session, &layer->attention_output, &layer->attention_post_norm, &layer->attention_sum_norm,
             work->attended, c->heads * c->head_dim, step->rows);
    return HEED_OK;
}

static void feed_forward(heed_session *session, int64_t l, const heed_step *step)
{
    const heed_config *c = &session->model->config;
    const heed_layer *layer = &session->model->layer[l];
    const heed_rows_table *table = session->model->rows;
    float *up = session->work.up;
    const int64_t n = c->feed_forward, stride = layer->up.rows;
    const heed_linear_work linear_work = {session->work.linear, session->threads};
    const float *input = input_of(session, &layer->feed_norm, step->rows);
    heed_linear_apply(&layer->up, input, c->width, step->rows, up, stride, false, &linear_work);
#pragma omp parallel for schedule(static) num_threads(session->threads) if (worth_threads(step->rows, n))
    for (int64_t r = 0; r < step->rows; r++) {
        float *row = up + r * stride;
        table->activate(c->activation, row, c->gated ? row + n : NULL, row, n);
    }
    add_part(session, &layer->down, &layer->feed_post_norm, &layer->feed_sum_norm, up, stride, step->rows);
}

/* Hidden states after the last norm, of `rows` rows of x, into h. */
static void finish_rows(const heed_session *session, int64_t row, int64_t rows)
{
    const heed_model *model = session->model;
    const heed_work *work = &session->work;
    const int64_t width = model->config.width;
    if (model->last_norm.weight)
        norm_rows(session, &model->last_norm, work->x + row * width, work->h + row * width, rows);
    else
        memcpy(work->h + row * width, work->x + row * width, (size_t)(rows * width) * sizeof(float));
}

static void logits_of(const heed_session *session, int64_t row, int64_t rows, float *logits)
{
    const heed_model *model = session->model;
    const heed_config *c = &model->config;
    const heed_linear_work linear_work = {session->work.linear, session->threads};
    heed_linear_apply(&model->output, session->work.h + row * c->width, c->width, rows, logits, c->vocabulary,
                      false, &linear_work);
    if (c->logit_cap == 0.0)
        return;
#pragma omp parallel for schedule(static) num_threads(session->threads)
    for (int64_t r = 0; r < rows; r++)
        model->rows->cap(logits + r * c->vocabulary, (float)c->logit_cap, c->vocabulary);
}

/* The last rows of finished items, brought together at the front of h; pieces[] their items. */
static void last_logits(const heed_session *session, const heed_step *step)
{
    const heed_work *work = &session->work;
    const int64_t width = session->model->config.width, vocabulary = session->model->config.vocabulary;
    int64_t row = 0, first_item = 0;
    for (int64_t p = 0; p < step->pieces; p++) {
        const heed_piece *piece = &work->piece[p];
        if (!piece->last)
            continue;
        if (row > 0 && piece->item != first_item + row) { /* a run of items ends */
            logits_of(session, 0, row, step->wants->logits + first_item * vocabulary);
            row = 0;
        }
        first_item = row == 0 ? piece->item : first_item;
        const int64_t from = piece->row + piece->count - 1; /* never before `row`, so nothing is lost */
        memmove(work->x + row * width, work->x + from * width, (size_t)width * sizeof(float));
        finish_rows(session, row, 1);
        row++;
    }
    if (row > 0)
        logits_of(session, 0, row, step->wants->logits + first_item * vocabulary);
}

void heed_session_give_out(const heed_session *session, const heed_step *step)
{
    const heed_feed_wants *wants = step->wants;
    const heed_work *work = &session->work;
    const heed_config *c = &session->model->config;
    const bool all = wants->hidden || (wants->logits && wants->all_logits);
    for (int64_t p = 0; all && p < step->pieces; p++) {
        const heed_piece *piece = &work->piece[p];
        finish_rows(session, piece->row, piece->count);
        if (wants->hidden)
            memcpy(wants->hidden + piece->out_row * c->width, work->h + piece->row * c->width,
                   (size_t)(piece->count * c->width) * sizeof(float));
        if (wants->logits && wants->all_logits)
            logits_of(session, piece->row, piece->count, wants->logits + piece->out_row * c->vocabulary);
    }
    if (wants->logits && !wants->all_logits)
        last_logits(session, step);
}

/* Numbers in the weights of a layer. */
static double weights_of(const heed_session *session, int64_t l)
{
    const heed_config *c = &session->model->config;
    const heed_layer *layer = &session->model->layer[l];
    return (double)c->width * (double)(layer->query_key_value.rows + layer->up.rows) +
           (double)c->width * (double)(c->heads * c->head_dim + c->feed_forward);
}

heed_status heed_session_read_layers(heed_session *session, const heed_step *step, int64_t from, int64_t to)
{
    for (int64_t l = from; l < to; l++) {
        const double before = session->usage.pairs_read;
        TRY(attention(session, l, step));
        feed_forward(session, l, step);
        session->usage.products +=
            (double)step->rows * weights_of(session, l) +
            (session->usage.pairs_read - before) * 2.0 * (double)session->model->config.head_dim;
    }
    return HEED_OK;
}

heed_status heed_session_read(heed_session *session, const heed_step *step)
{
    heed_session_embed(session, step);
    TRY(heed_session_read_layers(session, step, 0, session->model->config.layers));
    heed_session_give_out(session, step);
    return HEED_OK;
}
