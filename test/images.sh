#!/bin/bash
# Gets what tests of images are made of, where root may: a static busybox, and a
# small Debian with Python, which is kept. Where it cannot, those tests are
# skipped, or fail if GLOVEBOX_REQUIRE names images.
set -euo pipefail
cd "$(dirname "$0")/.."

debian=.cache/images/debian-bookworm-python3.tar
if [ "$(id -u)" != 0 ] || ! command -v apt-get >/dev/null; then
	exit 0
fi
test/tools.sh busybox=busybox-static mmdebstrap python3
if [ ! -e "$debian" ]; then
	mkdir -p "$(dirname "$debian")"
	mmdebstrap --quiet --variant=minbase --include=python3,ca-certificates bookworm "$debian.new.tar"
	mv "$debian.new.tar" "$debian"
fi
