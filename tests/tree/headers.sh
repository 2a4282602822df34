#!/usr/bin/env bash
# Each public header compiles alone, as C11 and as C++, with warnings that a strict user may have on.
#   headers.sh CC CXX INCLUDE_DIR
set -euo pipefail
cc=$1 cxx=$2 include=$3
warnings=(-Wall -Wextra -Wconversion -Wshadow -pedantic -Werror)

for header in "$include"/heed/*.h; do
    name=heed/$(basename "$header")
    echo "$name"
    printf '#include <%s>\n#include <%s>\nint heed_unit_is_not_empty;\n' "$name" "$name" |
        "$cc" -std=c11 "${warnings[@]}" -I "$include" -fsyntax-only -x c -
    printf '#include <%s>\n' "$name" | "$cxx" "${warnings[@]}" -I "$include" -fsyntax-only -x c++ -
done
