#!/bin/bash
# Runs a command with a Docker Engine and a Podman to test with:
#
#	test/docker.sh go test ./internal/driver/docker
#
# Both are started for the purpose, with all they have below .cache/engines, and
# stopped afterwards; what runs on this machine already is left alone. Where they
# are not installed, root on Debian gets them with apt. Images cannot be pulled
# everywhere, so those that tests use are made of Debian's packages, once, and
# kept. Without the means to do all this, the command runs without engines: what
# needs them is skipped, or fails if GLOVEBOX_REQUIRE names docker or podman.
set -euo pipefail
repo=$(cd "$(dirname "$0")/.." && pwd)
cache=$repo/.cache/engines
image=localhost/glovebox-test

if [ "$(id -u)" != 0 ]; then
	echo "docker: engines for tests are started by root only; going on without"
	exec "$@"
fi
had=$(command -v dockerd || true)
if ! "$repo/test/tools.sh" dockerd=docker.io iptables runc podman conmon mmdebstrap busybox=busybox-static pgrep=procps; then
	echo "docker: going on without engines"
	exec "$@"
fi
if [ -z "$had" ]; then
	# The package may have started it; tests have their own.
	service docker stop >/dev/null 2>&1 || true
fi

mkdir -p "$cache"
cache=$(cd "$cache" && pwd -P) # Docker takes no link on the way
exec 9>"$cache/lock"
flock 9 # one at a time
run=$(mktemp -d /tmp/gbe.XXXXXX) # sockets need short paths
docker_pid='' podman_pid=''
cleanup() {
	status=$?
	trap - EXIT
	for pid in $podman_pid $docker_pid; do
		kill "$pid" 2>/dev/null || true
		wait "$pid" 2>/dev/null || true
	done
	# Podman keeps what watched an exec for five minutes after its end.
	for pid in $(pgrep -f "^[^ ]*conmon .*$cache/podman/"); do
		kill -9 "$pid" 2>/dev/null || true
	done
	podman --root "$cache/podman" --runroot "$cache/podman-run" unmount --all >/dev/null 2>&1 || true
	awk -v a="$cache/" -v b="$run/" 'index($5,a)==1 || index($5,b)==1 {print $5}' /proc/self/mountinfo | sort -r |
		while read -r mount; do umount "$mount" || true; done
	rm -rf "$run"
	exit $status
}
trap cleanup EXIT
trap 'exit 130' INT TERM

# Tests use no network but for building, which uses the machine's own.
dockerd --host "unix://$run/docker.sock" --data-root "$cache/docker" --exec-root "$run/docker" \
	--pidfile "$run/docker.pid" --storage-driver overlay2 --bridge none --iptables=false --ip-masq=false \
	>"$cache/dockerd.log" 2>&1 9>&- &
docker_pid=$!
# Where control groups are of both versions, or the limits of this process cannot
# be raised, Podman's defaults do not work.
cat >"$run/containers.conf" <<-END
	[containers]
	default_ulimits=["nofile=4096:4096","nproc=4096:4096"]
	[engine]
	events_logger="file"
	runtime="runc"
END
export CONTAINERS_CONF=$run/containers.conf
# What watches a container leaves a file where it was started from, if memory runs out.
env --chdir="$run" podman --root "$cache/podman" --runroot "$cache/podman-run" system service --time 0 "unix://$run/podman.sock" \
	>"$cache/podman.log" 2>&1 9>&- &
podman_pid=$!
docker() { command docker --host "unix://$run/docker.sock" "$@"; }
podman() { command podman --root "$cache/podman" --runroot "$cache/podman-run" "$@"; }

if [ ! -f "$cache/python3.tar" ]; then
	"$repo/test/images.sh" # which makes a Debian with Python
	cp "$repo/.cache/images/debian-bookworm-python3.tar" "$cache/python3.tar"
fi
if [ ! -f "$cache/busybox.tar" ]; then
	mkdir -p "$run/busybox/bin"
	cp "$(command -v busybox)" "$run/busybox/bin/"
	for name in sh cat echo ls id sleep; do ln -s busybox "$run/busybox/bin/$name"; done
	tar -C "$run/busybox" -cf "$cache/busybox.tar" bin
fi
ready() { # NAME COMMAND...
	local name=$1
	shift
	for _ in $(seq 1200); do
		if "$@" >/dev/null 2>&1; then
			return
		fi
		sleep 0.1
	done
	echo "docker: $name does not start:"
	tail -n 20 "$cache/dockerd.log" "$cache/podman.log"
	exit 1
}
ready docker docker info
ready podman test -S "$run/podman.sock"
for name in python3 busybox; do
	docker image inspect "$image:$name" >/dev/null 2>&1 || docker import "$cache/$name.tar" "$image:$name" >/dev/null
	podman image exists "$image:$name" || podman import --quiet "$cache/$name.tar" "$image:$name" >/dev/null
done
# What a sandbox gets whose creator names no image.
for name in python:3-slim debian:stable-slim; do
	docker tag "$image:python3" "$name"
	podman tag "$image:python3" "docker.io/library/$name"
done

export GLOVEBOX_TEST_DOCKER=unix://$run/docker.sock GLOVEBOX_TEST_PODMAN=unix://$run/podman.sock
"$@" 9>&-
