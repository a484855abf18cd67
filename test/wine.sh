#!/bin/bash
# Tests of the packages that matter on Windows, and the program itself, as
# Windows programs under Wine. Needs root, for a Debian of their own that has a
# Wine which is new enough for Go, and a machine of amd64; skipped elsewhere.
#
#	test/wine.sh [PACKAGE...]
set -euo pipefail
from=$PWD
cd "$(dirname "$0")/.."
root=$PWD/.cache/wine

in_wine() { # DIRECTORY PROGRAM [ARGUMENT...]
	# shellcheck disable=SC2016 # it is the inner shell that fills it in
	chroot "$root" env -i PATH=/usr/bin:/bin HOME=/root WINEDEBUG=-all LANG=C.UTF-8 XDG_RUNTIME_DIR=/tmp \
		bash -euc 'cd "$0" && exec wine "$@"' "$@"
}

case ${1:-} in
--in) # what go test runs instead of a program
	shift
	in_wine "$from" "$@"
	exit
	;;
--inside) shift ;;
*)
	if [ "$(id -u)" != 0 ] || [ "$(uname -m)" != x86_64 ] || ! test/tools.sh mmdebstrap curl; then
		echo "wine: skipped: it needs root, amd64 and mmdebstrap"
		exit 0
	fi
	if [ ! -d "$root" ]; then
		echo "wine: making a Debian"
		rm -rf "$root.new"
		mkdir -p "$(dirname "$root")"
		mmdebstrap --quiet --variant=minbase --include=wine,wine64 trixie "$root.new"
		mv "$root.new" "$root"
	fi
	# Mounts and processes end with this.
	exec unshare --mount --pid --fork --kill-child --mount-proc --propagation private "$0" --inside "$@"
	;;
esac

packages=("$@")
if [ ${#packages[@]} = 0 ]; then
	packages=(./internal/{auth,clientconfig,config,driver/container,driver/docker,driver/docker/dockerapi,driver/e2b,e2bapi,engine,hostfiles,httpserver,imagebuild}
		./internal/{interpreter,mcpserver,mcpserver/transport,network,pool,release,safepath,sandbox,store,update,workspace})
fi
export CGO_ENABLED=0 GOFLAGS=-buildvcs=false GOTMPDIR=$PWD/.cache/wine-tmp
mkdir -p "$GOTMPDIR" "$root$PWD"
trap 'rm -rf "$GOTMPDIR"' EXIT
mount -t proc proc "$root/proc"
mount --bind /dev "$root/dev"
mount --bind "$PWD" "$root$PWD"

work=$GOTMPDIR/work
mkdir "$work"
GOOS=linux go build -trimpath -ldflags '-s -w' -o internal/guestbin/glovebox-guest ./cmd/glovebox-guest
GOOS=windows go build -trimpath -tags embedguest -o "$work/glovebox.exe" ./cmd/glovebox
glovebox() { in_wine "$work" ./glovebox.exe "$@"; }
rm -rf "$root/root/.wine"
in_wine / wineboot --init >/dev/null 2>&1

fail() {
	echo "wine: FAILED: $*" >&2
	exit 1
}
echo "wine: the program"
glovebox version | grep -q 'windows/amd64' || fail "version"
status=0
glovebox doctor >"$work/doctor" 2>&1 || status=$?
if [ $status != 1 ] || ! grep -qi docker "$work/doctor"; then
	fail "doctor, where there is no Docker: status $status: $(cat "$work/doctor")"
fi
glovebox install cursor --print >"$work/print" 2>&1 || fail "install --print: $(cat "$work/print")"
grep -q '"command": "Z:.*\\\\glovebox.exe"' "$work/print" || fail "install --print: $(cat "$work/print")"
[ ! -e "$root/root/.wine/drive_c/users/root/.cursor" ] || fail "install --print wrote something"
glovebox install cursor vscode claude-desktop >"$work/print" 2>&1 || fail "install: $(cat "$work/print")"
home=$root/root/.wine/drive_c/users/root
files=(.cursor/mcp.json AppData/Roaming/{Code/User/mcp,Claude/claude_desktop_config}.json)
for file in "${files[@]}"; do
	grep -q glovebox.exe "$home/$file" || fail "install did not write $file: $(cat "$work/print")"
done
glovebox uninstall >"$work/print" 2>&1 || fail "uninstall: $(cat "$work/print")"
for file in "${files[@]}"; do
	! grep -q glovebox.exe "$home/$file" || fail "uninstall left $file: $(cat "$work/print")"
done

echo "wine: go test"
GOOS=windows go test -vet=off -p 1 -timeout 5m -exec "$PWD/test/wine.sh --in" "${packages[@]}"
