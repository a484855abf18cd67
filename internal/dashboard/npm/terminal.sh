#!/bin/bash
# Puts xterm.js beside the static files of the dashboard, which the program embeds. npm
# checks each package against the hash in the lock file. Without npm, and without the
# files of an earlier call, the dashboard has no terminal, and its page says so; with
# REQUIRE_TERMINAL set, that is an error.
set -euo pipefail
cd "$(dirname "$0")"
stamp=../static/xterm.lock
if [ -f "$stamp" ] && cmp -s package-lock.json "$stamp"; then
	exit 0
fi
rm -f "$stamp"
if command -v npm >/dev/null && npm ci --no-progress --loglevel=error; then
	cp node_modules/@xterm/xterm/css/xterm.css ../static/
	for file in xterm/lib/xterm.mjs addon-fit/lib/addon-fit.mjs; do # without the path of a map that is not there
		sed '/^\/\/# sourceMappingURL=/d' "node_modules/@xterm/$file" >"../static/${file##*/}"
	done
	cp package-lock.json "$stamp"
elif [ -n "${REQUIRE_TERMINAL:-}" ]; then
	echo "terminal: a release needs npm, for xterm.js" >&2
	exit 1
else
	rm -f ../static/xterm.css ../static/xterm.mjs ../static/addon-fit.mjs
	echo "terminal: without npm, the dashboard has no terminal"
fi
