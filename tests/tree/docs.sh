#!/usr/bin/env bash
# What the pages say is so: the reference of forms is the program's own, the code in docs/write-a-form.md and
# docs/write-a-policy.md is the example's and compiles as a built-in form, README.md lists every form, and its first example runs.
#   docs.sh HEED CC SOURCE_DIR
set -euo pipefail
heed=$1 cc=$2 source=$3
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

blocks() { # PAGE INFO: the code blocks with that info string, a blank line between them
    awk -v open="\`\`\`$2" '$0 == open {inside = 1; if (n++) print ""; next} $0 == "```" {inside = 0} inside' "$1"
}

"$heed" forms --reference | diff "$source/docs/forms.md" - ||
    { echo "docs/forms.md is old: heed forms --reference > docs/forms.md"; exit 1; }

for name in form policy; do
    page=$source/docs/write-a-$name.md
    blocks "$page" c >"$work/own.c"
    diff "$source/examples/own_$name.c" "$work/own.c"
    blocks "$page" "c built-in" >"$work/built_in.c"
    "$cc" -std=gnu11 -O3 -fopenmp -Wall -Wextra -Wshadow -Werror -ffp-contract=fast -DHEED_ISA=_portable \
        -I "$source/include" -I "$source/src" -c "$work/built_in.c" -o "$work/built_in.o"
done

"$heed" forms --reference | sed -n 's/^### [a-z]*=//p; s/^### \([a-z0-9_]*\)$/\1/p' | while read -r name; do
    grep -q "\`$name\`" "$source/README.md" || { echo "README.md does not list $name"; exit 1; }
done

blocks "$source/README.md" "sh first-example" >"$work/first.sh"
[ -s "$work/first.sh" ]
mkdir "$work/bin"
ln -s "$heed" "$work/bin/heed"
(cd "$work" && PATH=$work/bin:$PATH bash -euo pipefail first.sh)
