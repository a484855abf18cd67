#!/bin/bash
# Builds a release into a directory: programs of every platform, packages,
# archives, bundles, checksums, signatures. Building the same commit twice gives
# the same bytes, wherever it is done.
#
#   GLOVEBOX_RELEASE_KEY="$(cat release.key)" release/build.sh v1.2.3 dist
#
# PLATFORMS narrows it, like PLATFORMS=linux_amd64; the first argument is the
# version, the second the directory, which must be new.
set -euo pipefail
cd "$(dirname "$0")/.."

version=${1:?version, like v1.2.3} out=${2:?directory}
platforms=${PLATFORMS:-linux_amd64 linux_arm64 darwin_amd64 darwin_arm64 windows_amd64 windows_arm64}
: "${GLOVEBOX_RELEASE_KEY:?the private key, as minisign -G writes it}"
nfpm_version=v2.43.4
GO=${GO:-go}

# The time of everything: that of the commit.
SOURCE_DATE_EPOCH=${SOURCE_DATE_EPOCH:-$(git -c safe.directory='*' log -1 --format=%ct)}
export SOURCE_DATE_EPOCH CGO_ENABLED=0 GOFLAGS=-buildvcs=false TZ=UTC

mkdir -p "$(dirname "$out")"
mkdir "$out"
out=$(cd "$out" && pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

REQUIRE_TERMINAL=1 internal/dashboard/npm/terminal.sh

tool=$work/glovebox-release
$GO build -o "$tool" ./cmd/glovebox-release
key=$("$tool" public-key)

for platform in $platforms; do
	os=${platform%_*} arch=${platform#*_} suffix=
	[ "$os" != windows ] || suffix=.exe
	echo "release: $platform"
	# The guest is always Linux's, and of the machine's architecture: sandboxes
	# of macOS and Windows are containers on that machine. It is embedded, so
	# it is where the compiler looks, and that of the checkout comes back.
	GOOS=linux GOARCH=$arch $GO build -trimpath -ldflags '-s -w' -o "$work/guest_$arch" ./cmd/glovebox-guest
	printf '{"Replace":{"%s":"%s"}}' "$PWD/internal/guestbin/glovebox-guest" "$work/guest_$arch" >"$work/overlay.json"
	# Where the program begins: see internal/network/entry_linux.go.
	entry=
	[ "$os" != linux ] || entry='-E github.com/glovebox-dev/glovebox/internal/network.entry'
	GOOS=$os GOARCH=$arch $GO build -trimpath -tags embedguest -overlay "$work/overlay.json" \
		-ldflags "-s -w -X github.com/glovebox-dev/glovebox/internal/cli.version=$version -X github.com/glovebox-dev/glovebox/internal/cli.releaseKeys=$key $entry" \
		-o "$work/programs/$platform/glovebox$suffix" ./cmd/glovebox
done

# Packages of deb and rpm, with the marker by which the program knows that it
# is not its own to update.
nfpm=.cache/bin/nfpm-$nfpm_version
if [ ! -x "$nfpm" ] && [ -z "${SKIP_PACKAGES:-}" ]; then
	mkdir -p .cache/bin
	GOBIN=$PWD/.cache/bin $GO install -trimpath -ldflags=-s "github.com/goreleaser/nfpm/v2/cmd/nfpm@$nfpm_version"
	mv .cache/bin/nfpm "$nfpm"
fi
for platform in $platforms; do
	case $platform in linux_*) ;; *) continue ;; esac
	if [ -n "${SKIP_PACKAGES:-}" ]; then
		continue
	fi
	cp release/nfpm.yaml release/installed LICENSE README.md deploy/glovebox.service deploy/glovebox.socket "$work/" 
	cp "$work/programs/$platform/glovebox" "$work/glovebox"
	find "$work" -maxdepth 1 -type f -exec touch -d "@$SOURCE_DATE_EPOCH" {} +
	for packager in deb rpm; do
		(cd "$work" && ARCH=${platform#*_} VERSION=$version "$OLDPWD/$nfpm" package -f nfpm.yaml -p $packager -t "$out/" >/dev/null)
	done
done

# shellcheck disable=SC2086 # the platforms are words
"$tool" make -version "$version" -programs "$work/programs" -source . -out "$out" $platforms
echo "release: $(find "$out" -type f | wc -l) files in $out"
