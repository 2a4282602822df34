/* A tokeniser for the small models: printable ASCII and the line break, a token a character. */
#ifndef HEED_TEST_SMALL_TOKENIZER_H
#define HEED_TEST_SMALL_TOKENIZER_H

/* Makes a folder with the files of a small model (see small_models.h) and a tokenizer.json. */
void make_model_with_tokenizer(const char *folder, const char *model);

/* Removes it. */
void remove_model(const char *folder);

#endif
