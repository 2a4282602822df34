#!/usr/bin/env bash
# The example that generates text knows a capital; where the model that knows it was not fetched, the small one of models/
# goes on in words.
#   generate.sh PROGRAM SOURCE_DIR
set -euo pipefail
model=${HEED_MODELS:-$HOME/.cache/heed}/smollm2.gguf words=*Paris*
[ -f "$model" ] || model=$2/models/austen.gguf words='* the *'
text=$("$1" "$model" "The capital of France is")
# shellcheck disable=SC2254 # a pattern
case $text in $words) ;; *) echo "it went on with: $text"; exit 1 ;; esac
status=0
"$1" "$model" "The capital of France is" "where=causl" >/dev/null 2>"${TMPDIR:-/tmp}/heed_generate.$$" || status=$?
message=$(cat "${TMPDIR:-/tmp}/heed_generate.$$")
rm -f "${TMPDIR:-/tmp}/heed_generate.$$"
[ $status = 1 ] || { echo "a spec with a typo ended with status $status"; exit 1; }
case $message in *causl*causal*) ;; *) echo "a spec with a typo gave: $message"; exit 1 ;; esac
