#!/bin/bash
# Installs the MCP clients that tests run, by the lock file, with a Node of
# their own. Without npm, and without the means to install it, tests of them are
# skipped, or fail if GLOVEBOX_REQUIRE names them.
set -euo pipefail
cd "$(dirname "$0")/node"

stamp=node_modules/.installed
if [ -f "$stamp" ] && cmp -s package-lock.json "$stamp"; then
	exit 0
fi
if ! ../tools.sh npm; then
	echo "clients: tests with MCP clients are skipped"
	exit 0
fi
echo "clients: npm ci"
npm ci --no-progress --loglevel=error
# Debian 12's npm makes no link to the Node of their own.
[ -e node_modules/.bin/node ] || (cd node_modules/.bin && ln -s ../node-linux-*/bin/node node)
cp package-lock.json "$stamp"
