#!/bin/bash
# Runs the tests of the embedded sandbox with the program that was built: those of the
# driver beside those of the command line. Both take about as long, and neither keeps a
# machine busy all the time.
set -euo pipefail
cd "$(dirname "$0")/.."

export GLOVEBOX_TEST_PROGRAM=$PWD/bin/glovebox GLOVEBOX_TEST_GUEST=$PWD/internal/guestbin/glovebox-guest
export GLOVEBOX_TEST_BINARY=$PWD/bin/glovebox CGO_ENABLED=0
dir=$(mktemp -d /tmp/gbt.XXXXXX)
trap 'rm -rf "$dir"' EXIT
# The packages below the driver's have no boxes of their own, and need seconds.
go test -timeout 10m ./internal/driver/gvisor/*/
go test -c -o "$dir/gvisor.test" ./internal/driver/gvisor
beside() {
	local status=0
	go test -timeout 25m -run 'Gvisor|E2B(SDKs|Snapshots|Templates|Frameworks|Rules|Driver|DriverSnapshots)$' ./internal/cli || status=1
	go test -timeout 10m -run TestSnapshots ./internal/driver/e2b || status=1
	return $status
}
beside >"$dir/beside.log" 2>&1 &
beside=$!
status=0
(cd internal/driver/gvisor && "$dir/gvisor.test" -test.timeout 30m) || status=1
wait $beside || status=1
cat "$dir/beside.log"
exit $status
