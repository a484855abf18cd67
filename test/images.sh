#!/bin/bash
# Gets what tests of images are made of, where root may: a static busybox, and a
# small Debian with Python, which is kept. Where it cannot, those tests are
# skipped, or fail if GLOVEBOX_REQUIRE names images.
set -euo pipefail
cd "$(dirname "$0")/.."

debian=.cache/images/debian-bookworm-python.tar
if [ "$(id -u)" != 0 ] || ! command -v apt-get >/dev/null; then
	exit 0
fi
missing=()
[ -x /bin/busybox ] || [ -x /usr/bin/busybox ] || missing+=(busybox-static)
command -v mmdebstrap >/dev/null || missing+=(mmdebstrap)
if [ ${#missing[@]} != 0 ]; then
	apt-get update -qq
	DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "${missing[@]}" >/dev/null
fi
if [ ! -e "$debian" ]; then
	mkdir -p "$(dirname "$debian")"
	mmdebstrap --quiet --variant=minbase --include=python3-minimal,ca-certificates bookworm "$debian.new.tar"
	mv "$debian.new.tar" "$debian"
fi
