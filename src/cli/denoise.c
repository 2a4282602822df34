/* heed denoise: pictures of a denoiser that heed train made, and what it costs to make them. */
#include "base/clock.h"
#include "base/npy.h"
#include "base/try.h"
#include "cli/cli.h"
#include "train/glyphs.h"
#include "train/sampler.h"
#include "train/trainer.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct denoise_options {
    const char *reuse, *output;
    int64_t steps, count, seed, label, frames, threads;
    double guidance;
    bool json;
} denoise_options;

static const cli_option options[] = {
    CLI_WHOLE_OPTION(denoise_options, steps, "steps", 1, HEED_SAMPLER_STEPS,
                     "steps from noise to picture; 25"),
    CLI_NUMBER_OPTION(denoise_options, guidance, "guidance", 0, 100,
                      "how far words lead away from the guess without them; 3"),
    CLI_TEXT_OPTION(denoise_options, reuse, "reuse", "WHAT",
                    "what steps take over from earlier ones: none, tgate(m=10, threshold=0.1), "
                    "adacache(codes=0.03:12 0.05:10 1:3, motion=no, scale=0.385, power=8) or fixed(every=3)"),
    CLI_WHOLE_OPTION(denoise_options, count, "count", 1, 4096, "pictures; 16"),
    CLI_WHOLE_OPTION(denoise_options, label, "label", 0, 1 << 20,
                     "what they show; all labels in turn when not given"),
    CLI_WHOLE_OPTION(denoise_options, seed, "seed", 0, INT64_MAX, "of the noise they begin with; 1"),
    CLI_OPTION(denoise_options, output, .kind = CLI_TEXT, .name = "output", .letter = 'o',
               .value = "FILE.npy",
               .summary = "the pictures, [count, height, width, channels]; appears whole or not at all"),
    CLI_THREADS_OPTION(denoise_options, threads),
    CLI_FLAG_OPTION(denoise_options, json, "json", "report as JSON"),
    {0},
};

typedef struct denoise_run {
    denoise_options options;
    heed_trainer *trainer;
    heed_transformer model;
    int32_t *label;
    int64_t frames;
    heed_sampled made, plain; /* plain: with nothing reused */
    double seconds;
} denoise_run;

static heed_status open_model(denoise_run *run, const char *folder)
{
    char path[1200], *text = NULL;
    heed_train_config config;
    if (snprintf(path, sizeof path, "%s/checkpoint.safetensors", folder) >= (int)sizeof path)
        return heed_fail(HEED_INVALID, "%.60s...: the path is too long", folder);
    heed_train_config_start(&config);
    TRY(heed_checkpoint_config(path, &text));
    const heed_status status = heed_train_config_read(&config, text, path);
    free(text);
    TRY(status);
    if (config.objective != HEED_OBJECTIVE_DENOISE)
        return heed_fail(HEED_INVALID, "%s: it learnt objective = %s, not denoise", path,
                         heed_objective_name(config.objective));
    TRY(heed_trainer_create(&run->trainer, &config, (int)run->options.threads));
    TRY(heed_trainer_load(run->trainer, path));
    heed_trainer_swap(run->trainer); /* averaged weights, where there are any */
    run->model = *heed_trainer_model(run->trainer);
    const heed_data *data = heed_trainer_data(run->trainer);
    run->frames = data->task && !strcmp(data->task->name, "glyphs") ? data->arg[0] : 1;
    return run->model.image.height % run->frames
               ? heed_fail(HEED_INVALID, "%s: frames do not fit the picture", path)
               : HEED_OK;
}

static heed_status sample(denoise_run *run, const char *reuse, heed_sampled *out)
{
    heed_sampling_job job = {.model = &run->model,
                             .parameters = heed_trainer_parameters(run->trainer),
                             .threads = (int)run->options.threads,
                             .steps = run->options.steps,
                             .frames = run->frames,
                             .guidance = run->options.guidance,
                             .seed = (uint64_t)run->options.seed,
                             .label = run->label};
    TRY(heed_reuse_read(&job.reuse, reuse));
    return heed_sample_pictures(&job, out);
}

static heed_status choose_labels(denoise_run *run)
{
    const int64_t labels = run->model.vocabulary, count = run->options.count, asked = run->options.label;
    run->model.batch = count;
    if (asked >= labels)
        return heed_fail(HEED_INVALID, "--label %lld: labels are 0 to %lld", (long long)asked,
                         (long long)labels - 1);
    run->label = malloc((size_t)count * sizeof *run->label);
    if (!run->label)
        return heed_fail(HEED_NO_MEMORY, "no memory for %lld labels", (long long)count);
    for (int64_t i = 0; i < count; i++)
        run->label[i] = (int32_t)(asked >= 0 ? asked : i % labels);
    return HEED_OK;
}

/* Share of frames that are nearest to the kind that was asked for; NaN where pictures are not of `glyphs`. */
static double accuracy(const denoise_run *run)
{
    const heed_image *image = &run->model.image;
    const int64_t side = image->width, each = image->height * side, frames = run->frames;
    int64_t right = 0;
    const heed_data *data = heed_trainer_data(run->trainer);
    if (!data->task || strcmp(data->task->name, "glyphs") != 0 || image->channels != 1 ||
        image->height / frames != side)
        return NAN;
    for (int64_t i = 0; i < run->options.count; i++)
        for (int64_t f = 0; f < frames; f++)
            right += heed_glyph_nearest(run->made.pixels + i * each + f * side * side, side) ==
                     run->label[i] % HEED_GLYPHS;
    return (double)right / (double)(run->options.count * frames);
}

/* Against what comes of computing everything. */
static double error(const denoise_run *run)
{
    const heed_image *image = &run->model.image;
    double apart = 0.0, size = 0.0;
    for (int64_t i = 0; i < run->options.count * image->height * image->width * image->channels; i++) {
        const double y = (double)run->plain.pixels[i], off = (double)run->made.pixels[i] - y;
        apart += off * off;
        size += y * y;
    }
    return sqrt(apart / size);
}

/* Mean change of cross-attention over a third of the steps. */
static double change(const denoise_run *run, int64_t third)
{
    const int64_t steps = run->options.steps;
    double sum = 0.0;
    int64_t count = 0;
    for (int64_t i = third * steps / 3; i < (third + 1) * steps / 3; i++)
        if (!isnan(run->plain.change[i])) {
            sum += run->plain.change[i];
            count++;
        }
    return count ? sum / (double)count : NAN;
}

static void print_number(const denoise_run *run, const char *name, const char *said, double value)
{
    if (isnan(value))
        return;
    if (run->options.json)
        printf(", \"%s\": %.9g", name, value);
    else
        printf("%-34s %.6g\n", said, value);
}

static void print(const denoise_run *run)
{
    const heed_sampled *made = &run->made;
    if (run->options.json)
        printf("{\"pictures\": %lld", (long long)run->options.count);
    print_number(run, "accuracy", "frames that show what was asked", accuracy(run));
    print_number(run, "error", "distance from nothing reused", error(run));
    print_number(run, "computed", "steps that computed layers", (double)made->computed);
    print_number(run, "cross_calls", "cross-attentions", (double)made->cross_calls);
    print_number(run, "until", "steps with words, at most", (double)made->until);
    print_number(run, "gflops", "GFLOP a picture", 1e-9 * made->flops);
    print_number(run, "cost", "share of the cost of nothing reused", made->flops / run->plain.flops);
    print_number(run, "change_early", "change of cross-attention, first third", change(run, 0));
    print_number(run, "change_middle", "second third", change(run, 1));
    print_number(run, "change_late", "last third", change(run, 2));
    print_number(run, "seconds", "seconds", run->seconds);
    if (run->options.json)
        printf("}\n");
}

static heed_status write_pictures(const denoise_run *run)
{
    const heed_image *image = &run->model.image;
    const int64_t shape[] = {run->options.count, image->height, image->width, image->channels};
    return run->options.output ? heed_npy_write(run->options.output, 4, shape, run->made.pixels) : HEED_OK;
}

static heed_status denoise(denoise_run *run, const char *folder)
{
    TRY(open_model(run, folder));
    TRY(choose_labels(run));
    const double before = heed_seconds();
    TRY(sample(run, run->options.reuse, &run->made));
    run->seconds = heed_seconds() - before;
    TRY(sample(run, "none", &run->plain));
    TRY(write_pictures(run));
    print(run);
    return HEED_OK;
}

static int denoise_command(int argc, char **argv)
{
    denoise_run run = {
        .options = {.steps = 25, .guidance = 3, .count = 16, .seed = 1, .label = -1, .reuse = "none"}};
    cli_arguments arguments;
    int exit_status;
    if (!cli_parse(&cli_denoise, argc, argv, &run.options, &arguments, 1, 1, &exit_status))
        return exit_status;
    const heed_status status = denoise(&run, arguments.word[0]);
    heed_sampled_free(&run.made);
    heed_sampled_free(&run.plain);
    free(run.label);
    heed_trainer_free(run.trainer);
    return status ? cli_fail_message(cli_denoise.name) : CLI_OK;
}

const cli_command cli_denoise = {
    .name = "denoise",
    .arguments = "FOLDER",
    .summary =
        "make pictures with a denoiser that heed train made, and reuse what hardly changes between steps",
    .details = "FOLDER is of heed train with objective = denoise. Each run also makes the pictures with "
               "nothing reused, "
               "and says how\n"
               "far they are apart. tgate: after step m the mean of cross-attention with and without words "
               "stays what it is, "
               "and\n"
               "steps go on without words; m=0 finds it by threshold. adacache: what layers add is taken "
               "over for as many "
               "steps as\n"
               "its change allows, by pairs change:steps; motion=yes counts how much moves in a clip.\n",
    .example = "heed train --set 'data = glyphs' --set objective=denoise --set image=8x8 --set patch=2 --set "
               "steps=20 "
               "--set attention=where=all -o /tmp/glyphs\n"
               "heed denoise /tmp/glyphs --reuse 'tgate(m=10)'\n",
    .options = options,
    .run = denoise_command,
};
