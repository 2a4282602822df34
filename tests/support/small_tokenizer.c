#include "support/small_tokenizer.h"
#include "support/program.h"

#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static void write_tokenizer(const char *path)
{
    FILE *file = fopen(path, "w");
    assert_non_null(file);
    fputs(
        "{\"version\": \"1.0\", \"added_tokens\": [], \"normalizer\": null, \"pre_tokenizer\": {\"type\": "
        "\"Split\", \"pattern\": {\"String\": \" \"}, \"behavior\": \"MergedWithNext\", \"invert\": false}, "
        "\"post_processor\": null, \"decoder\": {\"type\": \"Fuse\"}, \"model\": {\"type\": \"BPE\", "
        "\"vocab\": {\"\\n\": 0",
        file);
    for (int c = ' '; c < 127; c++)
        fprintf(file, ", \"%s%c\": %d", c == '"' || c == '\\' ? "\\" : "", c, c - ' ' + 1);
    fputs("}, \"merges\": []}}\n", file);
    assert_int_equal(fclose(file), 0);
}

void make_model_with_tokenizer(const char *folder, const char *model)
{
    static const char *const files[] = {"config.json", "model.safetensors"};
    char from[1024], to[1024];
    assert_int_equal(mkdir(folder, 0777), 0);
    for (int i = 0; i < 2; i++) {
        snprintf(from, sizeof from, "%s/golden/models/%s/%s", HEED_TEST_FOLDER, model, files[i]);
        snprintf(to, sizeof to, "%s/%s", folder, files[i]);
        assert_int_equal(symlink(from, to), 0);
    }
    snprintf(to, sizeof to, "%s/tokenizer.json", folder);
    write_tokenizer(to);
}

void remove_model(const char *folder)
{
    static const char *const files[] = {"config.json", "model.safetensors", "tokenizer.json"};
    char path[1024];
    for (int i = 0; i < 3; i++) {
        snprintf(path, sizeof path, "%s/%s", folder, files[i]);
        unlink(path);
    }
    rmdir(folder);
}

int tiny_folder(void **state)
{
    if (program_folder(state))
        return -1;
    make_model_with_tokenizer("tiny", "llama");
    return 0;
}

int tiny_folder_remove(void **state)
{
    remove_model("tiny");
    return program_folder_remove(state);
}
