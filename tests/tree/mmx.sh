#!/usr/bin/env bash
# No MMX register is used anywhere in the static library: after one, x87 arithmetic (long double) of a caller gives NaN
# until EMMS. Skipped (77) where there is no objdump, or no x86.
#   mmx.sh OBJDUMP LIBRARY
set -euo pipefail
objdump=$1 library=$2

command -v "$objdump" >/dev/null || { echo "skipped: there is no objdump to disassemble with"; exit 77; }
format=$("$objdump" -f "$library" | awk '/file format/ {format = $NF} END {print format}')
case $format in
elf32-i386 | elf*-x86-64) ;;
*) echo "skipped: $format has no MMX registers"; exit 77 ;;
esac

"$objdump" -d --no-show-raw-insn "$library" | awk '
    / file format / { object = $1; sub(/:$/, "", object) }
    /^[0-9a-f]+ <.*>:$/ { name = $2; functions++ }
    /^ *[0-9a-f]+:/ { instructions++ }
    /%mm[0-7]/ { used++; if (used <= 20) print object, name, $0 }
    END {
        print instructions + 0, "instructions of", functions + 0, "functions looked at,", used + 0, "with an MMX register"
        exit used > 0 || instructions < 10000
    }'
