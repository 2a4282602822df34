#!/usr/bin/env bash
# The example that generates text knows a capital.
#   generate.sh PROGRAM
set -euo pipefail
model=${HEED_MODELS:-$HOME/.cache/heed}/smollm2.gguf
[ -f "$model" ] || { echo "skipped: there is no $model; models/get smollm2 fetches it"; exit 77; }
text=$("$1" "$model" "The capital of France is")
case $text in *Paris*) ;; *) echo "it went on with: $text"; exit 1 ;; esac
status=0
"$1" "$model" "The capital of France is" "where=causl" >/dev/null 2>"${TMPDIR:-/tmp}/heed_generate.$$" || status=$?
message=$(cat "${TMPDIR:-/tmp}/heed_generate.$$")
rm -f "${TMPDIR:-/tmp}/heed_generate.$$"
[ $status = 1 ] || { echo "a spec with a typo ended with status $status"; exit 1; }
case $message in *causl*causal*) ;; *) echo "a spec with a typo gave: $message"; exit 1 ;; esac
