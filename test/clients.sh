#!/bin/bash
# Installs the clients and the agent frameworks that tests run, by the lock
# files, with a Node of their own. Without npm, and without the means to install
# it, tests of them are skipped, or fail if GLOVEBOX_REQUIRE names them.
set -euo pipefail
cd "$(dirname "$0")"

for dir in node frameworks; do
	stamp=$dir/node_modules/.installed
	if [ -f "$stamp" ] && cmp -s $dir/package-lock.json "$stamp"; then
		continue
	fi
	if ! ./tools.sh npm; then
		echo "clients: tests with clients from npm are skipped"
		exit 0
	fi
	echo "clients: npm ci in test/$dir"
	(cd $dir && npm ci --no-progress --loglevel=error)
	if [ $dir = node ]; then
		# Debian 12's npm makes no link to the Node of their own.
		[ -e node/node_modules/.bin/node ] || (cd node/node_modules/.bin && ln -s ../node-linux-*/bin/node node)
	fi
	cp $dir/package-lock.json "$stamp"
done
