#!/bin/sh
# Installs Glovebox from a release: finds out what machine this is, downloads,
# checks, places one program, and says what to do next. It changes nothing else
# unless somebody at a terminal agrees.
#
#   curl -fsSL https://github.com/glovebox-dev/glovebox/releases/latest/download/install.sh | sh
#   sh install.sh --dir ~/bin --version v1.2.3
set -eu

usage() {
	cat <<'USAGE'
usage: install.sh [--dir DIR] [--version vX.Y.Z] [--url URL] [--yes | --no-configure]
  --dir DIR        where to put the program; default /usr/local/bin for root,
                   ~/.local/bin for others (GLOVEBOX_INSTALL_DIR)
  --version V      this release instead of the newest (GLOVEBOX_VERSION)
  --url URL        below which the files are, for a mirror (GLOVEBOX_RELEASES)
  --yes            configure every MCP client that is found, without asking
  --no-configure   configure none, without asking
USAGE
}

say() { printf '%s\n' "$*" >&2; }
fail() {
	say "install: $*"
	exit 1
}
have() { command -v "$1" >/dev/null 2>&1; }

# The public key of releases, which a release writes here.
key='RELEASE_KEY_GOES_HERE'
repository=https://github.com/glovebox-dev/glovebox

platform() {
	case $(uname -s) in
	Linux) system=linux ;;
	Darwin) system=darwin ;;
	*) fail "there is no program for $(uname -s) here; on Windows, use install.ps1" ;;
	esac
	case $(uname -m) in
	x86_64 | amd64) arch=amd64 ;;
	aarch64 | arm64) arch=arm64 ;;
	*) fail "there is no program for $(uname -m); building from source may work: $repository" ;;
	esac
	# A shell that Rosetta translates does not know what machine it is on.
	if [ "$system/$arch" = darwin/amd64 ] && [ "$(sysctl -n sysctl.proc_translated 2>/dev/null || true)" = 1 ]; then
		arch=arm64
	fi
}

# fetch NAME saves a file of the release under its name in $temp.
fetch() {
	if have curl; then
		curl -fsSL --retry 2 --connect-timeout 20 -o "$temp/$1" "$url/$1" || fail "cannot download $url/$1"
	elif have wget; then
		wget -q -O "$temp/$1" "$url/$1" || fail "cannot download $url/$1"
	else
		fail "neither curl nor wget is here; install one"
	fi
}

sha256() {
	if have sha256sum; then
		sha256sum "$1" | cut -d ' ' -f 1
	elif have shasum; then
		shasum -a 256 "$1" | cut -d ' ' -f 1
	else
		fail "neither sha256sum nor shasum is here, so the download cannot be checked"
	fi
}

# verify NAME checks a file that was downloaded against the checksums, and
# those against their signature where that can be done.
verify() {
	case $key in
	RELEASE_*) say "not checked: the signature, as this installer is not one of a release" ;;
	*)
		if have minisign; then
			fetch checksums.txt.minisig
			minisign -V -q -P "$key" -m "$temp/checksums.txt" >&2 ||
				fail "the signature of checksums.txt is not ours; nothing was installed"
		else
			say "not checked: the signature, as minisign is not here (the checksum is)"
		fi
		;;
	esac
	want=$(awk -v name="$1" '$2 == name { print $1 }' "$temp/checksums.txt")
	[ -n "$want" ] || fail "checksums.txt does not name $1; nothing was installed"
	got=$(sha256 "$temp/$1")
	[ "$got" = "$want" ] ||
		fail "the checksum of $1 is $got, and must be $want; nothing was installed"
}

# place puts the program into $dir, where there is a whole one at every moment.
place() {
	tar -xzf "$temp/$1" -C "$temp" glovebox || fail "cannot unpack $1"
	mkdir -p "$dir" || fail "cannot make $dir; name another with --dir"
	fresh=$dir/.glovebox-install-$$
	if ! cp "$temp/glovebox" "$fresh" || ! chmod 755 "$fresh"; then
		rm -f "$fresh"
		fail "cannot write to $dir; name another with --dir"
	fi
	if ! "$fresh" version >/dev/null; then
		rm -f "$fresh"
		fail "the program does not start on this machine; nothing was installed"
	fi
	mv -f "$fresh" "$dir/glovebox"
}

configure() {
	case $configure in
	no) say "To use it in MCP clients: glovebox install" ;;
	yes) "$dir/glovebox" install --all || say "To name clients: glovebox install --help" ;;
	ask)
		# Standard input is this script where it comes through a pipe.
		if [ -t 2 ] && (: </dev/tty) 2>/dev/null; then
			"$dir/glovebox" install </dev/tty || say "Later: glovebox install"
		else
			say "To use it in MCP clients: glovebox install"
		fi
		;;
	esac
}

main() {
	dir=${GLOVEBOX_INSTALL_DIR:-} version=${GLOVEBOX_VERSION:-} url=${GLOVEBOX_RELEASES:-} configure=ask
	while [ $# -gt 0 ]; do
		case $1 in
		--dir | --version | --url)
			[ $# -ge 2 ] || fail "$1 needs a value"
			case $1 in
			--dir) dir=$2 ;;
			--version) version=$2 ;;
			--url) url=$2 ;;
			esac
			shift
			;;
		--yes) configure=yes ;;
		--no-configure) configure=no ;;
		-h | --help)
			usage
			exit 0
			;;
		*)
			usage >&2
			exit 2
			;;
		esac
		shift
	done
	if [ -z "$dir" ]; then
		if [ "$(id -u)" = 0 ]; then dir=/usr/local/bin; else dir=${HOME:?}/.local/bin; fi
	fi
	if [ -z "$url" ]; then
		url=$repository/releases/latest/download
		[ -z "$version" ] || url=$repository/releases/download/$version
	fi
	url=${url%/}
	case $url in
	https://* | http://127.0.0.1:* | http://localhost:*) ;;
	*) fail "$url is not https" ;;
	esac

	platform
	archive=glovebox_${system}_$arch.tar.gz
	temp=$(mktemp -d)
	trap 'rm -rf "$temp"' EXIT
	trap 'exit 130' INT TERM
	say "downloading $url/$archive"
	fetch checksums.txt
	fetch "$archive"
	verify "$archive"
	place "$archive"
	say "installed: $dir/glovebox, $("$dir/glovebox" version)"
	case :$PATH: in
	*:"$dir":*) ;;
	*) say "$dir is not in your PATH. Add it: export PATH=\"$dir:\$PATH\"" ;;
	esac
	say ""
	"$dir/glovebox" doctor || say "What doctor names above mends it; then run: glovebox doctor"
	say ""
	configure
}

# Last, so that half a script does nothing.
main "$@"
