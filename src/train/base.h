/* A pretrained model to go on from: its shape, and its tensors as parameters of a graph.
 *
 * Parameters are called as in Hugging Face's files and lie as there, whatever file they come from: halves of
 * a head turn together, norms are what is multiplied by, linear maps are [out, in].
 */
#ifndef HEED_TRAIN_BASE_H
#define HEED_TRAIN_BASE_H

#include "model/architecture.h"
#include "nn/layers.h"

#include <heed/nn.h>

enum { HEED_BASE_NAME = 96 };

typedef struct heed_base_tensor {
    char name[HEED_BASE_NAME]; /* of the parameter; two tensors of a file may be one parameter */
    const heed_model_tensor *from;
    heed_role role;
    int64_t layer;
    bool bias;
    int heads;   /* above 0: its rows lie as GGUF files of llama have them, pairs side by side */
    float shift; /* of a norm: what is added when it is read */
    bool turned; /* [in, out] in the file */
} heed_base_tensor;

typedef struct heed_base {
    heed_model_file *file;
    const heed_architecture *architecture;
    heed_config config;
    const char *prefix;
    heed_base_tensor *tensor;
    int tensors;
    bool shared;          /* the embedding is the output matrix too */
    uint64_t fingerprint; /* of names, shapes, types and both ends of each tensor */
} heed_base;

/* HEED_IO, HEED_FORMAT, HEED_UNSUPPORTED: what heed cannot read, or cannot go on from. */
heed_status heed_base_open(heed_base **base, const char *path);
void heed_base_close(heed_base *base);

/* NULL when the model has none. */
const heed_base_tensor *heed_base_find(const heed_base *base, heed_role role, int64_t layer, bool bias);

/* What learns, beside parameters of forms of attention and of heads for a class or a number. */
typedef enum heed_learn {
    HEED_LEARN_ALL,
    HEED_LEARN_CHOSEN, /* tensors by pattern */
    HEED_LEARN_LORA,   /* W + alpha / rank B A, with W as it was (Hu et al.: LoRA, 2021) */
    HEED_LEARN_FORMS,  /* nothing else */
} heed_learn;
const char *heed_learn_name(int i); /* NULL beyond the last */

typedef struct heed_base_learn {
    heed_learn learn;
    const char *tensors; /* patterns with blanks between, of HEED_LEARN_CHOSEN */
    const char *targets; /* likewise, of linear maps that get LoRA; "": all of the layers */
    int64_t rank;
    double alpha;
} heed_base_learn;

/* Whether a name fits one of the patterns: all of it, with * for anything, or its last parts
 * ("mlp.down_proj" fits "model.layers.3.mlp.down_proj.weight"). */
bool heed_base_fits(const char *patterns, const char *name);
bool heed_base_has_lora(const heed_base_learn *learn, const char *name);
/* HEED_INVALID where a pattern fits no tensor, with names that there are. */
heed_status heed_base_check(const heed_base *base, const heed_base_learn *learn);

/* Reads all tensors into parameters named `prefix` + name, those that do not learn frozen. `learn` NULL: none
 * learns. */
heed_status heed_base_load(const heed_base *base, heed_parameters *parameters, const char *prefix,
                           const heed_base_learn *learn);

/* A graph of it. Zero it first. */
typedef struct heed_base_use {
    const char *prefix; /* of parameters */
    int64_t batch, context;
    const char *attention;        /* clauses that replace those of the model's own; NULL: none */
    bool recompute;               /* layers are computed again in the backward run */
    const heed_base_learn *learn; /* LoRA beside its maps; NULL: none */
    bool hidden;                  /* no logits */
    bool padded;                  /* nodes->segments says what is text: an encoder's tokens see that alone */
} heed_base_use;

/* Tokens to hidden states and logits, as a session computes them. nodes->tokens is made unless it is there;
 * failures show when the graph is finished. */
void heed_base_make(heed_graph *graph, const heed_base *base, const heed_base_use *use,
                    heed_transformer_nodes *nodes);

/* The two parameters of LoRA of a linear map: A [rank, in], B [out, rank]. */
heed_layer_name heed_lora_name(const char *weight, bool b);

/* Writes the model as `base` lies on disk: FOLDER/model.gguf with the keys of a GGUF file, or
 * FOLDER/model.safetensors with the texts of a folder. Tensors that changed become f32; LoRA is added to its
 * maps. */
heed_status heed_base_write(const heed_base *base, heed_parameters *parameters, const heed_base_learn *learn,
                            const char *folder);
/* adapter_model.safetensors and adapter_config.json, as PEFT has them. */
heed_status heed_lora_write(const heed_base *base, heed_parameters *parameters, const heed_base_learn *learn,
                            const char *folder);
enum { HEED_TRAIN_PATH = 1200 };
/* "folder/name" */
heed_status heed_train_path(char path[HEED_TRAIN_PATH], const char *folder, const char *name);

/* The layer of a form's parameter and what plans call it, as "normalise.sink.b"; NULL: it is none of a form.
 */
typedef const char *heed_form_parameter(const char *name, long long *layer);
/* Of parameters beside a base, which are called as "blk.3.normalise.sink.b". */
const char *heed_base_form_parameter(const char *name, long long *layer);
/* params.safetensors with parameters of forms, for --params. *count: how many there are; none writes no file.
 */
heed_status heed_forms_write(heed_parameters *parameters, heed_form_parameter *form_parameter,
                             const char *folder, int *count);
/* Values from such a file for parameters that are there. HEED_FORMAT where one does not fit. */
heed_status heed_forms_read(heed_parameters *parameters, const char *path);
/* From the file that lies beside a model whose config.json says its attention; those that it does not have
 * any more are left out. */
heed_status heed_forms_read_beside(heed_parameters *parameters, const char *model_path);

#endif
