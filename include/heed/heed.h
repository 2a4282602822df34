/** @file heed.h Everything. */
#ifndef HEED_H
#define HEED_H
#include <heed/attend.h>
#include <heed/base.h>
#include <heed/form.h>
#include <heed/gather.h>
#include <heed/model.h>
#include <heed/nn.h>
#include <heed/policy.h>
#include <heed/recall.h>
#include <heed/sampling.h>
#include <heed/scan.h>
#include <heed/tensor.h>
#include <heed/tokenizer.h>
#endif
