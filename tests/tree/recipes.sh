#!/usr/bin/env bash
# The short form of every recipe holds.
#   recipes.sh HEED SOURCE_DIR
set -euo pipefail
command -v python3 >/dev/null || { echo "skipped: there is no python3"; exit 77; }
exec "$2/recipes/run" --short --heed "$1" --threads 1
