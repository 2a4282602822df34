/* Statements: what a template writes. */
#include "base/try.h"
#include "model/chat/template.h"

#include <string.h>

static heed_status set_name(heed_renderer *renderer, heed_scope *scope, const char *name, heed_value value)
{
    return heed_value_dict_set(renderer->pool, scope->variables, heed_plain(name, strlen(name)), value);
}

static heed_status new_scope(heed_renderer *renderer, heed_scope *scope, const heed_scope *outer)
{
    heed_value variables;
    TRY(heed_value_dict_new(renderer->pool, &variables));
    *scope = (heed_scope){variables.dict, outer};
    return HEED_OK;
}

/* What a body writes, as a text. */
static heed_status written(heed_renderer *renderer, const heed_node *body, heed_value *value)
{
    heed_builder out = {0}, *before = renderer->out;
    heed_string string;
    renderer->out = &out;
    const heed_status status = heed_run_nodes(renderer, body);
    renderer->out = before;
    if (status) {
        heed_builder_free(&out);
        return status;
    }
    TRY(heed_builder_take(&out, renderer->pool, &string));
    *value = heed_value_string(string);
    return HEED_OK;
}

/* loop.index and its kin */
static heed_status set_loop(heed_renderer *renderer, heed_scope *scope, const heed_list *list, size_t i)
{
    const heed_value none = {.kind = HEED_VALUE_UNDEFINED, .name = "the item beside this one"};
    const struct {
        const char *name;
        heed_value value;
    } entries[] = {{"index", heed_value_int((int64_t)i + 1)},
                   {"index0", heed_value_int((int64_t)i)},
                   {"first", heed_value_bool(i == 0)},
                   {"last", heed_value_bool(i + 1 == list->count)},
                   {"length", heed_value_int((int64_t)list->count)},
                   {"revindex", heed_value_int((int64_t)(list->count - i))},
                   {"revindex0", heed_value_int((int64_t)(list->count - i) - 1)},
                   {"previtem", i ? list->item[i - 1] : none},
                   {"nextitem", i + 1 < list->count ? list->item[i + 1] : none}};
    heed_value loop;
    TRY(heed_value_dict_new(renderer->pool, &loop));
    for (size_t k = 0; k < sizeof entries / sizeof *entries; k++)
        if (entries[k].value.kind != HEED_VALUE_UNDEFINED)
            TRY(heed_value_dict_set(renderer->pool, loop.dict,
                                    heed_plain(entries[k].name, strlen(entries[k].name)), entries[k].value));
    return set_name(renderer, scope, "loop", loop);
}

/* The variables of the loop: the item, or its two parts. */
static heed_status set_item(heed_renderer *renderer, heed_scope *scope, const heed_node *node,
                            heed_value item)
{
    if (!node->name2)
        return set_name(renderer, scope, node->name, item);
    if (item.kind != HEED_VALUE_LIST || item.list->count != 2)
        return heed_fail(HEED_UNSUPPORTED,
                         "line %d of the chat template: an item has not the two parts of '%.40s, %.40s'",
                         node->line, node->name, node->name2);
    TRY(set_name(renderer, scope, node->name, item.list->item[0]));
    return set_name(renderer, scope, node->name2, item.list->item[1]);
}

/* The items for which the condition holds. */
static heed_status chosen(heed_renderer *renderer, const heed_node *node, heed_value all, heed_value *list)
{
    heed_scope *outer = renderer->scope;
    heed_status status = heed_value_list_new(renderer->pool, list);
    for (size_t i = 0; i < all.list->count && !status; i++) {
        heed_scope scope;
        heed_value condition;
        status = new_scope(renderer, &scope, outer);
        if (!status)
            status = set_item(renderer, &scope, node, all.list->item[i]);
        renderer->scope = &scope;
        if (!status)
            status = heed_evaluate(renderer, node->second, &condition);
        if (!status && heed_value_truth(condition))
            status = heed_value_list_add(renderer->pool, list->list, all.list->item[i]);
        renderer->scope = outer;
    }
    return status;
}

static heed_status run_for(heed_renderer *renderer, const heed_node *node)
{
    heed_value over, list;
    heed_scope *outer = renderer->scope;
    TRY(heed_evaluate(renderer, node->first, &over));
    TRY(heed_items(renderer, over, &list));
    if (node->second) {
        heed_value kept;
        TRY(chosen(renderer, node, list, &kept));
        list = kept;
    }
    if (!list.list->count)
        return heed_run_nodes(renderer, node->other);
    heed_status status = HEED_OK;
    const size_t count = list.list->count;
    for (size_t i = 0; i < count && !status; i++) {
        heed_scope scope;
        status = new_scope(renderer, &scope, outer);
        if (!status)
            status = set_item(renderer, &scope, node, list.list->item[i]);
        if (!status)
            status = set_loop(renderer, &scope, list.list, i);
        renderer->scope = &scope;
        if (!status)
            status = heed_run_nodes(renderer, node->body);
        renderer->scope = outer;
        const bool stop = renderer->flow == HEED_FLOW_BREAK;
        renderer->flow = HEED_FLOW_ON;
        if (stop)
            break;
    }
    return status;
}

static heed_status run_set(heed_renderer *renderer, const heed_node *node)
{
    heed_value value, object;
    if (node->second)
        TRY(heed_evaluate(renderer, node->second, &value));
    else
        TRY(written(renderer, node->body, &value));
    if (node->first->kind == HEED_NODE_NAME)
        return set_name(renderer, renderer->scope, node->first->name, value);
    TRY(heed_evaluate(renderer, node->first->first, &object));
    if (object.kind != HEED_VALUE_DICT)
        return heed_fail(HEED_UNSUPPORTED,
                         "line %d of the chat template: '%.40s' is set of %s, which is no namespace",
                         node->line, node->first->name, heed_value_kind_name(object));
    return heed_value_dict_set(renderer->pool, object.dict,
                               heed_plain(node->first->name, strlen(node->first->name)), value);
}

heed_status heed_call_macro(heed_renderer *renderer, const heed_node *macro, const heed_arguments *arguments,
                            heed_value *value)
{
    heed_scope scope, *before = renderer->scope;
    int place = 0;
    TRY(new_scope(renderer, &scope, renderer->global));
    for (const heed_node *parameter = macro->list; parameter; parameter = parameter->next, place++) {
        const heed_value *given = heed_argument(arguments, place, parameter->name);
        heed_value set = {.kind = HEED_VALUE_UNDEFINED, .name = parameter->name};
        if (given)
            set = *given;
        else if (parameter->first)
            TRY(heed_evaluate(renderer, parameter->first, &set));
        TRY(set_name(renderer, &scope, parameter->name, set));
    }
    if (arguments->places > place)
        return heed_fail(HEED_UNSUPPORTED,
                         "the chat template gives the macro '%.40s' %d arguments; it takes %d", macro->name,
                         arguments->places, place);
    renderer->scope = &scope;
    const heed_status status = written(renderer, macro->body, value);
    renderer->scope = before;
    return status;
}

static heed_status run_node(heed_renderer *renderer, const heed_node *node)
{
    heed_value value;
    switch (node->kind) {
    case HEED_NODE_TEXT:
        heed_builder_add(renderer->out, node->value.string);
        return HEED_OK;
    case HEED_NODE_PRINT:
        TRY(heed_evaluate(renderer, node->first, &value));
        return heed_value_write(value, renderer->out);
    case HEED_NODE_IF:
        TRY(heed_evaluate(renderer, node->first, &value));
        return heed_run_nodes(renderer, heed_value_truth(value) ? node->body : node->other);
    case HEED_NODE_FOR:
        return run_for(renderer, node);
    case HEED_NODE_SET:
        return run_set(renderer, node);
    case HEED_NODE_MACRO:
        return set_name(renderer, renderer->scope, node->name,
                        (heed_value){.kind = HEED_VALUE_MACRO, .macro = node});
    case HEED_NODE_DO:
        return heed_evaluate(renderer, node->first, &value);
    default:
        renderer->flow = node->kind == HEED_NODE_BREAK ? HEED_FLOW_BREAK : HEED_FLOW_CONTINUE;
        return HEED_OK;
    }
}

heed_status heed_run_nodes(heed_renderer *renderer, const heed_node *node)
{
    for (; node && renderer->flow == HEED_FLOW_ON; node = node->next) {
        TRY(run_node(renderer, node));
        if (renderer->out->text.size > (size_t)1 << 28)
            return heed_fail(HEED_UNSUPPORTED, "the chat template writes more than 256 MiB");
    }
    return HEED_OK;
}

heed_status heed_template_render(heed_chat_pool *pool, const heed_node *nodes, heed_dict *variables,
                                 heed_builder *out)
{
    heed_scope global = {variables, NULL};
    heed_renderer renderer = {.pool = pool, .out = out, .scope = &global, .global = &global};
    TRY(heed_run_nodes(&renderer, nodes));
    return out->text.failed || out->user.failed ? heed_fail(HEED_NO_MEMORY, "no memory for the chat template")
                                                : HEED_OK;
}
