#!/bin/bash
# Installs the MCP clients that tests run, by their lock files, with a Node of
# their own: those of test/node, the frameworks of test/frameworks that use E2B's
# protocol, the agents and frameworks of test/clients that use MCP, and what
# drives the browser of test/browser.
# Without npm, and without the means to install it, tests of them are skipped, or
# fail if GLOVEBOX_REQUIRE names them.
set -euo pipefail
cd "$(dirname "$0")"

for dir in node frameworks clients/npm browser/npm; do
	stamp=$dir/node_modules/.installed
	if [ -f "$stamp" ] && cmp -s "$dir/package-lock.json" "$stamp"; then
		continue
	fi
	if ! ./tools.sh npm; then
		echo "clients: tests with clients from npm are skipped"
		exit 0
	fi
	echo "clients: npm ci in test/$dir"
	(cd "$dir" && npm ci --no-progress --loglevel=error)
	# Debian 12's npm makes no link to the Node of their own.
	[ -e "$dir/node_modules/.bin/node" ] || ! compgen -G "$dir/node_modules/node-linux-*" >/dev/null || (cd "$dir/node_modules/.bin" && ln -s ../node-linux-*/bin/node node)
	cp "$dir/package-lock.json" "$stamp"
done
./tools.sh chromium || echo "clients: tests with a browser are skipped"
./tools.sh tmux || echo "clients: tests with a client on a terminal are skipped"
