/* What a built-in form includes: the public descriptor, and the shapes of loops that forms of a stage share.
 */
#ifndef HEED_ATTEND_FORM_H
#define HEED_ATTEND_FORM_H

#include <heed/form.h>

#endif
