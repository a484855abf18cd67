#!/bin/bash
# Gets programs that tests and checks use, where they are missing and root may:
#
#	test/tools.sh shellcheck pgrep=procps python3:numpy=python3-numpy
#
# Each argument is a program, or a module of the system's Python, and after "="
# the package of Debian's that has it, if that is called otherwise. The exit
# status is 1, and the last line says what there is not, if something is still
# missing.
set -euo pipefail

here() { # PROGRAM or python3:MODULE
	case $1 in
	python3:*) /usr/bin/python3 -c "import ${1#*:}" 2>/dev/null ;;
	*) PATH=$PATH:/usr/sbin:/sbin command -v "$1" >/dev/null ;;
	esac
}

packages=()
for want; do
	here "${want%%=*}" || packages+=("${want##*=}")
done
if [ ${#packages[@]} != 0 ] && [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null; then
	echo "tools: installing ${packages[*]}"
	export DEBIAN_FRONTEND=noninteractive
	# Scripts run at once, and apt-get update does not wait for another one.
	exec 8<"$0"
	flock 8
	{
		apt-get update -qq &&
			apt-get install -y -qq --no-install-recommends -o DPkg::Lock::Timeout=300 "${packages[@]}" >/dev/null
	} || true
fi
missing=()
for want; do
	here "${want%%=*}" || missing+=("${want%%=*}")
done
if [ ${#missing[@]} != 0 ]; then
	echo "tools: there is no ${missing[*]}"
	exit 1
fi
