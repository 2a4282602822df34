/* The benchmarks, which live in bench/. */
#ifndef HEED_CLI_BENCH_H
#define HEED_CLI_BENCH_H

#include "cli/cli.h"

extern const cli_command cli_bench;

#endif
