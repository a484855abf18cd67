#!/bin/bash
# Starts the node of test/kubernetes.sh, runs a command, and ends:
#
#	test/cluster/node.sh RUN BIN COMMAND...
#
# It is process 1 of namespaces of its own, so what it leaves running ends with it.
# RUN is the directory of the cluster's files, and BIN has the programs.
set -euo pipefail
repo=$(cd "$(dirname "$0")/../.." && pwd)
run=$1 bin=$2
shift 2
node=10.244.255.1
group=$(basename "$run")
trap 'exit 143' TERM INT
logs=$run/logs
mkdir "$logs"

# Containerd, kubelet and plugins write below /run and /var, whose names are compiled in.
mkdir "$run/var" "$run/var.work"
mount -t tmpfs tmpfs /run
mount -t overlay overlay -o "lowerdir=/var,upperdir=$run/var,workdir=$run/var.work" /var
export PATH=$bin:$PATH:/usr/sbin:/sbin TMPDIR=/tmp

# The node's address is that of a bridge without members, which needs no module.
ip link set lo up
ip link add node0 type bridge
ip address add $node/32 dev node0
ip link set node0 up
ip route add default dev node0

fail() {
	echo "kubernetes: $1"
	for log in "$logs"/*.log; do
		echo "--- $log"
		tail -n 15 "$log"
	done
	exit 1
}
await() { # SECONDS WHAT COMMAND...
	local end=$((SECONDS + $1)) what=$2
	shift 2
	until "$@" >"$logs/await.log" 2>&1; do
		if [ $SECONDS -ge $end ]; then fail "$what is not ready"; fi
		sleep 0.2
	done
}
begin=$SECONDS

# supervise starts a program again after its end, as a machine's init does. Tests find
# its process number in a file.
mkdir "$run/pids" "$run/registries"
supervise() { # PROGRAM ARGUMENTS...
	while :; do
		"$@" >>"$logs/$1.log" 2>&1 &
		echo $! >"$run/pids/$1.new"
		mv "$run/pids/$1.new" "$run/pids/$1"
		wait $! || true
		sleep 1
	done
}

# Keys: one authority, the API server's certificate, its certificate towards the
# kubelet, the kubelet's, and the key that signs tokens of service accounts.
pki=$run/pki
mkdir "$pki"
openssl req -x509 -newkey rsa:2048 -nodes -days 2 -subj /CN=test -keyout "$pki/ca.key" -out "$pki/ca.crt" 2>/dev/null
certificate() { # NAME SUBJECT NAMES
	openssl req -newkey rsa:2048 -nodes -subj "$2" -keyout "$pki/$1.key" -out "$pki/$1.csr" 2>/dev/null
	openssl x509 -req -in "$pki/$1.csr" -CA "$pki/ca.crt" -CAkey "$pki/ca.key" -CAcreateserial -days 2 \
		-extfile <(echo "subjectAltName=$3") -out "$pki/$1.crt" 2>/dev/null
}
certificate apiserver /CN=kube-apiserver "IP:127.0.0.1,IP:$node,IP:10.96.0.1,DNS:localhost,DNS:kubernetes,DNS:kubernetes.default.svc"
certificate client "/O=system:masters/CN=kube-apiserver" DNS:client
certificate kubelet "/O=system:nodes/CN=system:node:node" "DNS:node,IP:$node"
openssl genrsa -out "$pki/accounts.key" 2048 2>/dev/null
admin=$(openssl rand -hex 16) kubelet=$(openssl rand -hex 16)
cat >"$pki/tokens.csv" <<-END
	$admin,admin,admin,system:masters
	$kubelet,system:node:node,node,system:nodes
END
kubeconfig() { # FILE TOKEN
	cat >"$1" <<-END
		apiVersion: v1
		kind: Config
		clusters:
		- name: test
		  cluster: {server: "https://127.0.0.1:6443", certificate-authority-data: $(base64 -w0 "$pki/ca.crt")}
		users:
		- name: user
		  user: {token: $2}
		contexts:
		- name: test
		  context: {cluster: test, user: user, namespace: test-sandboxes}
		current-context: test
	END
}
kubeconfig "$run/kubeconfig" "$admin"
kubeconfig "$run/kubelet.kubeconfig" "$kubelet"
export KUBECONFIG=$run/kubeconfig

etcd --data-dir "$run/etcd" --unsafe-no-fsync --log-level warn \
	--listen-client-urls http://127.0.0.1:2379 --advertise-client-urls http://127.0.0.1:2379 \
	--listen-peer-urls http://127.0.0.1:2380 >"$logs/etcd.log" 2>&1 &
supervise kube-apiserver --etcd-servers http://127.0.0.1:2379 --secure-port 6443 --bind-address 0.0.0.0 \
	--advertise-address $node --endpoint-reconciler-type master-count --service-cluster-ip-range 10.96.0.0/16 \
	--authorization-mode Node,RBAC --anonymous-auth=false --token-auth-file "$pki/tokens.csv" --client-ca-file "$pki/ca.crt" \
	--tls-cert-file "$pki/apiserver.crt" --tls-private-key-file "$pki/apiserver.key" --cert-dir "$pki" \
	--service-account-issuer https://kubernetes.default.svc --service-account-key-file "$pki/accounts.key" \
	--service-account-signing-key-file "$pki/accounts.key" \
	--kubelet-client-certificate "$pki/client.crt" --kubelet-client-key "$pki/client.key" \
	--kubelet-preferred-address-types InternalIP &

mkdir "$run/cni"
cat >"$run/cni/10-test.conflist" <<-END
	{"cniVersion": "1.0.0", "name": "test", "plugins": [
	  {"type": "bridge", "bridge": "pods0", "isGateway": true, "ipMasq": true, "hairpinMode": true,
	   "ipam": {"type": "host-local", "ranges": [[{"subnet": "10.244.0.0/17"}]], "routes": [{"dst": "0.0.0.0/0"}]}},
	  {"type": "portmap", "capabilities": {"portMappings": true}},
	  {"type": "firewall"}]}
END
# On an ordinary machine gVisor's own shim and all of these settings but platform
# may be left out.
cat >"$run/runsc.toml" <<-END
	binary_name = "$bin/runsc"
	log_path = "$logs/shim-%ID%.log"
	[runsc_config]
	platform = "systrap"
END
cat >"$run/containerd.toml" <<-END
	version = 2
	root = "$run/containerd"
	[plugins."io.containerd.grpc.v1.cri"]
	restrict_oom_score_adj = true
	disable_apparmor = true
	sandbox_image = "localhost/pause:test"
	[plugins."io.containerd.grpc.v1.cri".registry]
	config_path = "$run/registries"
	[plugins."io.containerd.grpc.v1.cri".cni]
	bin_dir = "/usr/lib/cni"
	conf_dir = "$run/cni"
	[plugins."io.containerd.grpc.v1.cri".containerd]
	snapshotter = "overlayfs"
	[plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc]
	runtime_type = "io.containerd.runc.v2"
	[plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runsc]
	runtime_type = "io.containerd.runsc.v1"
	[plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runsc.options]
	TypeUrl = "io.containerd.runsc.v1.options"
	ConfigPath = "$run/runsc.toml"
END
supervise containerd --config "$run/containerd.toml" &
await 30 containerd ctr version

# Images: a layer in a tar file, and its configuration.
import() { # NAME LAYER ENTRYPOINT
	local dir=$run/image digest size config manifest
	rm -rf "$dir"
	mkdir -p "$dir/blobs/sha256"
	blob() { # FILE: moves it to its place, and sets digest and size
		digest=$(sha256sum "$1" | cut -d' ' -f1)
		size=$(stat -c %s "$1")
		mv "$1" "$dir/blobs/sha256/$digest"
	}
	ln "$2" "$dir/layer" 2>/dev/null || cp "$2" "$dir/layer"
	blob "$dir/layer"
	local layer=$digest layersize=$size
	echo "{\"architecture\":\"$(go env GOARCH)\",\"os\":\"linux\",\"config\":{\"Env\":[\"PATH=/usr/local/bin:/usr/bin:/bin\"],\"Entrypoint\":$3},\"rootfs\":{\"type\":\"layers\",\"diff_ids\":[\"sha256:$layer\"]}}" >"$dir/config"
	blob "$dir/config"
	config="{\"mediaType\":\"application/vnd.oci.image.config.v1+json\",\"digest\":\"sha256:$digest\",\"size\":$size}"
	echo "{\"schemaVersion\":2,\"mediaType\":\"application/vnd.oci.image.manifest.v1+json\",\"config\":$config,\"layers\":[{\"mediaType\":\"application/vnd.oci.image.layer.v1.tar\",\"digest\":\"sha256:$layer\",\"size\":$layersize}]}" >"$dir/manifest"
	blob "$dir/manifest"
	manifest="{\"mediaType\":\"application/vnd.oci.image.manifest.v1+json\",\"digest\":\"sha256:$digest\",\"size\":$size,\"annotations\":{\"io.containerd.image.name\":\"$1\"}}"
	echo "{\"schemaVersion\":2,\"manifests\":[$manifest]}" >"$dir/index.json"
	echo '{"imageLayoutVersion":"1.0.0"}' >"$dir/oci-layout"
	tar -C "$dir" -cf "$run/image.tar" oci-layout index.json blobs
	ctr -n k8s.io images import --no-unpack "$run/image.tar" >"$logs/import.log" 2>&1 || fail "$1 is not imported"
	rm -rf "$dir" "$run/image.tar"
}
program() { # NAME FILE PATH ENTRYPOINT: an image of one static program
	mkdir -p "$run/root/$(dirname "$3")"
	cp "$2" "$run/root/$3"
	tar -C "$run/root" --owner 0 --group 0 -cf "$run/layer.tar" "$3"
	import "$1" "$run/layer.tar" "$4"
	rm -rf "$run/root" "$run/layer.tar"
}
program localhost/pause:test "$(command -v busybox)" busybox '["/busybox","sleep","2147483647"]'
program localhost/glovebox-guest:test "$repo/internal/guestbin/glovebox-guest" glovebox-guest '["/glovebox-guest"]'
import localhost/glovebox-test:python3 "$repo/.cache/images/debian-bookworm-python3.tar" 'null'
if [ -x "$repo/bin/glovebox" ]; then
	program localhost/glovebox:test "$repo/bin/glovebox" usr/local/bin/glovebox '["/usr/local/bin/glovebox"]'
	export GLOVEBOX_TEST_SERVER_IMAGE=localhost/glovebox:test
fi
if nginx=$(command -v nginx); then # with its libraries
	for file in "$nginx" $(ldd "$nginx" | grep -o '/[^ ]*'); do
		mkdir -p "$run/root$(dirname "$file")"
		cp "$file" "$run/root$file"
	done
	mkdir -p "$run/root/usr/bin"
	ln -s "$nginx" "$run/root/usr/bin/nginx"
	tar -C "$run/root" --owner 0 --group 0 -cf "$run/layer.tar" .
	import localhost/nginx:test "$run/layer.tar" 'null'
	rm -rf "$run/root" "$run/layer.tar"
	export GLOVEBOX_TEST_NGINX_IMAGE=localhost/nginx:test
fi

await 60 "the API server" kubectl get --raw /readyz
kube-controller-manager --kubeconfig "$KUBECONFIG" --service-account-private-key-file "$pki/accounts.key" --root-ca-file "$pki/ca.crt" \
	--leader-elect=false --bind-address 127.0.0.1 --cert-dir "$pki" --flex-volume-plugin-dir "$run/plugins" >"$logs/controller-manager.log" 2>&1 &
kube-scheduler --kubeconfig "$KUBECONFIG" --leader-elect=false --bind-address 127.0.0.1 --cert-dir "$pki" >"$logs/scheduler.log" 2>&1 &
echo nameserver 127.0.0.1 >"$run/resolv.conf"
cat >"$run/kubelet.yaml" <<-END
	apiVersion: kubelet.config.k8s.io/v1beta1
	kind: KubeletConfiguration
	authentication: {anonymous: {enabled: false}, webhook: {enabled: true}, x509: {clientCAFile: $pki/ca.crt}}
	authorization: {mode: Webhook}
	tlsCertFile: $pki/kubelet.crt
	tlsPrivateKeyFile: $pki/kubelet.key
	containerRuntimeEndpoint: unix:///run/containerd/containerd.sock
	cgroupDriver: cgroupfs
	cgroupRoot: /$group
	failCgroupV1: false
	failSwapOn: false
	enforceNodeAllocatable: []
	oomScoreAdj: 0
	podLogsDir: /var/log/pods
	volumePluginDir: $run/plugins
	resolvConf: $run/resolv.conf
	clusterDNS: [$node]
	clusterDomain: cluster.local
	evictionHard: {memory.available: 100Mi, nodefs.available: 1%, imagefs.available: 1%}
	imageGCHighThresholdPercent: 100
	nodeStatusUpdateFrequency: 4s
	shutdownGracePeriod: 0s
END
supervise kubelet --config "$run/kubelet.yaml" --kubeconfig "$run/kubelet.kubeconfig" --root-dir "$run/kubelet" \
	--hostname-override node --node-ip $node &
kube-proxy --kubeconfig "$KUBECONFIG" --hostname-override node --proxy-mode iptables --cluster-cidr 10.244.0.0/17 \
	--conntrack-max-per-core 0 --conntrack-tcp-timeout-established 0 --conntrack-tcp-timeout-close-wait 0 \
	--healthz-bind-address 127.0.0.1:10256 >"$logs/proxy.log" 2>&1 &

kubectl apply -f - >"$logs/apply.log" 2>&1 <<-END || fail "objects are not applied"
	apiVersion: node.k8s.io/v1
	kind: RuntimeClass
	metadata: {name: gvisor}
	handler: runsc
	---
	apiVersion: node.k8s.io/v1
	kind: RuntimeClass
	metadata: {name: runc}
	handler: runc
	---
	apiVersion: v1
	kind: Namespace
	metadata:
	  name: test-sandboxes
	  labels: {pod-security.kubernetes.io/enforce: restricted}
END
await 60 "the node" kubectl wait --for=condition=Ready node/node --timeout=1s
await 60 "the service account" kubectl -n test-sandboxes get serviceaccount default
echo "kubernetes: the cluster is ready after $((SECONDS - begin)) s"

export GLOVEBOX_TEST_KUBECONFIG=$KUBECONFIG GLOVEBOX_TEST_NAMESPACE=test-sandboxes GLOVEBOX_TEST_RUNTIME_CLASSES="gvisor runc"
export GLOVEBOX_TEST_GUEST_IMAGE=localhost/glovebox-guest:test GLOVEBOX_TEST_IMAGE=localhost/glovebox-test:python3
export GLOVEBOX_TEST_NODE="$node node" GLOVEBOX_TEST_LOGS=$logs GLOVEBOX_TEST_PIDS=$run/pids GLOVEBOX_TEST_REGISTRIES=$run/registries
status=0
"$@" || status=$?
gone() { [ -z "$(kubectl get pods --all-namespaces --output name)" ]; }
end=$((SECONDS + 90))
until gone; do
	if [ $SECONDS -ge $end ]; then
		echo "kubernetes: pods are left over:"
		kubectl get pods --all-namespaces
		[ $status != 0 ] || status=1
		break
	fi
	sleep 0.5
done
if [ $status != 0 ] && [ -n "${GLOVEBOX_TEST_KEEP_LOGS:-}" ]; then
	cp -r "$logs" "$GLOVEBOX_TEST_KEEP_LOGS"
fi
exit $status
