#include "train/optimiser.h"
#include "base/arena.h"
#include "base/cpu.h"
#include "base/try.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

extern const heed_optimiser_kind heed_optimiser_adamw, heed_optimiser_sgd, heed_optimiser_lion,
    heed_optimiser_muon, heed_optimiser_adafactor;

static const heed_optimiser_kind *const kinds[] = {&heed_optimiser_adamw, &heed_optimiser_sgd,
                                                   &heed_optimiser_lion, &heed_optimiser_muon,
                                                   &heed_optimiser_adafactor};

typedef struct entry {
    heed_parameter *parameter;
    float *state[HEED_OPTIMISER_SLOTS];
    int64_t size[HEED_OPTIMISER_SLOTS];
} entry;

struct heed_optimiser {
    const heed_optimiser_kind *kind;
    heed_optimiser_how how;
    const heed_nn_kernels *kernels;
    int threads, entries;
    entry *entry;
    float *scratch;
    uint64_t steps;
};

const heed_optimiser_kind *heed_optimiser_kind_at(int i)
{
    return i >= 0 && i < (int)(sizeof kinds / sizeof *kinds) ? kinds[i] : NULL;
}

int64_t heed_update_same(const heed_parameter *parameter, int slot)
{
    (void)slot;
    return parameter->count;
}

static heed_status add_entry(heed_optimiser *optimiser, heed_parameter *parameter, int64_t *scratch)
{
    const heed_optimiser_kind *kind = optimiser->kind;
    entry *to = &optimiser->entry[optimiser->entries++];
    to->parameter = parameter;
    for (int slot = 0; slot < HEED_OPTIMISER_SLOTS && kind->slot[slot]; slot++) {
        to->size[slot] = kind->size(parameter, slot);
        to->state[slot] = heed_allocate((size_t)to->size[slot] + 1, sizeof(float));
        if (!to->state[slot])
            return heed_fail(HEED_NO_MEMORY, "no memory for the optimiser's state of %s", parameter->name);
    }
    if (kind->scratch && kind->scratch(parameter) > *scratch)
        *scratch = kind->scratch(parameter);
    return HEED_OK;
}

heed_status heed_optimiser_create(heed_optimiser **optimiser, const heed_optimiser_kind *kind,
                                  const heed_optimiser_how *how, heed_parameters *parameters, int threads,
                                  heed_isa isa)
{
    heed_isa resolved;
    int64_t scratch = 0;
    heed_status status = HEED_OK;
    *optimiser = NULL;
    TRY(heed_isa_resolve(isa, &resolved));
    const int count = heed_parameters_count(parameters);
    heed_optimiser *made = calloc(1, sizeof *made);
    if (made)
        made->entry = calloc((size_t)count + 1, sizeof *made->entry);
    if (!made || !made->entry) {
        free(made);
        return heed_fail(HEED_NO_MEMORY, "no memory for an optimiser");
    }
    made->kind = kind;
    made->how = *how;
    made->kernels = heed_nn_kernels_of(resolved);
    made->threads = threads ? threads : heed_cpu_physical_cores();
    for (int i = 0; i < count && !status; i++)
        if (heed_parameters_at(parameters, i)->gradient)
            status = add_entry(made, heed_parameters_at(parameters, i), &scratch);
    made->scratch = status ? NULL : heed_allocate((size_t)scratch + 1, sizeof(float));
    if (!status && !made->scratch)
        status = heed_fail(HEED_NO_MEMORY, "no memory for an optimiser's work");
    if (status)
        heed_optimiser_free(made);
    else
        *optimiser = made;
    return status;
}

void heed_optimiser_free(heed_optimiser *optimiser)
{
    if (!optimiser)
        return;
    for (int i = 0; i < optimiser->entries; i++)
        for (int slot = 0; slot < HEED_OPTIMISER_SLOTS; slot++)
            free(optimiser->entry[i].state[slot]);
    free(optimiser->entry);
    free(optimiser->scratch);
    free(optimiser);
}

double heed_optimiser_norm(const heed_optimiser *optimiser)
{
    double squares = 0.0;
    for (int i = 0; i < optimiser->entries; i++) {
        const heed_parameter *parameter = optimiser->entry[i].parameter;
        for (int64_t from = 0; from < parameter->count; from += HEED_UPDATE_PIECE) {
            const int64_t left = parameter->count - from;
            squares += optimiser->kernels->squares(parameter->gradient + from,
                                                   left < HEED_UPDATE_PIECE ? left : HEED_UPDATE_PIECE);
        }
    }
    return sqrt(squares);
}

void heed_optimiser_step(heed_optimiser *optimiser, float factor, float scale)
{
    optimiser->steps++;
    for (int i = 0; i < optimiser->entries; i++) {
        const entry *at = &optimiser->entry[i];
        const heed_update update = {.how = &optimiser->how,
                                    .kernels = optimiser->kernels,
                                    .threads = optimiser->threads,
                                    .parameter = at->parameter,
                                    .state = {at->state[0], at->state[1]},
                                    .rate = optimiser->how.rate * factor,
                                    .other_rate = optimiser->how.other_rate * factor,
                                    .decay = at->parameter->plain ? 0.0f : optimiser->how.decay,
                                    .scale = scale,
                                    .step = optimiser->steps,
                                    .scratch = optimiser->scratch};
        optimiser->kind->update(&update);
    }
}

uint64_t heed_optimiser_steps(const heed_optimiser *optimiser)
{
    return optimiser->steps;
}

void heed_optimiser_set_steps(heed_optimiser *optimiser, uint64_t steps)
{
    optimiser->steps = steps;
}

static int slots(const heed_optimiser *optimiser)
{
    int count = 0;
    while (count < HEED_OPTIMISER_SLOTS && optimiser->kind->slot[count])
        count++;
    return count;
}

int heed_optimiser_tensors(const heed_optimiser *optimiser)
{
    return optimiser->entries * slots(optimiser);
}

heed_state_tensor heed_optimiser_tensor(const heed_optimiser *optimiser, int i)
{
    const int each = slots(optimiser), slot = i % each;
    const entry *at = &optimiser->entry[i / each];
    heed_state_tensor tensor = {.data = at->state[slot], .count = at->size[slot]};
    snprintf(tensor.name, sizeof tensor.name, "optimiser.%s.%s", optimiser->kind->slot[slot],
             at->parameter->name);
    return tensor;
}
