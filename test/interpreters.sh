#!/bin/bash
# Gets what tests of interpreters and packages use, where root may: Debian's
# numpy, pandas, matplotlib and pip. Where it cannot, those tests are skipped, or
# fail if GLOVEBOX_REQUIRE names pandas or pip.
set -euo pipefail

if [ "$(id -u)" != 0 ] || ! command -v apt-get >/dev/null; then
	exit 0
fi
missing=()
for module in numpy pandas matplotlib pip; do
	/usr/bin/python3 -c "import $module" 2>/dev/null || missing+=("python3-$module")
done
if [ ${#missing[@]} != 0 ]; then
	apt-get update -qq
	DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "${missing[@]}" >/dev/null
fi
