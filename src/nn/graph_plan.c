/* Which step follows which, and where everything lies. */
#include "base/arena.h"
#include "nn/graph.h"

#include <stdlib.h>
#include <string.h>
#if defined(__linux__)
#include <sys/mman.h>
#endif

enum { HUGE_PAGE = 1 << 21 };

typedef struct plan {
    heed_graph *graph;
    bool *begun;  /* [nodes] the gradient was begun */
    bool *needed; /* [nodes] the backward run of the segment needs the value again */
    int step_capacity, life_capacity;
    struct {
        int step, value, gradient;
    } * place; /* [nodes] gradients that could lie over values */
    int places;
} plan;

static void mark_used(heed_graph *graph)
{
    for (int i = graph->nodes - 1; i >= 0; i--) {
        heed_nn_node *node = &graph->node[i];
        if (node->kept)
            node->used = true;
        if (!node->op && node->view < 0 && !node->parameter)
            node->used = true; /* the caller may write to it */
        if (node->used)
            for (int j = 0; j < node->ins; j++)
                if (node->in[j] >= 0)
                    graph->node[node->in[j]].used = true;
    }
}

static bool runs_backward(const heed_graph *graph, const heed_nn_node *node)
{
    return graph->loss >= 0 && node->op && node->used && node->wants && node->op->backward;
}

/* Values of segments that nothing outside reads, but their own backward steps do. */
static void mark_again(plan *p)
{
    heed_graph *graph = p->graph;
    if (graph->loss < 0)
        return;
    bool *outside = p->begun; /* borrowed until steps are laid out */
    for (int i = 0; i < graph->nodes; i++) {
        const heed_nn_node *node = &graph->node[i];
        if (!node->used)
            continue;
        if (node->kept)
            outside[i] = true;
        for (int j = 0; j < node->ins && node->op; j++)
            if (node->in[j] >= 0) {
                const heed_variable root = heed_nn_root(graph, node->in[j]);
                if (graph->node[root].segment != node->segment)
                    outside[root] = true;
            }
    }
    for (int i = 0; i < graph->nodes; i++) {
        const heed_nn_node *node = &graph->node[i];
        if (!runs_backward(graph, node))
            continue;
        for (int j = 0; j < node->ins; j++)
            if (node->in[j] >= 0 && node->op->reads >> j & 1u)
                p->needed[heed_nn_root(graph, node->in[j])] = true;
        if (node->op->flags & HEED_OP_READS_OUTPUT || node->saved_bytes)
            p->needed[i] = true;
    }
    for (int i = graph->nodes - 1; i >= 0; i--) {
        heed_nn_node *node = &graph->node[i];
        node->again = node->op && node->used && node->segment && p->needed[i] && !outside[i];
        for (int j = 0; j < node->ins && node->again; j++)
            if (node->in[j] >= 0)
                p->needed[heed_nn_root(graph, node->in[j])] = true;
    }
    memset(p->begun, 0, (size_t)(unsigned)graph->nodes * sizeof *p->begun);
}

static heed_status add_step(plan *p, heed_step_kind kind, int node)
{
    heed_graph *graph = p->graph;
    if (graph->steps == p->step_capacity) {
        const int capacity = p->step_capacity ? 2 * p->step_capacity : 128;
        heed_step *step = realloc(graph->step, (size_t)capacity * sizeof *step);
        if (!step)
            return heed_fail(HEED_NO_MEMORY, "no memory for a plan");
        graph->step = step;
        p->step_capacity = capacity;
    }
    graph->step[graph->steps++] = (heed_step){.kind = kind, .node = node};
    return HEED_OK;
}

static size_t rounded(size_t bytes)
{
    return (bytes + HEED_ALIGNMENT - 1) / HEED_ALIGNMENT * HEED_ALIGNMENT;
}

static heed_status add_life(plan *p, size_t bytes, int step, int *which)
{
    heed_graph *graph = p->graph;
    if (graph->lives == p->life_capacity) {
        const int capacity = p->life_capacity ? 2 * p->life_capacity : 256;
        heed_life *life = realloc(graph->life, (size_t)capacity * sizeof *life);
        if (!life)
            return heed_fail(HEED_NO_MEMORY, "no memory for a plan");
        graph->life = life;
        p->life_capacity = capacity;
    }
    graph->life[graph->lives] =
        (heed_life){.bytes = rounded(bytes), .first = step, .last = step, .merged = -1};
    *which = graph->lives++;
    return HEED_OK;
}

static void use(heed_graph *graph, int life, int step)
{
    if (life >= 0 && graph->life[life].last < step)
        graph->life[life].last = step;
}

static void use_value(heed_graph *graph, heed_variable node, int step, bool latest)
{
    const heed_nn_node *root = &graph->node[heed_nn_root(graph, node)];
    use(graph, root->value_life[latest && root->value_life[1] >= 0], step);
}

static size_t bytes_of(const heed_nn_node *node)
{
    return (size_t)node->count * sizeof(float);
}

static heed_status lay_forward(plan *p, int i, bool again)
{
    heed_graph *graph = p->graph;
    heed_nn_node *node = &graph->node[i];
    const int step = graph->steps;
    TRY(add_step(p, again ? HEED_STEP_AGAIN : HEED_STEP_FORWARD, i));
    TRY(add_life(p, bytes_of(node), step, &node->value_life[again]));
    if (node->saved_bytes)
        TRY(add_life(p, node->saved_bytes, step, &node->saved_life[again]));
    for (int j = 0; j < node->ins; j++)
        if (node->in[j] >= 0)
            use_value(graph, node->in[j], step, again);
    return HEED_OK;
}

/* The gradient of an input, begun or gone on with at this step. */
static heed_status lay_gradient(plan *p, int i, int j, int step)
{
    heed_graph *graph = p->graph;
    const heed_nn_node *node = &graph->node[i];
    const heed_variable r = heed_nn_root(graph, node->in[j]);
    heed_nn_node *root = &graph->node[r];
    if (!root->wants)
        return HEED_OK;
    if (p->begun[r])
        graph->step[step].add |= 1u << j;
    else if (root->parameter)
        graph->step[step].owner |= 1u << j;
    if (!root->parameter && !p->begun[r]) {
        TRY(add_life(p, bytes_of(root), step, &root->gradient_life));
        if (node->op->flags & HEED_OP_IN_PLACE && j == 0 && !root->kept && root->op) {
            p->place[p->places].step = step;
            p->place[p->places].value = root->value_life[root->value_life[1] >= 0];
            p->place[p->places++].gradient = root->gradient_life;
        }
    }
    use(graph, root->gradient_life, step);
    p->begun[r] = true;
    root->reached = true;
    return HEED_OK;
}

static heed_status lay_backward(plan *p, int i)
{
    heed_graph *graph = p->graph;
    heed_nn_node *node = &graph->node[i];
    const int step = graph->steps;
    TRY(add_step(p, HEED_STEP_BACKWARD, i));
    for (int j = 0; j < node->ins; j++)
        if (node->in[j] >= 0 && node->op->reads >> j & 1u)
            use_value(graph, node->in[j], step, true);
    if (node->op->flags & HEED_OP_READS_OUTPUT)
        use_value(graph, i, step, true);
    use(graph, node->saved_life[node->saved_life[1] >= 0], step);
    use(graph, node->gradient_life, step);
    for (int j = 0; j < node->ins; j++)
        if (node->in[j] >= 0)
            TRY(lay_gradient(p, i, j, step));
    return HEED_OK;
}

static heed_status lay_all_backward(plan *p)
{
    heed_graph *graph = p->graph;
    const heed_variable loss = heed_nn_root(graph, graph->loss);
    int segment = 0;
    TRY(add_life(p, bytes_of(&graph->node[loss]), graph->steps, &graph->node[loss].gradient_life));
    p->begun[loss] = true;
    for (int i = graph->nodes - 1; i >= 0; i--) {
        const heed_nn_node *node = &graph->node[i];
        if (!runs_backward(graph, node) || !p->begun[i])
            continue;
        if (node->segment && node->segment != segment) {
            segment = node->segment;
            for (int j = 0; j < graph->nodes; j++)
                if (graph->node[j].again && graph->node[j].segment == segment)
                    TRY(lay_forward(p, j, true));
        }
        TRY(lay_backward(p, i));
    }
    return HEED_OK;
}

static void put_gradients_over_values(const plan *p)
{
    heed_graph *graph = p->graph;
    for (int i = 0; i < p->places; i++) {
        heed_life *value = &graph->life[p->place[i].value], *gradient = &graph->life[p->place[i].gradient];
        if (value->last != p->place[i].step || value->merged >= 0 || value->bytes != gradient->bytes)
            continue;
        gradient->merged = p->place[i].value;
        value->last = gradient->last;
    }
}

static int larger_first(const void *a, const void *b)
{
    const heed_life *x = *(heed_life *const *)a, *y = *(heed_life *const *)b;
    if (x->bytes != y->bytes)
        return x->bytes < y->bytes ? 1 : -1;
    return x < y ? -1 : 1;
}

/* The largest first, each as low as it fits among those that live at the same time. `placed` stays in order
 * of offsets. */
static heed_status place_lives(heed_graph *graph)
{
    heed_life **all = calloc(2 * (size_t)graph->lives + 1, sizeof *all), **placed = all + graph->lives;
    int count = 0, done = 0;
    if (!all)
        return heed_fail(HEED_NO_MEMORY, "no memory for a plan");
    for (int i = 0; i < graph->lives; i++)
        if (graph->life[i].merged < 0)
            all[count++] = &graph->life[i];
    qsort(all, (size_t)count, sizeof *all, larger_first);
    for (int i = 0; i < count; i++) {
        size_t at = 0;
        for (int j = 0; j < done; j++) {
            const heed_life *other = placed[j];
            if (other->last < all[i]->first || other->first > all[i]->last)
                continue;
            if (other->offset >= at + all[i]->bytes)
                break;
            if (other->offset + other->bytes > at)
                at = other->offset + other->bytes;
        }
        all[i]->offset = at;
        if (at + all[i]->bytes > graph->bytes)
            graph->bytes = at + all[i]->bytes;
        int place = done++;
        for (; place > 0 && placed[place - 1]->offset > at; place--)
            placed[place] = placed[place - 1];
        placed[place] = all[i];
    }
    free(all);
    return HEED_OK;
}

size_t heed_step_room(const heed_graph *graph, const heed_step *step)
{
    const heed_nn_node *node = &graph->node[step->node];
    size_t room = 0;
    for (int j = 0; j < node->ins && node->op->flags & HEED_OP_OVERWRITES; j++)
        if ((step->add | step->owner) >> j & 1u)
            room += rounded(bytes_of(&graph->node[node->in[j]]));
    return room;
}

static heed_status take_memory(heed_graph *graph)
{
    size_t scratch = 0;
    for (int i = 0; i < graph->steps; i++) {
        const heed_nn_node *node = &graph->node[graph->step[i].node];
        const bool back = graph->step[i].kind == HEED_STEP_BACKWARD;
        const size_t own =
            back ? node->backward_scratch + heed_step_room(graph, &graph->step[i]) : node->forward_scratch;
        if (own > scratch)
            scratch = own;
    }
    const size_t alignment = graph->bytes > 4 * (size_t)HUGE_PAGE ? HUGE_PAGE : HEED_ALIGNMENT;
    const size_t bytes = (graph->bytes / alignment + 1) * alignment;
    graph->memory = aligned_alloc(alignment, bytes);
    graph->scratch = heed_allocate(1, scratch + 1);
    if (!graph->memory || !graph->scratch)
        return heed_fail(HEED_NO_MEMORY, "no memory for %zu bytes of values and gradients",
                         graph->bytes + scratch);
#if defined(__linux__)
    if (alignment == HUGE_PAGE)
        madvise(graph->memory, bytes, MADV_HUGEPAGE); /* only faster */
#endif
    graph->bytes += scratch;
    return HEED_OK;
}

static heed_status lay_out(plan *p)
{
    heed_graph *graph = p->graph;
    mark_used(graph);
    mark_again(p);
    for (int i = 0; i < graph->nodes; i++) {
        heed_nn_node *node = &graph->node[i];
        if (node->used && node->op)
            TRY(lay_forward(p, i, false));
        else if (node->used && !node->parameter && node->view < 0)
            TRY(add_life(p, bytes_of(node), 0, &node->value_life[0]));
    }
    graph->forward_steps = graph->steps;
    if (graph->loss >= 0)
        TRY(lay_all_backward(p));
    for (int i = 0; i < graph->nodes; i++) {
        const heed_nn_node *node = &graph->node[i];
        if (node->kept || (!node->op && node->view < 0))
            use(graph, node->value_life[0], graph->steps);
    }
    put_gradients_over_values(p);
    TRY(place_lives(graph));
    return take_memory(graph);
}

static heed_status set_pointers(const heed_graph *graph)
{
    for (int i = 0; i < graph->nodes; i++) {
        heed_nn_node *node = &graph->node[i];
        if (node->parameter) {
            node->value = node->parameter->value;
            if (graph->loss >= 0 && node->wants) {
                TRY(heed_parameter_gradient(node->parameter));
                node->gradient = node->parameter->gradient;
            }
            continue;
        }
        if (node->value_life[0] >= 0)
            node->value = graph->memory + graph->life[node->value_life[0]].offset;
        if (node->gradient_life >= 0) {
            const heed_life *life = &graph->life[node->gradient_life];
            while (life->merged >= 0)
                life = &graph->life[life->merged];
            node->gradient = (float *)(void *)(graph->memory + life->offset);
        }
        if (!node->op && node->value)
            memset(node->value, 0, bytes_of(node));
    }
    return HEED_OK;
}

heed_status heed_graph_plan(heed_graph *graph)
{
    const size_t nodes = (size_t)(unsigned)graph->nodes + 1;
    plan p = {.graph = graph,
              .begun = calloc(nodes, sizeof(bool)),
              .needed = calloc(nodes, sizeof(bool)),
              .place = calloc(nodes, sizeof *p.place)};
    heed_status status =
        p.begun && p.needed && p.place ? lay_out(&p) : heed_fail(HEED_NO_MEMORY, "no memory for a plan");
    if (!status)
        status = set_pointers(graph);
    free(p.begun);
    free(p.needed);
    free(p.place);
    return status;
}
