/* Words about forms: their arguments, parameters and needs, as listings, details and the reference say them.
 */
#ifndef HEED_CLI_FORM_TEXT_H
#define HEED_CLI_FORM_TEXT_H

#include <heed/attend.h>

/* A line of text of bounded length. */
typedef struct cli_line {
    char text[400];
} cli_line;

/* "base=10000, pairs=half, scaling=linear(factor)"; "" when there are no arguments. */
cli_line cli_signature(const heed_arg *args);

/* "10000", "1/sqrt(D)", "half"; "" when the argument must be given, "none" for an option that is not. */
cli_line cli_default(const heed_arg *arg);

/* "whole number, at least 1", "half or adjacent", "linear(factor) or ntk(factor)". */
cli_line cli_values(const heed_arg *arg);

/* "score=dot, the tensor mask"; "" when the form needs nothing. */
cli_line cli_needs(const heed_form *form);

/* The shortest decimal number that a float stands for: 0.1f as 0.1. */
double cli_decimal(float x);

/* "0", or "its own for each entry" where a function fills it, or "must be given". */
cli_line cli_initial(const heed_param *param);

/* What a stage asks, and what holds for all its forms; one entry a stage. */
typedef struct cli_stage_text {
    const char *question;
    const char *conventions; /* sentences; "" when there are none */
} cli_stage_text;

extern const cli_stage_text cli_stage_texts[HEED_STAGES];

/* Forms of a stage, ended by NULL. */
const heed_form *const *cli_stage_forms(heed_stage stage);

/* Everything about forms as JSON, and as a page of Markdown, to stdout. */
void cli_forms_json(void);
void cli_forms_reference(void);

#endif
