#!/bin/bash
# Runs the tests of the embedded sandbox with the program that was built: the
# suite on boxes of an OCI image beside all else, as neither keeps a machine busy
# all the time.
set -euo pipefail
cd "$(dirname "$0")/.."

export GLOVEBOX_TEST_PROGRAM=$PWD/bin/glovebox GLOVEBOX_TEST_GUEST=$PWD/internal/guestbin/glovebox-guest
dir=$(mktemp -d /tmp/gbt.XXXXXX)
trap 'rm -rf "$dir"' EXIT
# The packages below the driver's have no boxes of their own, and need seconds.
CGO_ENABLED=0 go test -timeout 10m ./internal/driver/gvisor/*/
CGO_ENABLED=0 go test -c -o "$dir/gvisor.test" ./internal/driver/gvisor
cd internal/driver/gvisor
"$dir/gvisor.test" -test.timeout 30m -test.run TestImageDriver >"$dir/image.log" 2>&1 &
image=$!
status=0
"$dir/gvisor.test" -test.timeout 30m -test.skip TestImageDriver || status=1
wait $image || status=1
cat "$dir/image.log"
exit $status
