/** @file heed.h Everything. */
#ifndef HEED_H
#define HEED_H
#include <heed/attend.h>
#include <heed/base.h>
#include <heed/form.h>
#include <heed/tensor.h>
#endif
