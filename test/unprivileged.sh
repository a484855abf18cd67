#!/bin/bash
# Runs the tests of the embedded sandbox once more, as an ordinary user that is
# made for the purpose and removed afterwards: root and users go through
# different code. Whatever the user still runs at the end is a failure.
# Arguments name what to run, of: gvisor cli cli-quick.
set -euo pipefail
cd "$(dirname "$0")/.."

if [ "$(id -u)" != 0 ]; then
	echo "unprivileged: this is an ordinary user already; nothing to repeat"
	exit 0
fi

test/tools.sh ps=procps useradd=passwd setpriv=util-linux
user=gbxtest$$
dir=$(mktemp -d /tmp/gbx.XXXXXX)
cleanup() {
	status=$?
	trap - EXIT
	# What ends in this moment may; what has ended and only waits for its
	# parent (here PID 1) is nothing.
	for _ in 1 2 3 4 5 6 7 8 9 10; do
		left=$(ps -o pid=,stat= -u "$user" | awk '$2 !~ /^Z/ {print $1}' || true)
		if [ -z "$left" ]; then
			break
		fi
		sleep 0.5
	done
	if [ -n "$left" ]; then
		echo "unprivileged: processes left:"
		ps -o pid,ppid,stat,etime,args -u "$user" || true
		# shellcheck disable=SC2086 # process numbers are words
		kill -9 $left || true
		status=1
	fi
	userdel "$user" || true
	rm -rf "$dir"
	exit $status
}
useradd --system --no-create-home --home-dir "$dir/home" --shell /usr/sbin/nologin "$user"
trap cleanup EXIT
trap 'exit 130' INT TERM

uid=$(id -u "$user") gid=$(id -g "$user")
chmod 755 "$dir"
mkdir "$dir/home" "$dir/tmp"
chown "$uid:$gid" "$dir/home" "$dir/tmp"

# The user cannot read the checkout nor the build cache: it gets programs.
run() { # NAME PACKAGE-DIRECTORY [FLAGS...]
	local name=$1 package=$2
	shift 2
	echo "unprivileged: $package"
	mkdir "$dir/$name"
	CGO_ENABLED=0 go test -c -o "$dir/$name/$name.test" "./$package"
	if [ -d "$package/testdata" ]; then
		cp -r "$package/testdata" "$dir/$name/"
	fi
	chmod -R a+rX "$dir/$name"
	(
		cd "$dir/$name"
		setpriv --reuid "$uid" --regid "$gid" --clear-groups \
			env -i HOME="$dir/home" TMPDIR="$dir/tmp" PATH=/usr/local/bin:/usr/bin:/bin LANG=C.UTF-8 \
			GLOVEBOX_REQUIRE="${GLOVEBOX_REQUIRE:-}" GLOVEBOX_TEST_BINARY="$dir/glovebox" \
			GLOVEBOX_TEST_DEBIAN="$debian" \
			GLOVEBOX_TEST_PROGRAM="$dir/glovebox" GLOVEBOX_TEST_GUEST="$dir/glovebox-guest" \
			"./$name.test" -test.timeout 30m "$@"
	)
}

# What root made for tests of images, if it did.
debian=
if [ -e .cache/images/debian-bookworm-python3.tar ]; then
	debian=$dir/debian.tar
	install -m 644 .cache/images/debian-bookworm-python3.tar "$debian"
fi
install -m 755 bin/glovebox internal/guestbin/glovebox-guest "$dir"
failed=0
if [ $# = 0 ]; then
	set -- gvisor cli
fi
suite() {
	local status=0 tests package name
	run gvisor internal/driver/gvisor -test.skip TestImageDriver || status=1
	for tests in internal/driver/gvisor/*/*_test.go; do
		package=$(dirname "$tests")
		name=gvisor-$(basename "$package")
		[ -e "$dir/$name" ] || run "$name" "$package" || status=1
	done
	return $status
}
# The driver's suite runs beside all else, as neither keeps a machine busy all the time.
suite=''
for what; do
	case $what in
	gvisor)
		suite >"$dir/suite.log" 2>&1 &
		suite=$!
		run image internal/driver/gvisor -test.run TestImageDriver || failed=1
		;;
	cli) run cli internal/cli -test.run Gvisor || failed=1 ;;
	cli-quick) run cli internal/cli -test.run Gvisor -test.skip 'Gvisor(Analysis|HostileContexts|Soak)' || failed=1 ;;
	*)
		echo "unprivileged: $what is not one of gvisor, cli, cli-quick"
		failed=1
		;;
	esac
done
if [ -n "$suite" ]; then
	wait "$suite" || failed=1
	cat "$dir/suite.log"
fi
[ $failed = 0 ]
echo "unprivileged: passed"
