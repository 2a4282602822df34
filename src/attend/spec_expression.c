/* The expression of a clause: forms joined by the marks that its stage knows. */
#include "attend/spec_reader.h"

#include <stdlib.h>

/* How the forms of a stage are joined. `where` has a grammar of its own. */
static const struct {
    char mark; /* 0: one form only */
    heed_node_kind kind;
    const char *how;
} joining[HEED_STAGES] = {
    [HEED_SCORE] = {0, HEED_NODE_FORM, "it is one form"},
    [HEED_POSITION] = {'+', HEED_NODE_ADD, "its forms are joined by +"},
    [HEED_WHERE] = {0, HEED_NODE_FORM, "its masks are joined by &, |, ! and brackets"},
    [HEED_SELECT] = {'>', HEED_NODE_CHAIN, "its selectors are chained by >"},
    [HEED_NORMALISE] = {'>', HEED_NODE_CHAIN, "modifiers go before its one form by >"},
    [HEED_HEADS] = {0, HEED_NODE_FORM, "it is one form"},
    [HEED_READ] = {0, HEED_NODE_FORM, "it is one form"},
    [HEED_SCAN] = {0, HEED_NODE_FORM, "it is one form"},
    [HEED_LOWRANK] = {0, HEED_NODE_FORM, "it is one form"},
    [HEED_LAYER] = {0, HEED_NODE_FORM, "it is one form"},
    [HEED_CACHE] = {'>', HEED_NODE_CHAIN, "policies and at last a type are chained by >"},
};

static heed_status add_node(heed_reader *reader, const char *at, heed_node node, int *index)
{
    heed_spec *spec = reader->spec;
    if (spec->nodes - reader->first_node >= HEED_SPEC_PARTS)
        return heed_reader_fail(reader, at, "an expression may hold at most %d forms and marks",
                                HEED_SPEC_PARTS);
    if ((spec->nodes & (spec->nodes - 1)) == 0) { /* room is the next power of two */
        const size_t room = spec->nodes ? 2 * (size_t)spec->nodes : 1;
        heed_node *grown = realloc(spec->node, room * sizeof *grown);
        if (!grown)
            return heed_fail(HEED_NO_MEMORY, "no memory for the parts of a spec");
        spec->node = grown;
    }
    node.column = heed_reader_column(reader, at);
    *index = spec->nodes;
    spec->node[spec->nodes++] = node;
    return HEED_OK;
}

/* left = left mark right */
static heed_status join(heed_reader *reader, heed_node_kind kind, const char *at, int right, int *left)
{
    const heed_node node = {.kind = kind, .left = *left, .right = right};
    return add_node(reader, at, node, left);
}

/* A mark of the spec language that this stage does not use gets a sentence of its own. */
static heed_status expected(const heed_reader *reader, heed_stage stage, const char *what)
{
    const bool open_only = stage == HEED_WHERE; /* where uses all marks but these */
    if (heed_word_is_mark(reader->now, open_only ? ">+" : "&|!(>+"))
        if (open_only || *reader->now.text != joining[stage].mark)
            return heed_reader_fail(reader, reader->now.text, "'%c' has no place in %s: %s",
                                    *reader->now.text, heed_stage_name(stage), joining[stage].how);
    return heed_reader_expected(reader, "%s", what);
}

static heed_status read_form(heed_reader *reader, heed_stage stage, int *out)
{
    const heed_word name = reader->now;
    if (name.kind != HEED_WORD_NAME) {
        const char *stage_name = heed_stage_name(stage);
        char what[64] = "a form of ";
        heed_out text = {what, sizeof what, 10};
        heed_put(&text, stage_name);
        return expected(reader, stage, what);
    }
    if (heed_stage_allows_none(stage) && heed_word_is(name, "none"))
        return heed_reader_fail(reader, name.text, "'none' stands alone in %s", heed_stage_name(stage));
    heed_node node = {.kind = HEED_NODE_FORM, .left = -1, .right = -1};
    node.form = heed_find_form(reader->forms, stage, name);
    if (!node.form)
        return heed_unknown_form(reader, stage);
    heed_reader_next(reader);
    int over = HEED_ABSENT;
    heed_status status = heed_read_arguments(reader, heed_stage_name(stage), name, node.form->args, node.arg,
                                             stage == HEED_SELECT ? &over : NULL);
    if (!status)
        status = add_node(reader, name.text, node, out);
    if (status || over == HEED_ABSENT)
        return status;
    const int outer = *out;
    *out = over;
    return join(reader, HEED_NODE_CHAIN, name.text, outer, out);
}

heed_status heed_read_over(heed_reader *reader, int *over)
{
    if (reader->overs >= HEED_SPEC_DEPTH)
        return heed_reader_fail(reader, reader->now.text, "'" HEED_OVER "' stands more than %d deep",
                                HEED_SPEC_DEPTH);
    reader->overs++;
    const heed_status status = read_form(reader, HEED_SELECT, over);
    reader->overs--;
    return status;
}

static heed_status read_or(heed_reader *reader, int depth, int *out);

/* form, !mask or (mask) */
static heed_status read_mask(heed_reader *reader, int depth, int *out)
{
    const char *at = reader->now.text;
    if (!heed_word_is_mark(reader->now, "!("))
        return read_form(reader, HEED_WHERE, out);
    if (depth >= HEED_SPEC_DEPTH)
        return heed_reader_fail(reader, at, "'%c' stands more than %d deep in brackets and !", *at,
                                HEED_SPEC_DEPTH);
    heed_reader_next(reader);
    if (*at == '!') {
        const heed_status status = read_mask(reader, depth + 1, out);
        if (status)
            return status;
        const heed_node node = {.kind = HEED_NODE_NOT, .left = *out, .right = -1};
        return add_node(reader, at, node, out);
    }
    const heed_status status = read_or(reader, depth + 1, out);
    if (status)
        return status;
    if (!heed_word_is_mark(reader->now, ")")) {
        char what[64];
        heed_out text = {what, sizeof what, 0};
        heed_put(&text, "the ')' of the bracket at column ");
        heed_put_number(&text, heed_reader_column(reader, at));
        return expected(reader, HEED_WHERE, what);
    }
    heed_reader_next(reader);
    return HEED_OK;
}

static heed_status read_and(heed_reader *reader, int depth, int *out)
{
    heed_status status = read_mask(reader, depth, out);
    while (!status && heed_word_is_mark(reader->now, "&")) {
        const char *at = reader->now.text;
        int right;
        heed_reader_next(reader);
        status = read_mask(reader, depth, &right);
        if (!status)
            status = join(reader, HEED_NODE_AND, at, right, out);
    }
    return status;
}

static heed_status read_or(heed_reader *reader, int depth, int *out)
{
    heed_status status = read_and(reader, depth, out);
    while (!status && heed_word_is_mark(reader->now, "|")) {
        const char *at = reader->now.text;
        int right;
        heed_reader_next(reader);
        status = read_and(reader, depth, &right);
        if (!status)
            status = join(reader, HEED_NODE_OR, at, right, out);
    }
    return status;
}

/* May the form just read stand beside an earlier one of the same clause? */
static heed_status check_pair(const heed_reader *reader, heed_stage stage, const heed_form *earlier,
                              const heed_form *form, const char *at)
{
    if (stage == HEED_SELECT)
        return HEED_OK;
    if (earlier == form)
        return heed_reader_fail(reader, at, "'%s' stands twice in %s", form->name, heed_stage_name(stage));
    if (stage == HEED_POSITION && (earlier->flags & form->flags & HEED_ROTATES))
        return heed_reader_fail(reader, at, "'%s' rotates, as '%s' does; position may hold one of such forms",
                                form->name, earlier->name);
    if (stage == HEED_NORMALISE && !(earlier->flags & HEED_MODIFIER))
        return heed_reader_fail(reader, at, "'%s' may not follow '%s', which ends normalise", form->name,
                                earlier->name);
    return HEED_OK;
}

/* form, form + form or form > form */
static heed_status read_sequence(heed_reader *reader, heed_stage stage, int *out)
{
    const char mark[2] = {joining[stage].mark, 0};
    heed_status status = read_form(reader, stage, out);
    while (!status && mark[0] && heed_word_is_mark(reader->now, mark)) {
        const char *join_at = reader->now.text;
        heed_reader_next(reader);
        const char *at = reader->now.text;
        int right;
        status = read_form(reader, stage, &right);
        const heed_node *node = reader->spec->node;
        for (int i = reader->first_node; !status && i < right; i++)
            if (node[i].kind == HEED_NODE_FORM)
                status = check_pair(reader, stage, node[i].form, node[right].form, at);
        if (!status)
            status = join(reader, joining[stage].kind, join_at, right, out);
    }
    return status;
}

/* A modifier at the end changes the logits of softmax. */
static heed_status end_with_softmax(heed_reader *reader, int *out)
{
    const heed_node *last = &reader->spec->node[*out];
    if (last->kind == HEED_NODE_CHAIN)
        last = &reader->spec->node[last->right];
    if (!(last->form->flags & HEED_MODIFIER))
        return HEED_OK;
    const char *at = reader->behind;
    heed_reader softmax = *reader;
    heed_reader_start(&softmax, "softmax");
    softmax.fixed_column = heed_reader_column(reader, at);
    int right;
    const heed_status status = read_form(&softmax, HEED_NORMALISE, &right);
    return status ? status : join(reader, HEED_NODE_CHAIN, at, right, out);
}

heed_status heed_read_expression(heed_reader *reader, heed_stage stage, int *root)
{
    *root = HEED_NONE;
    reader->first_node = reader->spec->nodes;
    heed_status status = HEED_OK;
    const heed_word after = heed_reader_peek(reader);
    if (heed_stage_allows_none(stage) && reader->now.kind == HEED_WORD_NAME &&
        heed_word_is(reader->now, "none") && (after.kind == HEED_WORD_END || heed_word_is_mark(after, ";")))
        heed_reader_next(reader);
    else
        status = stage == HEED_WHERE ? read_or(reader, 0, root) : read_sequence(reader, stage, root);
    if (!status && reader->now.kind != HEED_WORD_END && !heed_word_is_mark(reader->now, ";"))
        status = expected(reader, stage, "';' or the end");
    if (!status && stage == HEED_NORMALISE)
        status = end_with_softmax(reader, root);
    return status;
}
