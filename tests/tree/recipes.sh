#!/usr/bin/env bash
# The short form of every recipe holds.
#   recipes.sh HEED SOURCE_DIR
set -euo pipefail
exec "$1" recipe --all --quick --folder "$2/recipes" --threads 1
