/* Writing text: a prompt is read, then tokens are drawn and shown as they come. */
#ifndef HEED_CLI_GENERATE_H
#define HEED_CLI_GENERATE_H

#include "cli/language.h"
#include <heed/sampling.h>

typedef enum cli_finish {
    CLI_FINISH_END,       /* the model ended its text */
    CLI_FINISH_STOP,      /* a stop string was met */
    CLI_FINISH_LENGTH,    /* as many tokens as were asked for */
    CLI_FINISH_CONTEXT,   /* the context is full */
    CLI_FINISH_INTERRUPT, /* Ctrl-C */
} cli_finish;
const char *cli_finish_word(cli_finish finish);

/* One text being written. Zero it, then set the first group. */
typedef struct cli_generation {
    const heed_model *model;
    heed_session *session;
    heed_sampler *sampler;
    heed_stops *stops; /* NULL: none */
    int64_t most;      /* tokens to write */
    bool show;         /* on standard output, as they come */

    heed_tokens all; /* read or written, from the beginning of the session */
    int64_t held;    /* of them, those that the session holds */
    char *text;      /* what was written; ended by 0 */
    size_t size, room;
    cli_finish finish;
    int64_t read, reused, written; /* reused: of the prompt, held already */
    int64_t anew;                  /* held already too, but read anew: keys that the rest sees were dropped */
    double read_seconds, write_seconds;
} cli_generation;

/* Makes the session hold `prompt`, of which it may hold a beginning, and writes on. */
heed_status cli_generate(cli_generation *generation, const heed_tokens *prompt);
void cli_generation_free(cli_generation *generation);

/* Until cli_interrupt_end, Ctrl-C ends what is being written instead of the program. */
void cli_interrupt_begin(void);
void cli_interrupt_end(void);
bool cli_interrupted(void);

#endif
