/* heed run, in its parts. */
#ifndef HEED_CLI_RUN_H
#define HEED_CLI_RUN_H

#include "cli/generate.h"
#include "eval/divergence.h"
#include "eval/selective.h"

typedef struct run_options {
    cli_language use;
    bool chat;
    const char *system, *session;
    int64_t most, seed, top_k, penalty_window;
    double temperature, top_p, min_p, repetition, frequency, presence;
    cli_list stop, compare, passage;
    const char *passage_cache, *question, *selective_model;
    double selective; /* percent of the text's units that are left out; below 0: none are */
    int unit, measure;
} run_options;

/* A text that is read by itself and stands before the prompt. */
typedef struct run_passage {
    heed_tokens tokens;
    heed_passage_source source;
} run_passage;

/* One form of attention and what it wrote. */
typedef struct run_form {
    const char *spec; /* NULL: the model's own */
    cli_generation generation;
    heed_session_info session;
    heed_divergence difference; /* of its next-token distributions from those of the first form */
} run_form;

enum { RUN_MOST_FORMS = 9 };

typedef struct run_state {
    run_options options;
    heed_model *model;
    heed_model_info info;
    heed_tokens prompt;
    int64_t dropped;
    run_form form[RUN_MOST_FORMS];
    int forms;
    run_passage *passage; /* [options.passage.count] */
    double passage_seconds;
    heed_selection selection; /* with --selective */
} run_state;

/* A session, a sampler and stop strings for a form. */
heed_status run_open_form(run_state *run, int64_t context, const char *spec);
/* The first form's session goes on from --session, if the file is there; and is saved there. */
heed_status run_load(run_state *run);
heed_status run_save(const run_state *run);
/* Cuts the prompt where --truncate says, or refuses one that does not fit. */
heed_status run_fit_prompt(run_state *run, int64_t context);

/* --passage: the tokens of all passages go before those of the prompt; then the form's session takes them in.
 * run_passages.c */
heed_status run_read_passages(run_state *run);
heed_status run_splice_passages(run_state *run);
void run_print_passages(const run_state *run);
void run_add_passages(const run_state *run, cJSON *line);
void run_free_passages(run_state *run);

/* --selective: what of the text stays; --question: what follows it. run_selective.c */
heed_status run_select_text(run_state *run, cli_text *text);
void run_print_selection(const run_state *run);
void run_add_selection(const run_state *run, cJSON *line);
const char *run_unit_word(int i);
const char *run_measure_word(int i);

/* A conversation: a line of standard input a turn, or one turn with -p. run_chat.c */
heed_status run_chat(run_state *run);

/* Reads the prompt and what the first form wrote with every form, and compares. run_report.c */
heed_status run_compare(run_state *run);
/* On standard error: a line of one form, a table of several. */
void run_print_text(const run_state *run);
void run_print_json(const run_state *run, int form);

#endif
