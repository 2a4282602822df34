/* What is drawn for the bytes of a token: characters, signs for white space, boxes with numbers for the rest.
 */
#ifndef HEED_PLOT_LABEL_H
#define HEED_PLOT_LABEL_H

#include <heed/base.h>

typedef struct heed_label_part {
    uint32_t code; /* a character, or the number in the box */
    bool box;
    bool byte; /* the box holds a byte that is no character */
} heed_label_part;

enum { HEED_LABEL_MOST = 256 }; /* parts of a label; of a longer token the rest is an ellipsis */

typedef struct heed_label {
    heed_label_part part[HEED_LABEL_MOST];
    int count;
} heed_label;

/* In the order from left to right: what is written from right to left is turned round. `space` stands for
 * each space. */
void heed_label_make(heed_label *label, const char *text, size_t size, uint32_t space);

#endif
