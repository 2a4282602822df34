#include "model/architecture.h"
#include <stdio.h>
#include <string.h>

extern const heed_architecture heed_llama, heed_qwen2, heed_qwen3, heed_gemma, heed_gemma2, heed_gemma3,
    heed_phi3, heed_gpt2, heed_bert;

static const heed_architecture *const architectures[] = {
    &heed_llama,  &heed_qwen2, &heed_qwen3, &heed_gemma, &heed_gemma2,
    &heed_gemma3, &heed_phi3,  &heed_gpt2,  &heed_bert,  NULL,
};

static bool goes_by(const heed_architecture *architecture, const char *name)
{
    if (!strcmp(architecture->name, name))
        return true;
    for (const char *const *type = architecture->types; type && *type; type++)
        if (!strcmp(*type, name))
            return true;
    return false;
}

heed_status heed_architecture_find(const char *name, const heed_architecture **architecture)
{
    char known[200] = "";
    for (int i = 0; architectures[i]; i++) {
        *architecture = architectures[i];
        if (goes_by(*architecture, name))
            return HEED_OK;
        const size_t used = strlen(known);
        snprintf(known + used, sizeof known - used, "%s%s", i ? ", " : "", architectures[i]->name);
    }
    *architecture = NULL;
    return heed_fail(HEED_UNSUPPORTED, "the architecture '%s' is not known; known are %s", name, known);
}
