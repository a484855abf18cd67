#!/bin/bash
# A whole release in dist/, signed with a key that is thrown away, and looked at
# as those will who get it: signatures, packages, the bundle by its own tool.
# A second build, from a copy of the sources in another directory, must give the
# same bytes.
set -euo pipefail
cd "$(dirname "$0")/.."
version=$1

export SOURCE_DATE_EPOCH=${SOURCE_DATE_EPOCH:-$(git -c safe.directory='*' log -1 --format=%ct)}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
export GLOVEBOX_RELEASE_KEY
GLOVEBOX_RELEASE_KEY=$(go run ./cmd/glovebox-release new-key)

# Without these there is no second opinion on what they look at.
if ! test/tools.sh minisign rpm dpkg-deb=dpkg unzip npx=npm systemd-analyze=systemd; then
	case ",${GLOVEBOX_REQUIRE:-}," in *,release,*) exit 1 ;; esac
fi

rm -rf dist
release/build.sh "$version" dist

echo "dry run: checksums"
(cd dist && sha256sum --quiet -c checksums.txt)
if command -v minisign >/dev/null; then
	key=$(go run ./cmd/glovebox-release public-key)
	for name in checksums.txt manifest.json; do
		minisign -V -q -P "$key" -m "dist/$name"
	done
fi
# Where grep left at what it looks for, the program before it would fail.
for f in dist/*.deb; do
	! command -v dpkg-deb >/dev/null || dpkg-deb --contents "$f" | grep ' ./usr/share/doc/glovebox/installed' >/dev/null
done
if command -v systemd-analyze >/dev/null; then
	echo "dry run: units of the package, by systemd"
	dpkg-deb -x "dist/glovebox_"*"_$(dpkg --print-architecture).deb" "$work/deb"
	mkdir "$work/units"
	for unit in glovebox.service glovebox.socket; do
		sed "s|/usr/bin/glovebox|$work/deb&|" "$work/deb/usr/lib/systemd/system/$unit" >"$work/units/$unit"
	done
	systemd-analyze verify "$work/units/glovebox.service" "$work/units/glovebox.socket"
	# 4.8 of 10, where 0 is the least exposed; the unit says what must stay open.
	systemd-analyze security --offline=true --threshold=50 "$work/units/glovebox.service" >/dev/null
fi
for f in dist/*.rpm; do
	! command -v rpm >/dev/null || rpm -qlp "$f" 2>/dev/null | grep -x /usr/share/doc/glovebox/installed >/dev/null
done
if command -v npx >/dev/null; then
	echo "dry run: bundles, by their own tool"
	for f in dist/*.mcpb; do
		mkdir -p "$work/bundle"
		(cd "$work/bundle" && unzip -q -o "$OLDPWD/$f" manifest.json)
		npx --yes @anthropic-ai/mcpb@2.1.2 validate "$work/bundle/manifest.json"
		npx --yes @anthropic-ai/mcpb@2.1.2 unpack "$f" "$work/unpacked" >/dev/null
		rm -rf "$work/bundle" "$work/unpacked"
	done
fi

echo "dry run: once more, elsewhere"
mkdir "$work/again"
git -c safe.directory='*' ls-files -z -co --exclude-standard | xargs -0 cp --parents -t "$work/again"
if [ -d .cache/bin ]; then
	mkdir -p "$work/again/.cache/bin"
	cp .cache/bin/nfpm-* "$work/again/.cache/bin/"
fi
"$work/again/release/build.sh" "$version" "$work/second"
differ=$(diff -rq dist "$work/second" | grep -v '\.minisig' || true)
if [ -n "$differ" ]; then
	echo "dry run: not the same the second time:"
	echo "$differ"
	exit 1
fi
echo "dry run: $(find dist -type f | wc -l) files, the same bytes both times (signatures apart)"
