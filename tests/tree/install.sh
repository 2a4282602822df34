#!/usr/bin/env bash
# An installed heed can be used: by pkg-config with the shared and the static library, by find_package with both, and
# as a program. Each build must print the same numbers as the example built with the project itself.
#   install.sh CMAKE CC BUILD_DIR SOURCE_DIR
set -euo pipefail
cmake=$1 cc=$2 build=$3 source=$4
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

"$cmake" --install "$build" --prefix "$work/first" >"$work/log" || { cat "$work/log"; exit 1; }
mv "$work/first" "$work/prefix" # nothing in the tree may remember where it was installed
prefix=$work/prefix
libdir=$(dirname "$(find "$prefix" -name libheed.a)")
export PKG_CONFIG_PATH=$libdir/pkgconfig
example=$source/examples/attend.c
"$build/examples/attend" >"$work/expected"
[ -s "$work/expected" ]

same() { # what the program NAME prints is what was expected
    "$work/$1" >"$work/$1.out"
    diff "$work/expected" "$work/$1.out"
    echo "$1: same numbers"
}

read -ra cflags < <(pkg-config --cflags heed)
read -ra shared < <(pkg-config --libs heed)
read -ra static < <(pkg-config --libs --static heed | sed 's/-lheed\b/-l:libheed.a/')
"$cc" -std=c11 "${cflags[@]}" "$example" -o "$work/by_pkg_config_shared" "${shared[@]}" -lm
"$cc" -std=c11 "${cflags[@]}" "$example" -o "$work/by_pkg_config_static" "${static[@]}"
LD_LIBRARY_PATH=$libdir same by_pkg_config_shared
same by_pkg_config_static
ldd "$work/by_pkg_config_static" | grep libheed && { echo "the static example loads libheed"; exit 1; }
LD_LIBRARY_PATH=$libdir ldd "$work/by_pkg_config_shared" >"$work/loaded" # not into a pipe, which grep would leave early
grep -q "libheed.so.*$libdir" "$work/loaded" ||
    { echo "the shared example does not load the installed library"; exit 1; }

"$cmake" -S "$source/tests/tree/package" -B "$work/package" -DCMAKE_C_COMPILER="$cc" -DCMAKE_PREFIX_PATH="$prefix" \
    -DEXAMPLE="$example" >"$work/log" 2>&1 && "$cmake" --build "$work/package" >>"$work/log" 2>&1 ||
    { cat "$work/log"; exit 1; }
same package/by_find_package_shared
same package/by_find_package_static

[ "$(pkg-config --modversion heed)" = "$("$prefix/bin/heed" --version | grep -oE '[0-9]+\.[0-9]+\.[0-9]+' | head -n 1)" ]
for page in share/man/man1/heed.1 share/bash-completion/completions/heed; do
    [ -s "$prefix/$page" ] || { echo "not installed: $page"; exit 1; }
done
(cd "$work" && "$prefix/bin/heed" recipe --list >list)
grep -q copy "$work/list" || { echo "recipes are not installed"; exit 1; }
echo "program, page, completion and recipes are installed"
