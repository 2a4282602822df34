/* A tokeniser for the small models: printable ASCII and the line break, a token a character. */
#ifndef HEED_TEST_SMALL_TOKENIZER_H
#define HEED_TEST_SMALL_TOKENIZER_H

/* Makes a folder with the files of a small model (see small_models.h) and a tokenizer.json. */
void make_model_with_tokenizer(const char *folder, const char *model);

/* Removes it. */
void remove_model(const char *folder);

/* Set-up and tear-down of a group: a folder of the program (see program.h) with the model `tiny` in it. */
int tiny_folder(void **state);
int tiny_folder_remove(void **state);

#endif
