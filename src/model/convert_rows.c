/* Tensors on their way from file to file: some rows at a time, by several threads. */
#include "model/convert_rows.h"
#include "base/cpu.h"
#include "base/try.h"

#include <omp.h>
#include <stdlib.h>
#include <string.h>

enum { CHUNK_BYTES = 1 << 22 };

static bool is_quantised(heed_type type)
{
    return type != HEED_TYPES && heed_type_bytes(type, 2) != 2 * heed_type_bytes(type, 1);
}

/* Rows of blocks of 256 that do not come out even get blocks of 32, of at least as many bits. */
static heed_type fitting(heed_type type, int64_t row)
{
    static const struct {
        heed_type wide, narrow;
    } narrower[] = {{HEED_Q2_K, HEED_Q4},   {HEED_Q3_K, HEED_Q4}, {HEED_Q4_K, HEED_Q5_0},
                    {HEED_Q5_K, HEED_Q5_1}, {HEED_Q6_K, HEED_Q8}, {HEED_IQ4_XS, HEED_IQ4_NL}};
    if (!is_quantised(type))
        return type;
    for (size_t i = 0; i < sizeof narrower / sizeof *narrower; i++)
        if (narrower[i].wide == type && row % 256 != 0)
            type = narrower[i].narrow;
    return row % HEED_BLOCK == 0 ? type : HEED_F16;
}

static bool is_number(heed_type type)
{
    return type == HEED_F32 || type == HEED_F16 || type == HEED_BF16 || type == HEED_F64 ||
           is_quantised(type);
}

/* Bits that a number takes, times 256. */
static int64_t bits(heed_type type)
{
    return heed_type_bytes(type, 256) * 8;
}

heed_status heed_convert_choose(const heed_model_tensor *tensor, bool embedding, bool matrix,
                                const heed_convert_options *options, heed_convert_report *report,
                                heed_type *type)
{
    const heed_type from = tensor->tensor.type;
    heed_type wanted = options->type;
    if (embedding && options->embedding != HEED_TYPES)
        wanted = options->embedding;
    else if (embedding && wanted != HEED_TYPES && bits(wanted) < bits(HEED_Q8))
        wanted = HEED_Q8;
    *type = HEED_TYPES;
    report->tensors++;
    report->bytes_before += tensor->bytes;
    if (wanted == HEED_TYPES || !matrix || (from != HEED_TYPES && !is_number(from)))
        return HEED_OK;
    if (from == HEED_TYPES)
        return heed_fail(HEED_UNSUPPORTED, "tensor %s has type %s, which heed cannot read", tensor->name,
                         tensor->dtype);
    *type = fitting(wanted, tensor->shape[tensor->rank - 1]);
    if (*type != wanted) {
        report->other++;
        report->other_type = *type;
    }
    if (*type == from) {
        *type = HEED_TYPES;
        return HEED_OK;
    }
    report->changed++;
    report->again += is_quantised(from) && is_quantised(*type);
    return HEED_OK;
}

/* Where row r of what is written comes from. Within a head the first half of its rows goes to the even places
 * and the second to the odd ones. */
static int64_t source_row(const heed_conversion *conversion, int64_t rows, int64_t r)
{
    if (conversion->heads <= 0)
        return r;
    const int64_t dim = rows / conversion->heads, head = r / dim, place = r % dim;
    return head * dim + (place % 2) * (dim / 2) + place / 2;
}

/* Row r of what is written, as floats. */
static void load_row(const heed_conversion *conversion, int64_t rows, int64_t row, int64_t r, float *to)
{
    const heed_tensor *from = &conversion->from->tensor;
    const unsigned char *data = from->data;
    if (conversion->turned) { /* [row, rows] in the file, of a type without blocks */
        const int64_t size = heed_type_bytes(from->type, 1);
        for (int64_t i = 0; i < row; i++)
            heed_load(from->type, data + (i * rows + r) * size, to + i, 1);
    } else {
        heed_load(from->type, data + source_row(conversion, rows, r) * heed_type_bytes(from->type, row), to,
                  row);
    }
    for (int64_t i = 0; conversion->shift != 0.0f && i < row; i++)
        to[i] += conversion->shift;
}

static int threads_of(const heed_convert_options *options)
{
    return options->threads > 0 ? options->threads : heed_cpu_physical_cores();
}

static void tell(heed_convert_work *work, uint64_t bytes)
{
    work->done += bytes;
    if (work->options->progress)
        work->options->progress(work->options->context, work->done, work->total);
}

static heed_status write_converted(heed_convert_work *work, const heed_conversion *conversion,
                                   heed_output *output)
{
    const heed_model_tensor *from = conversion->from;
    const int64_t last = from->rank > 0 ? from->shape[from->rank - 1] : 1;
    int64_t rows = 1, row = last;
    for (int d = 0; d < from->rank - 1; d++)
        rows *= from->shape[d];
    if (conversion->turned) {
        row = rows;
        rows = last;
    }
    const heed_type type = conversion->type == HEED_TYPES ? from->tensor.type : conversion->type;
    const int64_t bytes = heed_type_bytes(type, row);
    if (rows == 0 || row == 0)
        return HEED_OK;
    const int64_t most = bytes < CHUNK_BYTES ? CHUNK_BYTES / bytes : 1, chunk = most < rows ? most : rows;
    const int threads = threads_of(work->options);
    unsigned char *encoded = malloc((size_t)(chunk * bytes));
    float *numbers = malloc((size_t)threads * (size_t)row * sizeof *numbers);
    heed_status status = encoded && numbers
                             ? HEED_OK
                             : heed_fail(HEED_NO_MEMORY, "tensor %s: no memory to convert it", from->name);
    for (int64_t r0 = 0; r0 < rows && !status; r0 += chunk) {
        const int64_t count = rows - r0 < chunk ? rows - r0 : chunk;
#pragma omp parallel for num_threads(threads) schedule(static)
        for (int64_t r = 0; r < count; r++) {
            float *one = numbers + omp_get_thread_num() * row;
            load_row(conversion, rows, row, r0 + r, one);
            heed_store(type, one, encoded + r * bytes, row);
        }
        status = heed_output_write(output, encoded, (size_t)(count * bytes));
        tell(work, from->bytes / (uint64_t)rows * (uint64_t)count);
    }
    free(encoded);
    free(numbers);
    return status;
}

/* Bytes as they are, a piece at a time; rows of heads in their new order. */
static heed_status write_plain(heed_convert_work *work, const heed_conversion *conversion,
                               heed_output *output)
{
    const heed_model_tensor *from = conversion->from;
    const unsigned char *data = from->tensor.data;
    if (conversion->heads > 0) {
        const int64_t rows = from->shape[0];
        const size_t row = from->bytes / (size_t)rows;
        for (int64_t r = 0; r < rows; r++)
            TRY(heed_output_write(output, data + (size_t)source_row(conversion, rows, r) * row, row));
        tell(work, from->bytes);
        return HEED_OK;
    }
    for (size_t at = 0; at < from->bytes; at += CHUNK_BYTES) {
        const size_t part = from->bytes - at < CHUNK_BYTES ? from->bytes - at : CHUNK_BYTES;
        TRY(heed_output_write(output, data + at, part));
        tell(work, part);
    }
    return HEED_OK;
}

heed_status heed_convert_source(void *context, int i, heed_output *output)
{
    heed_convert_work *work = context;
    const heed_conversion *conversion = &work->each[i];
    const bool plain = conversion->type == HEED_TYPES && conversion->shift == 0.0f && !conversion->turned;
    return plain ? write_plain(work, conversion, output) : write_converted(work, conversion, output);
}
