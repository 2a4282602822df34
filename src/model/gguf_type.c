/* Types of tensors in GGUF files, by the numbers and block sizes of ggml's type table. */
#include "model/gguf.h"

#include <ctype.h>
#include <string.h>

static const heed_gguf_type types[] = {
    {0, "F32", 1, 4, NULL},         {1, "F16", 1, 2, NULL},         {2, "Q4_0", 32, 18, "q4"},
    {3, "Q4_1", 32, 20, NULL},      {6, "Q5_0", 32, 22, NULL},      {7, "Q5_1", 32, 24, NULL},
    {8, "Q8_0", 32, 34, "q8"},      {10, "Q2_K", 256, 84, NULL},    {11, "Q3_K", 256, 110, NULL},
    {12, "Q4_K", 256, 144, NULL},   {13, "Q5_K", 256, 176, NULL},   {14, "Q6_K", 256, 210, NULL},
    {15, "Q8_K", 256, 292, NULL},   {16, "IQ2_XXS", 256, 66, NULL}, {17, "IQ2_XS", 256, 74, NULL},
    {18, "IQ3_XXS", 256, 98, NULL}, {19, "IQ1_S", 256, 50, NULL},   {20, "IQ4_NL", 32, 18, NULL},
    {21, "IQ3_S", 256, 110, NULL},  {22, "IQ2_S", 256, 82, NULL},   {23, "IQ4_XS", 256, 136, NULL},
    {24, "I8", 1, 1, NULL},         {25, "I16", 1, 2, NULL},        {26, "I32", 1, 4, NULL},
    {27, "I64", 1, 8, NULL},        {28, "F64", 1, 8, NULL},        {29, "IQ1_M", 256, 56, NULL},
    {30, "BF16", 1, 2, NULL},       {34, "TQ1_0", 256, 54, NULL},   {35, "TQ2_0", 256, 66, NULL},
    {39, "MXFP4", 32, 17, NULL},
};

const heed_gguf_type *heed_gguf_type_of(uint32_t number)
{
    for (size_t i = 0; i < sizeof types / sizeof *types; i++)
        if (types[i].number == number)
            return &types[i];
    return NULL;
}

heed_type heed_gguf_element(const heed_gguf_type *type)
{
    char name[16];
    size_t i = 0;
    heed_type element;
    for (; type->name[i] && i + 1 < sizeof name; i++)
        name[i] = (char)tolower((unsigned char)type->name[i]);
    name[i] = 0;
    return heed_type_from_name(type->type ? type->type : name, &element) ? element : HEED_TYPES;
}

const heed_gguf_type *heed_gguf_type_for(heed_type type)
{
    for (size_t i = 0; i < sizeof types / sizeof *types; i++)
        if (type != HEED_TYPES && heed_gguf_element(&types[i]) == type)
            return &types[i];
    return NULL;
}

const heed_gguf_type *heed_gguf_type_named(const char *name)
{
    for (size_t i = 0; i < sizeof types / sizeof *types; i++)
        if (!strcmp(types[i].name, name))
            return &types[i];
    return NULL;
}
