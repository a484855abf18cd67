package chart

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/net/dns/dnsmessage"
	"helm.sh/helm/v3/pkg/action"
	"helm.sh/helm/v3/pkg/chart/loader"
	"helm.sh/helm/v3/pkg/cli"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"
)

const installed = `
image: {repository: localhost/glovebox, tag: test, pullPolicy: Never}
sandboxes: {runtimeClass: gvisor}
allowHosts: ["%[1]s"]
publicURL: http://%[1]s:30080
persistence: {size: 1Gi, storageClass: test}
service: {type: NodePort, nodePort: 30080}
resources: {requests: {cpu: 50m, memory: 64Mi}, limits: {memory: 1Gi}}
router: {image: localhost/nginx:test}
`

// installTime bounds what the cluster does at once, on a slow machine.
const installTime = 5 * time.Minute

// testCluster returns the cluster of test/kubernetes.sh, and the address of its node.
func testCluster(t *testing.T) (kubernetes.Interface, string) {
	t.Helper()
	config := os.Getenv("GLOVEBOX_TEST_KUBECONFIG")
	if config == "" {
		if slices.Contains(strings.Split(os.Getenv("GLOVEBOX_REQUIRE"), ","), "kubernetes") {
			t.Fatal("kubernetes is required, and there is no cluster: run this by test/kubernetes.sh")
		}
		t.Skip("there is no cluster: run this by test/kubernetes.sh")
	}
	if os.Getenv("GLOVEBOX_TEST_SERVER_IMAGE") == "" {
		t.Fatal("there is no image of the server: make build, before test/kubernetes.sh")
	}
	rest, err := clientcmd.BuildConfigFromFlags("", config)
	if err != nil {
		t.Fatal(err)
	}
	cluster, err := kubernetes.NewForConfig(rest)
	if err != nil {
		t.Fatal(err)
	}
	node, _, _ := strings.Cut(os.Getenv("GLOVEBOX_TEST_NODE"), " ")
	return cluster, node
}

// TestInstall installs the chart in a cluster, and runs code through the Service from
// outside. It then upgrades the release to two servers behind the router, which connect
// to the addresses of sandboxes, and uninstalls it. NetworkPolicies are enforced. Nothing
// is left.
func TestInstall(t *testing.T) {
	cluster, node := testCluster(t)
	volume(t, cluster, "test-0", "test", "1Gi")
	volume(t, cluster, "test-1", "test", "1Gi")
	answerNames(t, cluster, node)
	enforce(t)

	settings := cli.New()
	settings.KubeConfig = os.Getenv("GLOVEBOX_TEST_KUBECONFIG")
	settings.SetNamespace(namespace)
	var helm action.Configuration
	if err := helm.Init(settings.RESTClientGetter(), namespace, "secret", t.Logf); err != nil {
		t.Fatal(err)
	}
	loaded, err := loader.LoadDir(chartDir)
	if err != nil {
		t.Fatal(err)
	}
	values := fmt.Sprintf(installed, node)
	install := action.NewInstall(&helm)
	install.ReleaseName, install.Namespace, install.CreateNamespace = release, namespace, true
	install.Wait, install.Timeout = true, installTime
	t.Cleanup(func() { uninstall(t, cluster, &helm) })
	if _, err := install.RunWithContext(t.Context(), loaded, parse(t, values)); err != nil {
		logs(t, cluster)
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if t.Failed() {
			logs(t, cluster)
		}
	})

	token := releaseToken(t, cluster)
	box := client{address: fmt.Sprintf("http://%s:30080/mcp", node)}
	box.token = "a-token-that-nobody-has"
	if status, _ := box.call(t, "list_sandboxes", nil); status != http.StatusUnauthorized {
		t.Errorf("a wrong token: status %d", status)
	}
	box.token = token
	if text := box.run(t, map[string]any{"code": "print(6 * 7)"}); !strings.Contains(text, `\n42\n`) || !strings.Contains(text, "run_aa") {
		t.Fatalf("the first program: %s", text)
	}
	checkPods(t, cluster)
	if status := metrics(t, box); status != http.StatusOK {
		t.Errorf("the metrics: status %d", status)
	}
	checkFindings(t, "exec")

	// A person's sandbox outlives the upgrade, which starts the server again.
	alice := client{address: box.address, token: person(t, "box-glovebox-0", "alice")}
	kept := alice.create(t)
	if text := alice.run(t, map[string]any{"code": "x = 41", "sandbox_id": kept}); !strings.Contains(text, "run_aa") {
		t.Errorf("alice's program: %s", text)
	}
	servers := 2
	if os.Getenv("GLOVEBOX_TEST_NGINX_IMAGE") == "" {
		t.Log("nginx is not here: the upgrade keeps one server")
		servers = 1
	}
	values = strings.Replace(values, "runtimeClass: gvisor", "runtimeClass: gvisor, transport: direct", 1)
	upgrade := action.NewUpgrade(&helm)
	upgrade.Namespace, upgrade.Wait, upgrade.Timeout = namespace, true, installTime
	if _, err := upgrade.RunWithContext(t.Context(), release, loaded, parse(t, values+fmt.Sprintf("replicas: %d\npodAnnotations: {test: again}\n", servers))); err != nil {
		t.Fatal(err)
	}
	if releaseToken(t, cluster) != token {
		t.Error("the upgrade changed the token")
	}
	if text := alice.run(t, map[string]any{"code": "print(x + 1)", "sandbox_id": kept}); !strings.Contains(text, `\n42\n`) || !strings.Contains(text, "run_aa") {
		t.Errorf("alice's sandbox after the upgrade: %s", text)
	}
	checkFindings(t, "direct")
	if servers == 2 {
		bob := client{address: box.address, token: person(t, "box-glovebox-1", "bob")}
		if !strings.HasPrefix(bob.token, "gbx_ab.") {
			t.Errorf("a token of the second server is %s…", bob.token[:min(7, len(bob.token))])
		}
		if text := bob.run(t, map[string]any{"code": "print(6 * 7)"}); !strings.Contains(text, `\n42\n`) || !strings.Contains(text, "run_ab") {
			t.Errorf("bob's program: %s", text)
		}
	}
}

// TestApply applies the objects for users without Helm with kubectl.
func TestApply(t *testing.T) {
	cluster, _ := testCluster(t)
	volume(t, cluster, "test-apply", "", "10Gi")
	dir := t.TempDir()
	if err := os.CopyFS(dir, os.DirFS(kustomizeDir)); err != nil {
		t.Fatal(err)
	}
	const token = "a-token-of-the-operator"
	if err := os.WriteFile(filepath.Join(dir, "token"), []byte(token+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(dir, "kustomization.yaml")
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	text = bytes.Replace(text, []byte("newName: registry.example.com/glovebox\n  newTag: latest"), []byte("newName: localhost/glovebox\n  newTag: test"), 1)
	if err := os.WriteFile(file, text, 0o600); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), installTime)
		defer cancel()
		if out, err := exec.CommandContext(ctx, "kubectl", "delete", "-k", dir).CombinedOutput(); err != nil {
			t.Errorf("kubectl delete: %v\n%s", err, out)
		}
	})
	kubectl(t, "apply", "-k", dir)
	kubectl(t, "-n", "glovebox", "rollout", "status", "statefulset/glovebox", "--timeout", installTime.String())
	service, err := cluster.CoreV1().Services("glovebox").Get(t.Context(), "glovebox", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	box := client{address: fmt.Sprintf("http://%s:8080/mcp", service.Spec.ClusterIP), host: "glovebox.glovebox.svc", token: token}
	if text := box.run(t, map[string]any{"code": "print(6 * 7)"}); !strings.Contains(text, `\n42\n`) {
		t.Errorf("the program: %s", text)
	}
}

func kubectl(t *testing.T, args ...string) string {
	t.Helper()
	var stderr bytes.Buffer
	cmd := exec.CommandContext(t.Context(), "kubectl", args...)
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("kubectl %q: %v\n%s%s", args, err, out, stderr.String())
	}
	return string(out)
}

// tokens matches the token of a person.
var tokens = regexp.MustCompile(`gbx_[a-z2-7]{2}\.\S+`)

// person makes a token on a server.
func person(t *testing.T, server, name string) string {
	t.Helper()
	out := kubectl(t, "-n", namespace, "exec", server, "--", "glovebox", "token", "create", name)
	token := tokens.FindString(out)
	if token == "" {
		t.Fatalf("%s made no token: %s", server, out)
	}
	return token
}

func releaseToken(t *testing.T, cluster kubernetes.Interface) string {
	t.Helper()
	secret, err := cluster.CoreV1().Secrets(namespace).Get(t.Context(), "box-glovebox-token", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return string(secret.Data["token"])
}

// checkPods checks that sandboxes are where they should be.
func checkPods(t *testing.T, cluster kubernetes.Interface) {
	t.Helper()
	pods, err := cluster.CoreV1().Pods(namespace+"-sandboxes").List(t.Context(), metav1.ListOptions{LabelSelector: "glovebox.network"})
	if err != nil || len(pods.Items) == 0 {
		t.Errorf("no Pods of sandboxes: %v", err)
	}
}

// checkFindings checks what the doctor says in the Pod of a server with a transport.
func checkFindings(t *testing.T, transport string) {
	t.Helper()
	// The cluster has no registry, so the doctor's own sandbox has no image and fails.
	text, _ := exec.CommandContext(t.Context(), "kubectl", "-n", namespace, "exec", "box-glovebox-0", "--", "glovebox", "doctor", "--json", "--probe").Output()
	var checks []struct{ Name, Status, Detail, Manifest string }
	if err := json.Unmarshal(text, &checks); err != nil {
		t.Fatalf("glovebox doctor: %v\n%s", err, text)
	}
	want := map[string]bool{"cluster": true, "permissions": true, "runtime class": true, "network policy": true, "admission": true, "quota": true, "policy enforcement": true, "transport": true}
	for _, c := range checks {
		if want[c.Name] {
			delete(want, c.Name)
			if c.Status != "ok" || c.Manifest != "" || c.Name == "transport" && (!strings.HasPrefix(c.Detail, transport+": ") || transport == "direct" && !strings.Contains(c.Detail, "which this machine reached")) {
				t.Errorf("glovebox doctor: %+v", c)
			}
		}
	}
	if len(want) > 0 {
		t.Errorf("glovebox doctor does not check %v:\n%s", want, text)
	}
}

// enforce enforces the cluster's NetworkPolicies until the test's end.
func enforce(t *testing.T) {
	t.Helper()
	program := os.Getenv("GLOVEBOX_TEST_POLICIES")
	if program == "" {
		t.Fatal("GLOVEBOX_TEST_POLICIES is not set: run this by test/kubernetes.sh --policies")
	}
	_, node, _ := strings.Cut(os.Getenv("GLOVEBOX_TEST_NODE"), " ")
	var log strings.Builder
	cmd := exec.Command(program, os.Getenv("GLOVEBOX_TEST_KUBECONFIG"), node)
	cmd.Stderr = &log
	out, err := cmd.StdoutPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Signal(os.Interrupt)
		if err := cmd.Wait(); err != nil {
			t.Errorf("the program that enforces policies: %v\n%s", err, log.String())
		}
	})
	if line, err := bufio.NewReader(out).ReadString('\n'); line != "ready\n" {
		t.Fatalf("the program that enforces policies: %q, %v", line, err)
	}
}

// volume makes a volume on the node, which is this machine.
func volume(t *testing.T, cluster kubernetes.Interface, name, class, size string) {
	t.Helper()
	dir := t.TempDir()
	if err := os.Chmod(dir, 0o777); err != nil { // the server is another user
		t.Fatal(err)
	}
	volumes := cluster.CoreV1().PersistentVolumes()
	_, err := volumes.Create(t.Context(), &corev1.PersistentVolume{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: corev1.PersistentVolumeSpec{
			StorageClassName: class, AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce},
			Capacity:               corev1.ResourceList{corev1.ResourceStorage: resource.MustParse(size)},
			PersistentVolumeSource: corev1.PersistentVolumeSource{HostPath: &corev1.HostPathVolumeSource{Path: dir}},
		},
	}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := volumes.Delete(context.Background(), name, metav1.DeleteOptions{}); err != nil {
			t.Error(err)
		}
	})
}

// uninstall removes the release, and waits until its namespaces are gone. Only the
// claims of volumes are left until then.
func uninstall(t *testing.T, cluster kubernetes.Interface, helm *action.Configuration) {
	remove := action.NewUninstall(helm)
	remove.Wait, remove.Timeout = true, installTime
	if _, err := remove.Run(release); err != nil {
		t.Error(err)
	}
	ctx, cancel := context.WithTimeout(context.Background(), installTime)
	defer cancel()
	left, err := exec.CommandContext(ctx, "kubectl", "-n", namespace, "get", "all,secrets,configmaps,ingresses,networkpolicies,roles,rolebindings,poddisruptionbudgets,persistentvolumeclaims",
		"-l", "app.kubernetes.io/instance="+release, "-o", "name").CombinedOutput()
	for line := range strings.Lines(string(left)) {
		if !strings.HasPrefix(line, "persistentvolumeclaim/state-box-glovebox-") && !strings.HasPrefix(line, "pod/") { // a Pod ends a little later
			t.Errorf("left over: %s (%v)", line, err)
		}
	}
	spaces := cluster.CoreV1().Namespaces()
	if err := spaces.Delete(ctx, namespace, metav1.DeleteOptions{}); err != nil { // helm made it, and leaves it
		t.Error(err)
	}
	for _, name := range []string{namespace, namespace + "-sandboxes"} {
		for {
			_, err := spaces.Get(ctx, name, metav1.GetOptions{})
			if apierrors.IsNotFound(err) {
				break
			}
			if ctx.Err() != nil {
				t.Fatalf("namespace %s is left over: %v", name, err)
			}
			time.Sleep(200 * time.Millisecond)
		}
	}
}

// logs shows why the servers do not run.
func logs(t *testing.T, cluster kubernetes.Interface) {
	t.Helper()
	ctx := context.Background()
	for _, space := range []string{namespace, namespace + "-sandboxes"} {
		events, err := cluster.CoreV1().Events(space).List(ctx, metav1.ListOptions{})
		if err != nil {
			t.Log(err)
			continue
		}
		for _, e := range events.Items {
			t.Logf("%s %s: %s", e.InvolvedObject.Name, e.Reason, e.Message)
		}
	}
	pods, err := cluster.CoreV1().Pods(namespace).List(ctx, metav1.ListOptions{})
	if err != nil {
		t.Log(err)
		return
	}
	for _, pod := range pods.Items {
		text, err := cluster.CoreV1().Pods(namespace).GetLogs(pod.Name, &corev1.PodLogOptions{}).DoRaw(ctx)
		t.Logf("%s: %v\n%s", pod.Name, err, text)
	}
}

// answerNames answers for the names of Services, which nothing else does in this
// cluster, at the address that Pods ask.
func answerNames(t *testing.T, cluster kubernetes.Interface, node string) {
	t.Helper()
	conn, err := net.ListenPacket("udp", net.JoinHostPort(node, "53"))
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan struct{})
	t.Cleanup(func() {
		conn.Close()
		<-done
	})
	go func() {
		defer close(done)
		buf := make([]byte, 1500)
		for {
			n, from, err := conn.ReadFrom(buf)
			if err != nil {
				return
			}
			if reply, err := nameReply(cluster, buf[:n]); err == nil {
				_, _ = conn.WriteTo(reply, from)
			}
		}
	}()
}

// nameReply returns the answer to a question about SERVICE.NAMESPACE.svc.cluster.local.
func nameReply(cluster kubernetes.Interface, query []byte) ([]byte, error) {
	var m dnsmessage.Message
	if err := m.Unpack(query); err != nil {
		return nil, err
	}
	m.Response, m.Additionals, m.RCode = true, nil, dnsmessage.RCodeNameError
	for _, q := range m.Questions {
		service, rest, _ := strings.Cut(q.Name.String(), ".")
		space, ok := strings.CutSuffix(rest, ".svc.cluster.local.")
		if !ok {
			continue
		}
		found, err := cluster.CoreV1().Services(space).Get(context.Background(), service, metav1.GetOptions{})
		if err != nil {
			continue
		}
		m.RCode = dnsmessage.RCodeSuccess
		if ip := net.ParseIP(found.Spec.ClusterIP).To4(); ip != nil && q.Type == dnsmessage.TypeA {
			m.Answers = append(m.Answers, dnsmessage.Resource{
				Header: dnsmessage.ResourceHeader{Name: q.Name, Class: dnsmessage.ClassINET, TTL: 5},
				Body:   &dnsmessage.AResource{A: [4]byte(ip)},
			})
		}
	}
	return m.Pack()
}

// A client calls tools of a server.
type client struct {
	address, token string
	host           string // in the header Host; "" is that of address
}

// run runs a program, and returns the answer.
func (c client) run(t *testing.T, arguments map[string]any) string {
	t.Helper()
	arguments["language"], arguments["timeout_seconds"] = "python", 60
	if arguments["sandbox_id"] == nil {
		arguments["image"] = os.Getenv("GLOVEBOX_TEST_IMAGE")
	}
	status, text := c.call(t, "run_code", arguments)
	if status != http.StatusOK {
		t.Fatalf("status %d: %s", status, text)
	}
	return text
}

// sandboxes matches the identifier of a sandbox.
var sandboxes = regexp.MustCompile(`sbx_[a-z2-7]{26}`)

// create makes a sandbox, and returns its identifier.
func (c client) create(t *testing.T) string {
	t.Helper()
	status, text := c.call(t, "create_sandbox", map[string]any{"image": os.Getenv("GLOVEBOX_TEST_IMAGE")})
	id := sandboxes.FindString(text)
	if status != http.StatusOK || id == "" {
		t.Fatalf("status %d: %s", status, text)
	}
	return id
}

// call calls a tool by MCP. The node leads to a new server a little after the cluster
// says that it is ready, and the router waits for no server.
func (c client) call(t *testing.T, tool string, arguments map[string]any) (int, string) {
	t.Helper()
	body, err := json.Marshal(map[string]any{"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": map[string]any{
		"name": tool, "arguments": arguments,
		"_meta": map[string]any{"io.modelcontextprotocol/protocolVersion": "2026-07-28", "io.modelcontextprotocol/clientCapabilities": map[string]any{}},
	}})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), installTime)
	defer cancel()
	for {
		req, err := http.NewRequestWithContext(ctx, http.MethodPost, c.address, bytes.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		req.Host = c.host
		for name, value := range map[string]string{
			"Authorization": "Bearer " + c.token, "Content-Type": "application/json", "Accept": "application/json, text/event-stream",
			"Mcp-Protocol-Version": "2026-07-28", "Mcp-Method": "tools/call", "Mcp-Name": tool,
		} {
			req.Header.Set(name, value)
		}
		status, text, err := answer(req)
		var refused *net.OpError
		switch {
		case errors.As(err, &refused) && refused.Op == "dial", status == http.StatusBadGateway:
			if ctx.Err() != nil {
				t.Fatalf("status %d, %v: %s", status, err, text)
			}
			time.Sleep(200 * time.Millisecond)
		case err != nil:
			t.Fatal(err)
		default:
			return status, text
		}
	}
}

// metrics returns the status of the page of metrics.
func metrics(t *testing.T, c client) int {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, strings.TrimSuffix(c.address, "/mcp")+"/metrics", nil)
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Authorization", "Bearer "+c.token)
	status, _, err := answer(req)
	if err != nil {
		t.Fatal(err)
	}
	return status
}

// answer sends a request on a connection of its own.
func answer(req *http.Request) (int, string, error) {
	req.Close = true
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return 0, "", err
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	return resp.StatusCode, string(text), err
}
