#!/bin/bash
# Builds what images/ has Dockerfiles for with the Docker Engine that
# test/docker.sh started, and runs programs in each. The base is the Debian that
# tests have, with the certificates of this machine: what the builds fetch may
# come through a proxy of its own.
#
#	test/docker.sh test/runners.sh full
#
# builds that one as well, which takes as long as the others together. What a
# build made is kept below .cache/engines, and made again when a Dockerfile or
# the base changes.
set -euo pipefail
cd "$(dirname "$0")/.."

if [ -z "${GLOVEBOX_TEST_DOCKER:-}" ]; then
	case ",${GLOVEBOX_REQUIRE:-}," in
	*,docker,*) echo "runners: GLOVEBOX_TEST_DOCKER is not set: run this by test/docker.sh"; exit 1 ;;
	esac
	echo "runners: skipped: no engine"
	exit 0
fi
docker() { command docker --host "$GLOVEBOX_TEST_DOCKER" "$@"; }
name=localhost/glovebox-runner
names=(node typescript go python java r "$@")

work=$(mktemp -d /tmp/gbr.XXXXXX)
cleanup() {
	status=$?
	trap - EXIT
	set +e # what goes wrong here is no reason to leave the rest
	# Other tests are not to find them by their labels, and the next build is to
	# find all its steps: an image above each, that is no runner, keeps them.
	for image in "${names[@]}"; do
		if docker image inspect "$name:$image" >/dev/null 2>&1; then
			printf "FROM %s\nLABEL sandbox.runner=false sandbox.language= glovebox.languages=\n" "$name:$image" >"$work/kept/Dockerfile"
			build "$name-kept:$image" "$work/kept" >/dev/null 2>&1
			docker rmi "$name:$image" >/dev/null
		fi
	done
	docker image prune --force >/dev/null
	rm -rf "$work"
	exit $status
}
trap cleanup EXIT
trap 'exit 130' INT TERM

build() { # NAME DIRECTORY [BASE]
	GLOVEBOX_DRIVER=docker GLOVEBOX_DOCKER_HOST=$GLOVEBOX_TEST_DOCKER GLOVEBOX_STATE_DIR=$work/state \
		bin/glovebox images build --network host --name "$1" ${3:+--base "$3"} "$2"
}
mkdir "$work/base" "$work/kept"
cp /etc/ssl/certs/ca-certificates.crt "$work/base/"
# As in images of Debian's: what is fetched again need not be safe from a crash.
printf 'force-unsafe-io\npath-exclude=/usr/share/doc/*\npath-exclude=/usr/share/man/*\n' >"$work/base/dpkg.cfg"
cat >"$work/base/Dockerfile" <<-END
	FROM localhost/glovebox-test:python3
	COPY ca-certificates.crt /etc/ssl/certs/
	COPY dpkg.cfg /etc/dpkg/dpkg.cfg.d/image
	ENV NODE_EXTRA_CA_CERTS=/etc/ssl/certs/ca-certificates.crt
END
build "$name-base:debian" "$work/base" >/dev/null 2>&1
for image in "${names[@]}"; do
	base=$name-base:debian
	[ "$image" != typescript ] || base=$name:node # which has npm
	since=$SECONDS
	if ! build "$name:$image" "images/$image" "$base" >"$work/log" 2>&1; then
		tail -n 40 "$work/log"
		echo "runners: images/$image does not build"
		exit 1
	fi
	echo "runners: built images/$image in $((SECONDS - since)) s"
done
GLOVEBOX_TEST_BINARY=$PWD/bin/glovebox go test -count=1 -timeout 15m -run TestRunnersDocker ./internal/cli
