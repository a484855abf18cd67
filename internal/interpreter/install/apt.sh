# shellcheck shell=sh
# Unpacks packages of Debian and what they need below $GLOVEBOX_ENV/apt, without
# being root: their programs are linked in bin, their scripts are not run.
set -eu
if ! command -v apt-get >/dev/null || ! command -v dpkg-deb >/dev/null; then
	echo "apt is not in this sandbox" >&2
	exit 127
fi
root=$GLOVEBOX_ENV/apt
state=$GLOVEBOX_ENV/.apt
mkdir -p "$root" "$GLOVEBOX_ENV/bin" "$state/lists/partial" "$state/archives/partial"
rm -f "$state"/archives/*.deb
status=/var/lib/dpkg/status
[ -e "$status" ] || { status=$state/status; : >"$status"; }
set -- "$@" --
options="-o Dir::State=$state -o Dir::State::Lists=$state/lists -o Dir::State::status=$status -o Dir::Cache=$state -o Dir::Cache::Archives=$state/archives -o Debug::NoLocking=true -o APT::Sandbox::User= -o APT::Install-Recommends=false -o Acquire::Languages=none"
if [ -n "${GLOVEBOX_APT_SOURCE:-}" ]; then
	printf '%s\n' "$GLOVEBOX_APT_SOURCE" >"$state/sources.list"
	options="$options -o Dir::Etc::SourceList=$state/sources.list -o Dir::Etc::SourceParts=/dev/null"
fi
if [ -z "$(find "$state/lists" -maxdepth 1 -type f -mmin -1440 -name '*Packages*' 2>/dev/null)" ] || [ -n "${GLOVEBOX_APT_SOURCE:-}" ]; then
	# shellcheck disable=SC2086 # our own words
	apt-get -qq $options update
fi
while [ "$1" != -- ]; do
	set -- "$@" "$1"
	shift
done
shift
# shellcheck disable=SC2086
apt-get -qq -y $options --download-only install -- "$@"
for deb in "$state"/archives/*.deb; do
	[ -e "$deb" ] || continue
	dpkg-deb -x "$deb" "$root"
	# shellcheck disable=SC2016 # dpkg-deb fills it in
	dpkg-deb -W --showformat='installed ${Package} ${Version}\n' "$deb"
	rm -f "$deb"
done
# Each program gets a wrapper, so that it finds libraries that came with it and
# no other program does.
libraries=$root/lib:$root/usr/lib
for dir in "$root"/usr/lib/*-linux-gnu*; do
	[ -d "$dir" ] && libraries=$libraries:$dir
done
for dir in "$root/usr/bin" "$root/bin" "$root/usr/sbin" "$root/usr/games"; do
	for program in "$dir"/*; do
		[ -f "$program" ] || continue
		wrapper=$GLOVEBOX_ENV/bin/${program##*/}
		# shellcheck disable=SC2016 # the wrapper fills it in
		printf '#!/bin/sh\nLD_LIBRARY_PATH=%s${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH} exec "%s" "$@"\n' "$libraries" "$program" >"$wrapper"
		chmod 755 "$wrapper"
	done
done
for name; do
	dpkg-query --admindir="$(dirname "$status")" -W -f='present ${Package} ${Version}\n' "${name%%=*}" 2>/dev/null || :
done
