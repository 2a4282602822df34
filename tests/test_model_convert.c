/* heed convert: what is written is what was read, in other types or another format. */
#include "support/gguf_bytes.h"
#include "support/program.h"

#include <fcntl.h>
#include <heed/heed.h>
#include <math.h>
#include <model/file.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

static heed_model_file *opened(const char *path)
{
    heed_model_file *file;
    if (heed_model_file_open(&file, path))
        fail_msg("%s", heed_message());
    return file;
}

static const heed_model_tensor *tensor_of(const heed_model_file *file, const char *name)
{
    const heed_model_tensor *tensor = heed_model_file_find(file, name);
    if (!tensor)
        fail_msg("no tensor %s", name);
    return tensor;
}

/* Number i of the matrices below. */
static float value(int i)
{
    return sinf((float)i) * (float)(1 + i % 7);
}

/* An embedding of 512 a row, a matrix of 512, one of 96, one of 40, a norm and positions, all f32. */
static void write_model(const char *path)
{
    static const struct {
        const char *name;
        uint32_t rank;
        uint64_t shape[2];
    } all[] = {{"token_embd.weight", 2, {512, 4}},  {"blk.0.attn_q.weight", 2, {512, 8}},
               {"blk.0.attn_k.weight", 2, {96, 8}}, {"blk.0.ffn_up.weight", 2, {40, 3}},
               {"output_norm.weight", 1, {512, 1}}, {"position_embd.weight", 2, {512, 2}}};
    const int count = (int)(sizeof all / sizeof *all);
    bytes b = {0};
    uint64_t offset = 0;
    put_start(&b, 3, (uint64_t)count, 3);
    put_key_text(&b, "general.architecture", "llama");
    put_key_u32(&b, "general.file_type", 0);
    put_key_u32(&b, "llama.block_count", 1);
    for (int i = 0; i < count; i++) {
        put_tensor(&b, all[i].name, all[i].rank, all[i].shape, 0, offset);
        offset += all[i].shape[0] * all[i].shape[1] * 4;
    }
    put_padding(&b, 32);
    for (int i = 0; i < (int)(offset / 4); i++)
        put_float(&b, value(i));
    bytes_write(&b, path);
    bytes_free(&b);
}

/* The largest difference between the values of a tensor in two files, as a share of the largest value. */
static double difference(const heed_model_file *a, const heed_model_file *b, const char *name)
{
    const heed_model_tensor *x = tensor_of(a, name), *y = tensor_of(b, name);
    const int64_t row = x->shape[x->rank - 1], rows = x->rank > 1 ? x->shape[0] : 1;
    double most = 0.0, apart = 0.0;
    assert_int_equal(x->rank, y->rank);
    assert_int_equal(y->shape[y->rank - 1], row);
    float p[512], q[512];
    for (int64_t r = 0; r < rows; r++) {
        heed_load(x->tensor.type, (char *)x->tensor.data + r * heed_type_bytes(x->tensor.type, row), p, row);
        heed_load(y->tensor.type, (char *)y->tensor.data + r * heed_type_bytes(y->tensor.type, row), q, row);
        for (int64_t i = 0; i < row; i++) {
            most = fmax(most, fabs((double)p[i]));
            apart = fmax(apart, fabs((double)p[i] - (double)q[i]));
        }
    }
    return apart / most;
}

static void a_file_that_is_kept_as_it_is_has_the_same_bytes(void **state)
{
    (void)state;
    bytes b = {0};
    put_small_model(&b, 3);
    put_padding(&b, 32);
    bytes_write(&b, "small.gguf");
    bytes_free(&b);
    run("convert small.gguf same.gguf");
    assert_int_equal(ran.status, 0);
    assert_said(ran.out, "3 tensors, 0 of another type");
    assert_true(same_file("small.gguf", "same.gguf"));
    write_model("m.gguf");
    run("convert m.gguf same.gguf --type f32");
    assert_int_equal(ran.status, 0);
    heed_model_file *a = opened("m.gguf"), *c = opened("same.gguf");
    for (int i = 0; i < heed_model_file_tensors(a); i++)
        assert_memory_equal(heed_model_file_tensor(a, i)->tensor.data,
                            heed_model_file_tensor(c, i)->tensor.data, heed_model_file_tensor(a, i)->bytes);
    heed_model_file_close(a);
    heed_model_file_close(c);
}

static void assert_types(const heed_model_file *file, const char *const *types)
{
    for (int i = 0; i < heed_model_file_tensors(file); i++)
        assert_string_equal(heed_model_file_tensor(file, i)->dtype, types[i]);
}

static void matrices_are_quantised_and_the_rest_is_kept(void **state)
{
    (void)state;
    static const struct {
        const char *type;
        const char *types[6];
        int64_t file_type;
        double apart;
    } cases[] = {
        {"f16", {"F16", "F16", "F16", "F16", "F32", "F32"}, 1, 5e-4},
        {"bf16", {"BF16", "BF16", "BF16", "BF16", "F32", "F32"}, 32, 4e-3},
        {"q8_0", {"Q8_0", "Q8_0", "Q8_0", "F16", "F32", "F32"}, 7, 5e-3},
        {"q4_0", {"Q8_0", "Q4_0", "Q4_0", "F16", "F32", "F32"}, 2, 0.13},
        {"q4_k", {"Q8_0", "Q4_K", "Q5_0", "F16", "F32", "F32"}, 15, 0.1},
        {"q6_k", {"Q8_0", "Q6_K", "Q8_0", "F16", "F32", "F32"}, 18, 0.03},
    };
    write_model("m.gguf");
    heed_model_file *before = opened("m.gguf");
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        run("convert m.gguf out.gguf --type %s", cases[i].type);
        assert_int_equal(ran.status, 0);
        heed_model_file *after = opened("out.gguf");
        assert_types(after, cases[i].types);
        assert_int_equal(heed_model_file_meta(after, "general.file_type")->whole, cases[i].file_type);
        assert_int_equal(heed_model_file_meta(after, "llama.block_count")->whole, 1);
        assert_string_equal(heed_model_file_meta(after, "general.architecture")->text, "llama");
        for (int t = 0; t < 6; t++) {
            const char *name = heed_model_file_tensor(before, t)->name;
            const double apart = difference(before, after, name);
            if (apart > (t < 4 ? cases[i].apart : 0.0))
                fail_msg("%s as %s: %g apart", name, cases[i].type, apart);
        }
        heed_model_file_close(after);
    }
    run("convert m.gguf out.gguf --type q4_0 --embedding q5_0 --json --threads 2");
    assert_int_equal(ran.status, 0);
    assert_said(ran.out, "\"not_fitting\":\t1");
    heed_model_file *after = opened("out.gguf");
    assert_string_equal(tensor_of(after, "token_embd.weight")->dtype, "Q5_0");
    heed_model_file_close(after);
    heed_model_file_close(before);
}

static void any_number_of_threads_writes_the_same(void **state)
{
    (void)state;
    write_model("m.gguf");
    run("convert m.gguf one.gguf --type q4_k --threads 1");
    run("convert m.gguf three.gguf --type q4_k --threads 3");
    assert_true(same_file("one.gguf", "three.gguf"));
}

static void gguf_becomes_safetensors_with_its_metadata(void **state)
{
    (void)state;
    write_model("m.gguf");
    run("convert m.gguf q.gguf --type q8_0");
    run("convert q.gguf out.safetensors");
    assert_int_equal(ran.status, 0);
    heed_model_file *before = opened("q.gguf"), *after = opened("out.safetensors");
    for (int t = 0; t < 6; t++) {
        const char *name = heed_model_file_tensor(before, t)->name;
        assert_true(difference(before, after, name) == 0.0);
    }
    assert_string_equal(tensor_of(after, "blk.0.attn_q.weight")->dtype, "F32");
    heed_model_file_close(before);
    heed_model_file_close(after);
    static char text[1 << 16];
    FILE *file = fopen("out.safetensors", "rb");
    text[fread(text, 1, sizeof text - 1, file)] = 0;
    fclose(file);
    assert_said(text + 8, "\"general.architecture\":\"llama\"");
    assert_said(text + 8, "\"llama.block_count\":\"1\"");
    run("convert q.gguf out.safetensors --type f16");
    heed_model_file *half = opened("out.safetensors");
    assert_string_equal(tensor_of(half, "blk.0.attn_q.weight")->dtype, "F16");
    assert_string_equal(tensor_of(half, "output_norm.weight")->dtype, "F32");
    heed_model_file_close(half);
    run("convert q.gguf out.safetensors --type q4_0");
    assert_one_sentence("q4 has no place in a safetensors file: f32, f16 or bf16 is needed");
}

static void parts_become_one_file(void **state)
{
    (void)state;
    for (int part = 0; part < 2; part++) {
        bytes b = {0};
        char name[40];
        put_start(&b, 3, 1, 2);
        put_key(&b, "split.no", 2), put_number(&b, (uint64_t)part, 2);
        put_key(&b, "split.count", 2), put_number(&b, 2, 2);
        put_tensor(&b, part ? "b" : "a", 1, (const uint64_t[]){1}, 0, 0);
        put_padding(&b, 32);
        put_float(&b, (float)part);
        snprintf(name, sizeof name, "p-%05d-of-00002.gguf", part + 1);
        bytes_write(&b, name);
        bytes_free(&b);
    }
    run("convert p-00001-of-00002.gguf whole.gguf");
    assert_int_equal(ran.status, 0);
    heed_model_file *file = opened("whole.gguf");
    assert_int_equal(heed_model_file_metas(file), 0);
    assert_true(*(float *)tensor_of(file, "b")->tensor.data == 1.0f);
    heed_model_file_close(file);
}

static void what_cannot_be_written_leaves_nothing(void **state)
{
    (void)state;
    write_model("m.gguf");
    run("convert m.gguf out.bin");
    assert_one_sentence("the name must end in .gguf or .safetensors");
    run("convert m.gguf no/such/folder.gguf");
    assert_one_sentence("cannot be written: No such file or directory");
    write_text("old.gguf", "old");
    assert_int_equal(system("(ulimit -f 4; '" HEED_PROGRAM "' convert m.gguf old.gguf 2>err.txt)") >> 8, 2);
    static char text[400];
    FILE *file = fopen("err.txt", "r");
    text[fread(text, 1, sizeof text - 1, file)] = 0;
    fclose(file);
    assert_said(text, "old.gguf: cannot be written: File too large");
    file = fopen("old.gguf", "r");
    assert_int_equal(fread(text, 1, 10, file), 3);
    fclose(file);
    assert_int_equal(unfinished_files(), 0);
    run("convert m.gguf out.gguf --type q9");
    assert_one_sentence("--type q9: unknown");
}

/* The file shrinks when its first bytes have gone through a pipe, which holds less than all of them. */
static void shrink_while_converting(const char *type)
{
    static char text[1 << 16];
    int status;
    bytes b = {0};
    put_start(&b, 3, 1, 0);
    put_tensor(&b, "x.weight", 2, (const uint64_t[]){1 << 20, 4}, 0, 0);
    put_padding(&b, 32);
    for (int i = 0; i < 4 << 20; i++)
        put_number(&b, 0, 4);
    bytes_write(&b, "large.gguf");
    bytes_free(&b);
    assert_int_equal(mkfifo("pipe.gguf", 0600), 0);
    const pid_t child = fork();
    if (child == 0) {
        dup2(open("err.txt", O_WRONLY | O_CREAT | O_TRUNC, 0600), 2);
        execl(HEED_PROGRAM, "heed", "convert", "large.gguf", "pipe.gguf", "--type", type, (char *)NULL);
        _exit(127);
    }
    const int reader = open("pipe.gguf", O_RDONLY);
    assert_true(read(reader, text, 1000) > 0);
    assert_int_equal(truncate("large.gguf", 4096), 0);
    while (read(reader, text, sizeof text) > 0)
        ;
    close(reader);
    assert_int_equal(waitpid(child, &status, 0), child);
    FILE *file = fopen("err.txt", "r");
    text[fread(text, 1, sizeof text - 1, file)] = 0;
    fclose(file);
    unlink("pipe.gguf");
    if (!WIFEXITED(status) || WEXITSTATUS(status) != 2 || !strstr(text, "a file became shorter"))
        fail_msg("--type %s: ended with %d: %s", type, status, text);
}

static void a_file_that_shrinks_while_it_is_mapped_ends_the_program_with_a_sentence(void **state)
{
    (void)state;
    shrink_while_converting("keep"); /* the system copies */
    shrink_while_converting("f16");  /* the program reads */
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_file_that_is_kept_as_it_is_has_the_same_bytes),
        cmocka_unit_test(matrices_are_quantised_and_the_rest_is_kept),
        cmocka_unit_test(any_number_of_threads_writes_the_same),
        cmocka_unit_test(gguf_becomes_safetensors_with_its_metadata),
        cmocka_unit_test(parts_become_one_file),
        cmocka_unit_test(what_cannot_be_written_leaves_nothing),
        cmocka_unit_test(a_file_that_shrinks_while_it_is_mapped_ends_the_program_with_a_sentence),
    };
    return cmocka_run_group_tests(tests, program_folder, program_folder_remove);
}
