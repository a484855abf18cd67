#!/bin/bash
# Runs the tests of the driver docker on both engines at once, then the scripts of
# the command line and of MCP on each; test/docker.sh starts them. On Podman what is
# large is smaller. With WHOLE, it also builds and tests our images on Docker, which
# takes longer than all of the rest.
set -euo pipefail
cd "$(dirname "$0")/.."

dir=$(mktemp -d /tmp/gbt.XXXXXX)
trap 'rm -rf "$dir"' EXIT
CGO_ENABLED=0 go test -c -o "$dir/docker.test" ./internal/driver/docker
export GLOVEBOX_TEST_GUEST=$PWD/internal/guestbin/glovebox-guest
cd internal/driver/docker
"$dir/docker.test" -test.timeout 30m -test.short -test.run Podman >"$dir/podman.log" 2>&1 &
podman=$!
status=0
"$dir/docker.test" -test.timeout 30m -test.skip Podman || status=1
wait $podman || status=1
cat "$dir/podman.log"
cd ../../..
GLOVEBOX_TEST_BINARY=$PWD/bin/glovebox go test -timeout 15m -run 'Test(Scripts|Profiles|Docs|E2BSDKs)(Docker|Podman)' ./internal/cli || status=1
if [ -n "${WHOLE:-}" ]; then
	test/runners.sh || status=1
fi
exit $status
