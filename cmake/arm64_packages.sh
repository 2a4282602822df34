#!/usr/bin/env bash
# Puts Debian's arm64 builds of the libraries that heed and its tests link into a folder of their own, for the cross
# build. Nothing is installed and apt's own state stays as it is: the lists and the packages live in that folder.
#   arm64_packages.sh FOLDER
set -euo pipefail
packages=(libcjson1 libcjson-dev libpcre2-8-0 libpcre2-dev libutf8proc2 libutf8proc-dev libcmocka0 libcmocka-dev)

mkdir -p "$1"
cd "$1"
[ -e "complete" ] && exit 0
mkdir -p apt/lists/partial apt/cache/archives/partial
touch apt/status
options=(-q -o APT::Architecture=arm64 -o APT::Architectures=arm64 -o Dir::State="$PWD/apt" -o Dir::State::status="$PWD/apt/status"
         -o Dir::State::lists="$PWD/apt/lists" -o Dir::Cache="$PWD/apt/cache" -o APT::Sandbox::User=)
apt-get "${options[@]}" update
apt-get "${options[@]}" download "${packages[@]}"
for package in *.deb; do
    dpkg-deb --extract "$package" .
done
rm -rf apt ./*.deb
touch complete
