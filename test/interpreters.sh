#!/bin/bash
# Gets what tests of interpreters and packages use, where root may: Debian's
# numpy, pandas, matplotlib and pip. Where it cannot, those tests are skipped, or
# fail if GLOVEBOX_REQUIRE names pandas or pip.
set -euo pipefail

if [ "$(id -u)" != 0 ] || ! command -v apt-get >/dev/null; then
	exit 0
fi
"$(dirname "$0")/tools.sh" python3:numpy=python3-numpy python3:pandas=python3-pandas \
	python3:matplotlib=python3-matplotlib python3:pip=python3-pip
