/* A folder of safetensors and the GGUF file made of it give the same logits and the same tokens. */
#include "support/program.h"
#include "support/small_models.h"

#include <math.h>
#include <model/file.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <utf8proc.h>

/* The largest distance of what a GGUF file gives from what the reference gives. */
static double distance(const char *path, const small_model *small)
{
    heed_model *model;
    must(heed_model_open(&model, path, &(heed_model_options){.exact = true, .threads = 2}));
    heed_session *session =
        new_session(model, &(heed_session_options){.cache = HEED_F32, .cache_given = true});
    float *out = feed_all(session, model, small->tokens, small->count);
    const double apart = farthest(out, small->expected, small->count * small->columns);
    free(out);
    heed_session_free(session);
    heed_model_close(model);
    return apart;
}

static void a_converted_model_gives_the_logits_of_the_reference(void **state)
{
    (void)state;
    static const char *const names[] = {"bert",  "gemma",        "gemma2",        "gemma3",       "gpt2",
                                        "llama", "llama3",       "llama_sharded", "llama_tied",   "mistral",
                                        "phi3",  "phi3_partial", "qwen2",         "qwen2_window", "qwen3"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        small_model small;
        open_small(&small, names[i], false);
        run("convert %s/golden/models/%s out.gguf", HEED_TEST_DATA, names[i]);
        if (ran.status)
            fail_msg("%s: %s", names[i], ran.err);
        const double apart = distance("out.gguf", &small);
        if (!(apart < 1e-4))
            fail_msg("%s: %g apart", names[i], apart);
        run("convert %s/golden/models/%s out.gguf --type q8_0", HEED_TEST_DATA, names[i]);
        const double rounded = distance("out.gguf", &small);
        if (!(rounded > apart && rounded < 1.0))
            fail_msg("%s as q8_0: %g apart", names[i], rounded);
        close_small(&small);
    }
}

/* A model of the tests with a sed command on its config.json, in `folder`. */
static void change_config(const char *name, const char *command)
{
    char text[1200];
    snprintf(text, sizeof text,
             "mkdir -p folder && cp %s/golden/models/%s/model.safetensors folder && "
             "sed '%s' %s/golden/models/%s/config.json >folder/config.json",
             HEED_TEST_DATA, name, command, HEED_TEST_DATA, name);
    assert_int_equal(system(text), 0);
}

static void what_a_gguf_file_cannot_say_is_refused_by_name(void **state)
{
    (void)state;
    static const struct {
        const char *name, *change, *words;
    } cases[] = {{"llama3", "s/\"low_freq_factor\": [0-9.]*/\"low_freq_factor\": 2.0/",
                  "the rotation (rope) of this model cannot be said in a GGUF file of llama"},
                 {"llama3",
                  "s/\"original_max_position_embeddings\": [0-9]*/"
                  "\"original_max_position_embeddings\": 1330/",
                  "its slowest pair turns slower by"}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        change_config(cases[i].name, cases[i].change);
        run("convert folder no.gguf");
        assert_one_sentence(cases[i].words);
        assert_false(exists("no.gguf"));
        assert_int_equal(system("rm -r folder"), 0);
    }
    assert_int_equal(unfinished_files(), 0);
}

static void what_a_gguf_file_does_not_say_is_reported(void **state)
{
    (void)state;
    change_config("bert", "");
    run("convert folder out.gguf");
    assert_int_equal(ran.status, 0);
    assert_null(strstr(ran.out, "texts cut at"));
    write_text("folder/sentence_bert_config.json", "{\"max_seq_length\": 7}");
    run("convert folder out.gguf");
    assert_int_equal(ran.status, 0);
    assert_said(ran.out, "wants texts cut at 7 tokens");
    assert_int_equal(system("rm -r folder"), 0);
}

/* config.json ends texts with a token, the tokeniser with another. */
static void ends_and_begins_that_contradict_are_noted(void **state)
{
    (void)state;
    change_config("llama",
                  "s/\"eos_token_id\": 2/\"eos_token_id\": 7/;s/\"bos_token_id\": 1/\"bos_token_id\": 9/");
    assert_int_equal(system("cp " HEED_TEST_DATA "/golden/tokenizer/llama2.json folder/tokenizer.json"), 0);
    write_text("folder/tokenizer_config.json", "{\"bos_token\": \"<s>\", \"eos_token\": \"</s>\"}");
    run("logits -m folder -p a --top 1");
    assert_said(ran.err, "bos_token_id of config.json is 9, the tokeniser begins texts with 1");
    assert_said(ran.err, "eos_token_id of config.json is 7, the tokeniser's 2: either ends an answer");
    assert_int_equal(system("rm -r folder"), 0);
}

/* What a changed model gives is what the file made of it gives. */
static void changed_models_keep_their_logits(void **state)
{
    (void)state;
    static const char *const cases[][2] = {
        {"llama3", "s/\"original_max_position_embeddings\": [0-9]*/"
                   "\"original_max_position_embeddings\": 32/"},
        {"gemma2", "/layer_types/,/]/c\\ \"layer_types\": [\"full_attention\", \"sliding_attention\"],"},
        {"gemma3", "s/\"full_attention\"$/\"sliding_attention\"/"},
        {"qwen3", "s/\"use_sliding_window\": false/\"use_sliding_window\": true/;"
                  "s/\"sliding_window\": null/\"sliding_window\": 5/;/layer_types/,/]/d;"
                  "s/\"max_window_layers\": [0-9]*/\"max_window_layers\": 0/"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        small_model small;
        heed_model *model;
        open_small(&small, cases[i][0], false);
        change_config(cases[i][0], cases[i][1]);
        run("convert folder out.gguf");
        if (ran.status)
            fail_msg("%s: %s", cases[i][0], ran.err);
        must(heed_model_open(&model, "folder", &(heed_model_options){.exact = true, .threads = 2}));
        heed_session *session =
            new_session(model, &(heed_session_options){.cache = HEED_F32, .cache_given = true});
        float *out = feed_all(session, model, small.tokens, small.count);
        if (!(farthest(out, small.expected, small.count * small.columns) > 1e-3))
            fail_msg("%s: the change changes nothing", cases[i][0]);
        small.expected = out;
        const double apart = distance("out.gguf", &small);
        if (!(apart < 1e-5))
            fail_msg("%s: %g apart", cases[i][0], apart);
        free(out);
        heed_session_free(session);
        heed_model_close(model);
        close_small(&small);
        assert_int_equal(system("rm -r folder"), 0);
    }
}

static heed_tokenizer *tokenizer_of(const char *path)
{
    heed_tokenizer *tokenizer;
    must(heed_tokenizer_load(&tokenizer, path));
    return tokenizer;
}

static size_t read_number(FILE *file, bool *end)
{
    size_t number = 0;
    int byte = 128;
    for (int shift = 0; byte & 128 && shift < 42; shift += 7) {
        byte = fgetc(file);
        *end = byte == EOF;
        if (*end)
            return 0;
        number |= (size_t)(byte & 127) << shift;
    }
    return number;
}

/* Each text of a file (see make_tokenizers.py), with and without control tokens in it. Texts that are not
 * composed are left out where `composed`. */
static int compare_texts(const heed_tokenizer *a, const heed_tokenizer *b, const char *name, bool composed)
{
    char path[400];
    bool end = false;
    int compared = 0;
    snprintf(path, sizeof path, HEED_TEST_DATA "/golden/tokenizer/%s", name);
    FILE *file = fopen(path, "rb");
    assert_non_null(file);
    for (size_t size = read_number(file, &end); !end; size = read_number(file, &end)) {
        char *text = malloc(size + 1);
        utf8proc_uint8_t *normal = NULL;
        assert_int_equal(fread(text, 1, size, file), size);
        text[size] = 0;
        const utf8proc_ssize_t length = utf8proc_map((utf8proc_uint8_t *)text, (utf8proc_ssize_t)size,
                                                     &normal, UTF8PROC_STABLE | UTF8PROC_COMPOSE);
        const bool same = length == (utf8proc_ssize_t)size && !memcmp(normal, text, size);
        free(normal);
        for (unsigned flags = 0; flags < 4 && (same || !composed); flags++) {
            heed_tokens x = {0}, y = {0};
            must(heed_tokenize(a, text, size, flags, &x));
            must(heed_tokenize(b, text, size, flags, &y));
            if (x.count != y.count || (x.count && memcmp(x.id, y.id, (size_t)x.count * sizeof *x.id)))
                fail_msg("%s, flags %u: other tokens for %s", name, flags, text);
            heed_tokens_free(&x);
            heed_tokens_free(&y);
            compared++;
        }
        free(text);
    }
    fclose(file);
    return compared;
}

static void assert_same_tokeniser(const char *kind)
{
    const bool composes = !strcmp(kind, "qwen2");
    run("convert folder out.gguf");
    if (ran.status)
        fail_msg("%s: %s", kind, ran.err);
    assert_int_equal(strstr(ran.out, "composes characters (NFC)") != NULL, composes);
    heed_tokenizer *a = tokenizer_of("folder"), *b = tokenizer_of("out.gguf");
    int compared = compare_texts(a, b, "few.texts", composes);
    compared += compare_texts(a, b, "special.texts", composes);
    assert_true(compared > 200);
    const heed_special_tokens x = heed_tokenizer_special(a), y = heed_tokenizer_special(b);
    assert_int_equal(x.bos, y.bos);
    assert_int_equal(x.eos, y.eos);
    assert_int_equal(x.unk, y.unk);
    heed_tokenizer_free(a);
    heed_tokenizer_free(b);
    assert_int_equal(system("rm -r folder"), 0);
}

static void tokenisers_are_converted_and_give_the_same_tokens(void **state)
{
    (void)state;
    static const char *const names[] = {"llama2", "llama3", "qwen2"};
    char command[1200];
    for (int i = 0; i < 3; i++) {
        snprintf(command, sizeof command,
                 "mkdir folder && cp %s/golden/models/llama/*.json %s/golden/models/llama/model.safetensors "
                 "folder && cp "
                 "%s/golden/tokenizer/%s.json folder/tokenizer.json",
                 HEED_TEST_DATA, HEED_TEST_DATA, HEED_TEST_DATA, names[i]);
        assert_int_equal(system(command), 0);
        assert_same_tokeniser(names[i]);
    }
    snprintf(command, sizeof command,
             "mkdir folder && cp %s/golden/models/bert/model.safetensors folder && cp "
             "%s/golden/tokenizer/wordpiece/* "
             "%s/golden/models/bert/config.json folder",
             HEED_TEST_DATA, HEED_TEST_DATA, HEED_TEST_DATA);
    assert_int_equal(system(command), 0);
    assert_same_tokeniser("wordpiece");
}

/* The tokeniser `gpt2` of the tests puts a space in front and has tokens that take the white space beside
 * them.
 */
static void tokenisers_that_gguf_files_cannot_say_are_refused(void **state)
{
    (void)state;
    static const char *const cases[][2] = {{"unigram", "unigram vocabularies are not written to GGUF files"},
                                           {"gpt2", "splits texts in a way that a GGUF file cannot say"}};
    char command[1200];
    for (int i = 0; i < 2; i++) {
        snprintf(
            command, sizeof command,
            "mkdir folder && cp %s/golden/models/llama/config.json %s/golden/models/llama/model.safetensors "
            "folder && cp %s/golden/tokenizer/%s.json folder/tokenizer.json",
            HEED_TEST_DATA, HEED_TEST_DATA, HEED_TEST_DATA, cases[i][0]);
        assert_int_equal(system(command), 0);
        run("convert folder no.gguf");
        assert_one_sentence(cases[i][1]);
        assert_false(exists("no.gguf"));
        assert_int_equal(system("rm -r folder"), 0);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_converted_model_gives_the_logits_of_the_reference),
        cmocka_unit_test(what_a_gguf_file_cannot_say_is_refused_by_name),
        cmocka_unit_test(what_a_gguf_file_does_not_say_is_reported),
        cmocka_unit_test(ends_and_begins_that_contradict_are_noted),
        cmocka_unit_test(changed_models_keep_their_logits),
        cmocka_unit_test(tokenisers_are_converted_and_give_the_same_tokens),
        cmocka_unit_test(tokenisers_that_gguf_files_cannot_say_are_refused),
    };
    return cmocka_run_group_tests(tests, program_folder, program_folder_remove);
}
