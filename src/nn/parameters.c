/* Learnable tensors by name. */
#include "base/arena.h"
#include "base/philox.h"
#include "nn/graph.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

struct heed_parameters {
    heed_parameter **at; /* each for itself, so that pointers stay good */
    int count, capacity;
    uint64_t seed;
};

heed_status heed_parameters_create(heed_parameters **parameters, uint64_t seed)
{
    *parameters = calloc(1, sizeof **parameters);
    if (!*parameters)
        return heed_fail(HEED_NO_MEMORY, "no memory for parameters");
    (*parameters)->seed = seed;
    return HEED_OK;
}

void heed_parameters_free(heed_parameters *parameters)
{
    if (!parameters)
        return;
    for (int i = 0; i < parameters->count; i++) {
        free(parameters->at[i]->value);
        free(parameters->at[i]->gradient);
        free(parameters->at[i]);
    }
    free(parameters->at);
    free(parameters);
}

int heed_parameters_count(const heed_parameters *parameters)
{
    return parameters->count;
}

heed_parameter *heed_parameters_at(const heed_parameters *parameters, int i)
{
    return parameters->at[i];
}

heed_parameter *heed_parameters_find(const heed_parameters *parameters, const char *name)
{
    for (int i = 0; i < parameters->count; i++)
        if (!strcmp(parameters->at[i]->name, name))
            return parameters->at[i];
    return NULL;
}

uint64_t heed_parameters_seed(const heed_parameters *parameters)
{
    return parameters->seed;
}

/* FNV-1a: the stream of random numbers that belongs to a name. */
static uint64_t stream_of(const char *name)
{
    uint64_t hash = 0xcbf29ce484222325u;
    for (; *name; name++)
        hash = (hash ^ (unsigned char)*name) * 0x100000001b3u;
    return hash;
}

static double uniform(uint32_t bits)
{
    return ((double)bits + 0.5) * 0x1p-32;
}

static void fill(heed_parameter *parameter, const heed_initial *initial, uint64_t seed)
{
    const uint64_t stream = stream_of(parameter->name);
    float *to = parameter->value;
    if (initial->values) {
        memcpy(to, initial->values, (size_t)parameter->count * sizeof *to);
        return;
    }
    for (int64_t i = 0; i < parameter->count; i += 2) {
        uint32_t bits[4];
        double pair[2] = {initial->size, initial->size};
        if (initial->kind != HEED_INITIAL_CONSTANT)
            heed_philox_at(seed, stream, (uint64_t)i, bits);
        if (initial->kind == HEED_INITIAL_NORMAL) {
            const double size = initial->size * sqrt(-2.0 * log(uniform(bits[0])));
            pair[0] = size * cos(6.283185307179586 * uniform(bits[1]));
            pair[1] = size * sin(6.283185307179586 * uniform(bits[1]));
        } else if (initial->kind == HEED_INITIAL_UNIFORM) {
            for (int j = 0; j < 2; j++)
                pair[j] = initial->size * (2.0 * uniform(bits[j]) - 1.0);
        }
        for (int j = 0; j < 2 && i + j < parameter->count; j++)
            to[i + j] = (float)pair[j];
    }
}

static heed_parameter *add(heed_parameters *parameters)
{
    if (parameters->count == parameters->capacity) {
        const int capacity = parameters->capacity ? 2 * parameters->capacity : 32;
        heed_parameter **at = realloc(parameters->at, (size_t)capacity * sizeof *at);
        if (!at)
            return NULL;
        parameters->at = at;
        parameters->capacity = capacity;
    }
    heed_parameter *parameter = calloc(1, sizeof *parameter);
    if (parameter)
        parameters->at[parameters->count++] = parameter;
    return parameter;
}

heed_parameter *heed_parameters_make(heed_parameters *parameters, const char *name, int rank,
                                     const int64_t *shape, const heed_initial *initial)
{
    heed_parameter *parameter = heed_parameters_find(parameters, name);
    size_t bytes;
    if (parameter) {
        if (parameter->rank == rank && !memcmp(parameter->shape, shape, (size_t)rank * sizeof *shape))
            return parameter;
        heed_fail(HEED_INVALID, "parameter %s was made with another shape", name);
        return NULL;
    }
    if (strlen(name) >= sizeof parameter->name) {
        heed_fail(HEED_INVALID, "%.60s...: a parameter's name has %d characters at most", name,
                  (int)sizeof parameter->name - 1);
        return NULL;
    }
    if (heed_tensor_bytes(HEED_F32, rank, shape, &bytes))
        return NULL;
    parameter = add(parameters);
    if (parameter)
        parameter->value = heed_allocate(1, bytes + 1);
    if (!parameter || !parameter->value) {
        if (parameter)
            free(parameters->at[--parameters->count]);
        heed_fail(HEED_NO_MEMORY, "no memory for parameter %s of %zu bytes", name, bytes);
        return NULL;
    }
    strcpy(parameter->name, name);
    parameter->rank = rank;
    memcpy(parameter->shape, shape, (size_t)rank * sizeof *shape);
    parameter->count = (int64_t)(bytes / sizeof(float));
    fill(parameter, initial, parameters->seed);
    return parameter;
}

heed_status heed_parameter_gradient(heed_parameter *parameter)
{
    if (!parameter->gradient)
        parameter->gradient = heed_allocate((size_t)parameter->count + 1, sizeof(float));
    return parameter->gradient
               ? HEED_OK
               : heed_fail(HEED_NO_MEMORY, "no memory for the gradient of %s", parameter->name);
}
