#!/bin/bash
# Builds the programs of test/kubernetes.sh, unless they are there, and prints their
# directory, which is below .cache/kubernetes. The first build takes minutes.
#
#	test/cluster/build.sh [--yielding]
#
# With --yielding, other programs of the machine go first.
set -euo pipefail
repo=$(cd "$(dirname "$0")/../.." && pwd)

if [ "${1:-}" = --yielding ]; then
	renice -n 19 $$ >/dev/null
	# The kernel may share the processors among sessions.
	(echo 19 >/proc/self/autogroup) 2>/dev/null || true
fi
cache=$repo/.cache/kubernetes
mkdir -p "$cache"
cache=$(cd "$cache" && pwd -P)
exec 9>"$cache/build.lock"
flock 9
key=$(cd "$repo/test/cluster" && cat go.mod go.sum kubernetes/*.go gvisor/* | sha256sum | cut -c1-16)
bin=$cache/bin-$key
if [ ! -d "$bin" ]; then
	echo "kubernetes: building Kubernetes and gVisor's shim, which takes minutes, once" >&2
	rm -rf "$cache"/bin-*
	mkdir "$bin.new"
	version=$(sed -n 's,^\tk8s.io/kubernetes \(v[^ ]*\).*,\1,p' "$repo/test/cluster/go.mod")
	version="-X k8s.io/component-base/version.gitVersion=$version -X k8s.io/client-go/pkg/version.gitVersion=$version"
	export CGO_ENABLED=0
	go build -C "$repo/test/cluster" -trimpath -ldflags "-s -w $version" -o "$bin.new/kubernetes" ./kubernetes >&2
	go build -C "$repo/test/cluster/gvisor" -trimpath -ldflags "-s -w" -o "$bin.new/gvisor" . >&2
	for name in etcd kube-apiserver kube-controller-manager kube-scheduler kube-proxy kubelet kubectl; do
		ln -s kubernetes "$bin.new/$name"
	done
	for name in runsc containerd-shim-runsc-v1; do
		ln -s gvisor "$bin.new/$name"
	done
	mv "$bin.new" "$bin"
fi
echo "$bin"
