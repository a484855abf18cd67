#!/bin/bash
# Runs a command with a Kubernetes cluster of one node to test with:
#
#	test/kubernetes.sh go test ./internal/driver/kubernetes
#
# The programs of Kubernetes and gVisor's shim are built from Go modules once and
# kept in .cache/kubernetes; containerd, runc and the network plugins are Debian's.
# Everything runs in namespaces of its own (mounts, processes and network), with
# its files in one directory below /tmp. When the command ends, the cluster ends
# with it, and the script fails if pods, processes, mounts or control groups
# are left over. The command sees the cluster's network, and no other one.
# Images come from Debian's packages without a registry.
#
# Without root, or without what this needs, the command runs without a cluster:
# tests skip then, or fail if GLOVEBOX_REQUIRE names kubernetes.
#
# The command gets:
#
#	GLOVEBOX_TEST_KUBECONFIG      the file for an administrator
#	GLOVEBOX_TEST_NAMESPACE       a namespace with PodSecurity "restricted"
#	GLOVEBOX_TEST_RUNTIME_CLASSES "gvisor runc"
#	GLOVEBOX_TEST_GUEST_IMAGE     the guest program alone, as /glovebox-guest
#	GLOVEBOX_TEST_IMAGE           a Debian with Python
#	GLOVEBOX_TEST_SERVER_IMAGE    the server program alone, where the Dockerfile has it, if bin/glovebox is there
#	GLOVEBOX_TEST_NGINX_IMAGE     nginx with its libraries
#	GLOVEBOX_TEST_NODE            the address of the node, and its name
#
# and kubectl, ctr, the files of logs (GLOVEBOX_TEST_LOGS), and the process numbers of
# kube-apiserver, containerd and kubelet in files (GLOVEBOX_TEST_PIDS). Those three are
# started again after their end. GLOVEBOX_TEST_REGISTRIES is containerd's directory with the
# mirrors of registries. Pods ask the address of the node for names, where nothing
# answers unless the command does.
#
# With --policies before the command, GLOVEBOX_TEST_POLICIES is a program that enforces
# NetworkPolicies while it runs: see test/cluster/policies.
set -euo pipefail
repo=$(cd "$(dirname "$0")/.." && pwd)

without() {
	echo "kubernetes: $1; going on without a cluster"
	shift
	exec "$@"
}
policies=''
if [ "$1" = --policies ]; then
	policies=yes
	shift
fi
if [ "$(id -u)" != 0 ]; then
	without "root only starts a cluster" "$@"
fi
if ! "$repo/test/tools.sh" containerd runc iptables openssl conntrack busybox=busybox-static mmdebstrap \
	/usr/lib/cni/bridge=containernetworking-plugins ${policies:+ipset}; then
	without "programs are missing" "$@"
fi
"$repo/test/tools.sh" nginx=nginx-light || echo "kubernetes: several servers behind one address are not tried"
"$repo/test/images.sh" # which makes a Debian with Python

cache=$repo/.cache/kubernetes
mkdir -p "$cache"
cache=$(cd "$cache" && pwd -P)
exec 9>"$cache/lock"
flock 9 # one at a time
key=$(cd "$repo/test/cluster" && cat go.mod go.sum kubernetes/*.go gvisor/* | sha256sum | cut -c1-16)
bin=$cache/bin-$key
if [ ! -d "$bin" ]; then
	echo "kubernetes: building Kubernetes and gVisor's shim, which takes ten minutes, once"
	rm -rf "$cache"/bin-* "$bin.new"
	mkdir "$bin.new"
	version=$(sed -n 's,^\tk8s.io/kubernetes \(v[^ ]*\).*,\1,p' "$repo/test/cluster/go.mod")
	version="-X k8s.io/component-base/version.gitVersion=$version -X k8s.io/client-go/pkg/version.gitVersion=$version"
	export CGO_ENABLED=0
	go build -C "$repo/test/cluster" -trimpath -ldflags "-s -w $version" -o "$bin.new/kubernetes" ./kubernetes
	go build -C "$repo/test/cluster/gvisor" -trimpath -ldflags "-s -w" -o "$bin.new/gvisor" .
	for name in etcd kube-apiserver kube-controller-manager kube-scheduler kube-proxy kubelet kubectl; do
		ln -s kubernetes "$bin.new/$name"
	done
	for name in runsc containerd-shim-runsc-v1; do
		ln -s gvisor "$bin.new/$name"
	done
	mv "$bin.new" "$bin"
fi
if [ -n "$policies" ]; then
	key=$(cd "$repo/test/cluster/policies" && cat go.mod go.sum main.go | sha256sum | cut -c1-16)
	policies=$cache/policies-$key
	if [ ! -x "$policies" ]; then
		echo "kubernetes: building the program that enforces NetworkPolicies, which takes minutes, once"
		rm -f "$cache"/policies-*
		CGO_ENABLED=0 go build -C "$repo/test/cluster/policies" -trimpath -ldflags "-s -w" -o "$policies.new" .
		mv "$policies.new" "$policies"
	fi
	export GLOVEBOX_TEST_POLICIES=$policies
fi
if [ ! -x "$repo/internal/guestbin/glovebox-guest" ]; then
	make -C "$repo" guest
fi

run=$(mktemp -d /tmp/gbk.XXXXXX) # sockets need short paths
group=$(basename "$run")
# Control groups are no part of a namespace here: the cluster's are below one group.
groups() { find /sys/fs/cgroup -depth -type d -path "*/$group*" 2>/dev/null || true; }
if [ -e /sys/fs/cgroup/cgroup.controllers ]; then
	mkdir "/sys/fs/cgroup/$group"
	sed 's/[a-z]*/+&/g' /sys/fs/cgroup/cgroup.controllers >"/sys/fs/cgroup/$group/cgroup.subtree_control" || true
else
	for controller in /sys/fs/cgroup/*/; do
		mkdir "$controller$group"
		if [ -e "$controller$group/cpuset.cpus" ]; then # empty in a new group
			cat "$controller/cpuset.cpus" >"$controller$group/cpuset.cpus"
			cat "$controller/cpuset.mems" >"$controller$group/cpuset.mems"
		fi
	done
fi
status=0
inside=''
finish() {
	trap - EXIT
	if [ -n "$inside" ]; then
		kill -TERM "$inside" 2>/dev/null || true
		wait "$inside" 2>/dev/null || true
	fi
	for _ in $(seq 100); do # a process that was killed leaves its group a little later
		for dir in $(groups); do rmdir "$dir" 2>/dev/null || true; done
		[ -z "$(groups)" ] && break
		sleep 0.1
	done
	left=$(
		groups
		grep -F "$run" /proc/self/mountinfo || true
		for cmdline in /proc/[0-9]*/cmdline; do
			if { tr '\0' ' ' <"$cmdline"; } 2>/dev/null | grep -qF "$run"; then echo "process $cmdline"; fi
		done
	)
	if [ -n "$left" ]; then
		printf 'kubernetes: left over after the end of the cluster:\n%s\n' "$left"
		[ $status != 0 ] || status=1
	fi
	rm -rf "$run" || status=1
	exit $status
}
trap finish EXIT
trap 'status=130; exit' INT
trap 'status=143; exit' TERM
# The kernel ends every process of the namespace with the first one.
unshare --mount --net --pid --fork --kill-child --mount-proc "$repo/test/cluster/node.sh" "$run" "$bin" "$@" 9>&- &
inside=$!
wait $inside || status=$?
inside=''
