#!/bin/bash
# Runs a command with 50 nodes of kwok, inside of test/kubernetes.sh:
#
#	test/kubernetes.sh test/kwok.sh go test ./internal/driver/kubernetes
#
# The nodes take 110 Pods each, as a kubelet does by default. kwok says of a Pod that it
# runs, and runs no program. It executes programs on this machine, as root, for an exec.
# Pods of the runtime class "kwok" go to these nodes. The program of kwok is
# .cache/kwok/kwok (see the Makefile).
#
# The command gets GLOVEBOX_TEST_KWOK: a kubeconfig with the rights of a server alone,
# those of docs/guides/kubernetes.md.
set -euo pipefail
repo=$(cd "$(dirname "$0")/.." && pwd)
run=$(dirname "$GLOVEBOX_TEST_KUBECONFIG")
namespace=$GLOVEBOX_TEST_NAMESPACE
log=$GLOVEBOX_TEST_LOGS/kwok.log
node=${GLOVEBOX_TEST_NODE% *}

{
	stages=$(go list -C "$repo/test/kwok" -m -f '{{.Dir}}' sigs.k8s.io/kwok)/kustomize/stage
	for stage in node/fast/node-initialize node/heartbeat-with-lease/node-heartbeat-with-lease pod/fast/pod-ready pod/fast/pod-delete; do
		cat "$stages/$stage.yaml"
		echo ---
	done
	cat <<-END
		apiVersion: kwok.x-k8s.io/v1alpha1
		kind: ClusterExec
		metadata: {name: all}
		spec: {execs: [{local: {}}]}
	END
} >"$run/kwok.yaml"
for i in $(seq 50); do
	cat <<-END
		---
		apiVersion: v1
		kind: Node
		metadata:
		  name: kwok-$i
		  labels: {type: kwok}
		  annotations: {kwok.x-k8s.io/node: fake}
		status:
		  allocatable: {cpu: 32, memory: 256Gi, ephemeral-storage: 1Ti, pods: 110}
		  capacity: {cpu: 32, memory: 256Gi, ephemeral-storage: 1Ti, pods: 110}
	END
done >"$run/nodes.yaml"
kubectl apply -f "$run/nodes.yaml" >"$log"
role=$(sed -n '/^kind: Role$/,/^```$/p' "$repo/docs/guides/kubernetes.md" | sed '/^```$/d; s/glovebox-sandboxes/'"$namespace/")
{
	kubectl apply -f - <<-END
		apiVersion: node.k8s.io/v1
		kind: RuntimeClass
		metadata: {name: kwok}
		handler: kwok
		scheduling: {nodeSelector: {type: kwok}}
		---
		apiVersion: rbac.authorization.k8s.io/v1
		$role
	END
	kubectl -n "$namespace" create serviceaccount glovebox
	kubectl -n "$namespace" create rolebinding glovebox --role glovebox --serviceaccount "$namespace:glovebox"
} >>"$log"
token=$(kubectl -n "$namespace" create token glovebox --duration 24h)
sed "s/user: {token: .*}/user: {token: $token}/" "$GLOVEBOX_TEST_KUBECONFIG" >"$run/kwok.kubeconfig"

"$repo/.cache/kwok/kwok" --kubeconfig "$GLOVEBOX_TEST_KUBECONFIG" --config "$run/kwok.yaml" \
	--manage-nodes-with-annotation-selector kwok.x-k8s.io/node=fake --node-lease-duration-seconds 40 \
	--node-ip "$node" --node-port 10247 --tls-cert-file "$run/pki/kubelet.crt" --tls-private-key-file "$run/pki/kubelet.key" \
	>>"$log" 2>&1 &
kwok=$!
kubectl wait --for=condition=Ready node -l type=kwok --timeout=60s >>"$log" 2>&1 || { cat "$log"; exit 1; }
echo "kwok: 50 nodes are ready"
status=0
GLOVEBOX_TEST_KWOK=$run/kwok.kubeconfig "$@" || status=$?
left=$(kubectl get pods --all-namespaces --output name | wc -l)
if [ "$left" != 0 ]; then
	echo "kwok: $left Pods are left over"
	kubectl -n "$namespace" delete pods --all --force --grace-period 0 >>"$log" 2>&1 || true
	status=1
fi
if [ $status != 0 ]; then tail -n 30 "$log"; fi
kill $kwok
wait $kwok || true
exit $status
