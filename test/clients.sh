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
if ! command -v npm >/dev/null; then
	if [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null; then
		echo "clients: installing npm"
		apt-get update -qq
		DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends npm >/dev/null
	else
		echo "clients: npm is not installed; tests with MCP clients are skipped"
		exit 0
	fi
fi
echo "clients: npm ci"
npm ci --no-progress --loglevel=error
cp package-lock.json "$stamp"
