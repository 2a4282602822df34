#!/usr/bin/env bash
# The shared library exports heed_... and nothing else, and every function that the public headers declare.
#   symbols.sh NM LIBRARY INCLUDE_DIR
set -euo pipefail
nm=$1 library=$2 include=$3

exported=$("$nm" -D --defined-only "$library" | awk '$2 ~ /[A-Za-z]/ {print $3}' | sort -u)
declared=$(cat "$include"/heed/*.h | tr '\n' ' ' | grep -oE 'HEED_API [^;(]*\(' | grep -oE 'heed_[a-z0-9_]+ *\($' |
    tr -d '( ' | sort -u)
[ -n "$declared" ]

strangers=$(grep -v '^heed_' <<<"$exported" || true)
private=$(comm -23 <(printf '%s\n' "$exported") <(printf '%s\n' "$declared"))
missing=$(comm -13 <(printf '%s\n' "$exported") <(printf '%s\n' "$declared"))
echo "$(wc -l <<<"$exported") symbols exported, $(wc -l <<<"$declared") functions declared"
[ -z "$strangers" ] || { echo "exported without the prefix heed_:" $strangers; exit 1; }
[ -z "$missing" ] || { echo "declared in a public header but not exported:" $missing; exit 1; }
[ -z "$private" ] || { echo "exported but declared in no public header:" $private; exit 1; }
