#!/bin/bash
# The way of somebody who never saw Glovebox, from nothing and back: install.sh
# from a release server, doctor, install into an MCP client, a conversation as
# that client would have it, update to the next version, uninstall. Afterwards
# nothing may be left but what uninstall says it keeps.
#
# Two releases are built for it, signed with a key that is thrown away, and
# served on the loopback interface. Where root may, the stranger is an ordinary
# user of a bare Debian, made of its packages, which has nothing of this machine
# but the kernel and that interface; elsewhere an empty home and the system's
# PATH have to do. What the stranger does is in stranger-steps.sh.
set -euo pipefail
cd "$(dirname "$0")/.."

fail() {
	echo "stranger: FAILED: $*" >&2
	exit 1
}
step() { echo "stranger: $* (after $SECONDS s)"; }

if ! test/tools.sh python3 curl minisign; then
	case ",${GLOVEBOX_REQUIRE:-}," in
	*,stranger,*) fail "something is not installed" ;;
	esac
	echo "stranger: skipped"
	exit 0
fi

work=$(mktemp -d /tmp/gbx-stranger.XXXXXX)
server=
cleanup() {
	status=$?
	trap - EXIT
	[ -z "$server" ] || kill "$server" 2>/dev/null || true
	rm -rf "$work"
	exit $status
}
trap cleanup EXIT
trap 'exit 130' INT TERM

step "building two releases"
export PLATFORMS
PLATFORMS=linux_$(go env GOARCH)
GLOVEBOX_RELEASE_KEY=$(CGO_ENABLED=0 GOFLAGS=-buildvcs=false go run ./cmd/glovebox-release new-key)
export GLOVEBOX_RELEASE_KEY SKIP_PACKAGES=1
mkdir "$work/www"
now=$(date +%s) # releases expire
SOURCE_DATE_EPOCH=$((now - 60)) release/build.sh v0.1.0 "$work/www/v0.1.0"
SOURCE_DATE_EPOCH=$now release/build.sh v0.2.0 "$work/www/v0.2.0"
archive=glovebox_$PLATFORMS.tar.gz
cp -r "$work/www/v0.1.0" "$work/www/tampered"
printf 'x' >>"$work/www/tampered/$archive"
cp -r "$work/www/v0.1.0" "$work/www/forged" # consistent, but not signed by us
printf 'x' >>"$work/www/forged/$archive"
(cd "$work/www/forged" && sed -i "s/^[0-9a-f]*  $archive\$/$(sha256sum "$archive" | cut -d ' ' -f 1)  $archive/" checksums.txt)

python3 -u -c '
import functools, http.server, sys
class Quiet(http.server.SimpleHTTPRequestHandler):
    def log_message(self, *args): pass
s = http.server.ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(Quiet, directory=sys.argv[1]))
print(s.server_address[1])
s.serve_forever()' "$work/www" >"$work/port" &
server=$!
for _ in $(seq 600); do
	[ ! -s "$work/port" ] || break
	sleep 0.1
done
url=http://127.0.0.1:$(cat "$work/port")

if [ "$(id -u)" != 0 ] || ! test/tools.sh mmdebstrap; then
	mkdir "$work/home" "$work/tmp"
	test/stranger-steps.sh "$url" "$work"
	exit
fi

debian=.cache/images/debian-stranger.tar
if [ ! -e "$debian" ]; then
	step "making a Debian"
	mkdir -p "$(dirname "$debian")"
	mmdebstrap --quiet --variant=minbase --include=ca-certificates,curl,minisign,python3 bookworm "$debian.new.tar"
	mv "$debian.new.tar" "$debian"
fi
step "in a Debian of its own"
root=$work/root
mkdir "$root"
tar -C "$root" -xf "$debian"
cp test/stranger-steps.sh "$root/root/"
useradd --root "$root" --create-home stranger
# A root directory of its own, instead of one by chroot(2): that would forbid
# namespaces of users to whoever is in it.
# shellcheck disable=SC2016 # it is the inner shell that fills it in
unshare --mount --pid --fork --ipc --uts --propagation private bash -euo pipefail -c '
	root=$0
	mount --bind "$root" "$root"
	cd "$root"
	mount -t proc proc proc
	mount -t sysfs -o ro sysfs sys
	mount -t tmpfs -o mode=755 dev dev
	mkdir dev/shm
	chmod 1777 dev/shm
	for name in null zero full random urandom; do
		touch "dev/$name"
		mount --bind "/dev/$name" "dev/$name"
	done
	mkdir old
	pivot_root . old
	umount -l old
	rmdir old
	exec env -i PATH=/usr/bin:/bin:/usr/sbin:/sbin LANG=C.UTF-8 /root/stranger-steps.sh "$@"
' "$root" "$url" user
