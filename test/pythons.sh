#!/bin/bash
# Gets the oldest and the newest Python that Debian has, where root may, as
# .cache/interpreters/SUITE/python3. They are unpacked beside the C library of
# their suite, and made to use that.
set -euo pipefail
cd "$(dirname "$0")/.."

get() { # SUITE
	local dir=$PWD/.cache/interpreters/$1 usr newest loader
	rm -rf "$dir"
	mkdir -p "$dir"
	# It does not matter here that a mirror lags behind.
	mmdebstrap --quiet --variant=extract --aptopt='Acquire::Check-Valid-Until "false"' \
		--include='?and(?name(^python3\.[0-9]+$),?not(?virtual))' "$1" "$dir" ${mirror:+"$mirror"}
	usr=$dir/usr
	newest=$(find "$usr/bin" -name 'python3.*' | sort -V | tail -n 1)
	loader=$(find "$dir" -name 'ld-linux-*.so.?' | head -n 1)
	libraries=$(dirname "$(find "$dir" -name libc.so.6 | head -n 1)")
	patchelf --set-interpreter "$loader" --force-rpath --set-rpath "$libraries:$usr/lib/${libraries##*/}" "$newest"
	ln -s "$newest" "$dir/python3"
}

if [ "$(id -u)" != 0 ] || ! command -v apt-get >/dev/null; then
	exit 0
fi
# shellcheck disable=SC2016 # apt-get fills it in
mirror=$(apt-get indextargets --format '$(SITE)' 'Origin: Debian' 'Label: Debian' | sort -u | head -n 1)
for suite in bullseye sid; do
	if ! ".cache/interpreters/$suite/python3" -c '' 2>/dev/null; then
		echo "interpreters: unpacking Python from Debian's $suite"
		test/tools.sh mmdebstrap patchelf
		get $suite &
	fi
done
wait
