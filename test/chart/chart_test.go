// Package chart tests deploy/helm/glovebox with Helm's own library. It is a module of
// its own, so that the product does not depend on Helm.
package chart

import (
	"bufio"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"

	"helm.sh/helm/v3/pkg/action"
	"helm.sh/helm/v3/pkg/chart/loader"
	"helm.sh/helm/v3/pkg/chartutil"
	"helm.sh/helm/v3/pkg/lint"
	"helm.sh/helm/v3/pkg/lint/support"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	nodev1 "k8s.io/api/node/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	utilyaml "k8s.io/apimachinery/pkg/util/yaml"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/pod-security-admission/api"
	"k8s.io/pod-security-admission/policy"
	"sigs.k8s.io/kustomize/api/krusty"
	"sigs.k8s.io/kustomize/kyaml/filesys"
	"sigs.k8s.io/yaml"
)

const (
	chartDir     = "../../deploy/helm/glovebox"
	kustomizeDir = "../../deploy/kustomize"
)

var release, namespace = "box", "tools"

// The smallest values, and others that use everything.
const (
	least = `image: {repository: registry.example.com/glovebox}`
	most  = `
replicas: 40
firstShard: 3
image: {repository: registry.example.com/glovebox, digest: "sha256:0000000000000000000000000000000000000000000000000000000000000000"}
imagePullSecrets: [pull]
sandboxes: {runtimeClass: kata, createRuntimeClass: true, handler: kata, runtimeClassNodes: {kata: "yes"}, quota: {pods: 200, limits.memory: 400Gi}, pullSecrets: [pull], workspaceClaim: shared}
config: {sandbox: {count: 200}, server: {sessions: 5000}}
env: [{name: GLOVEBOX_LOG_LEVEL, value: info}]
publicURL: https://box.example.com
previewDomain: preview.example.com
allowHosts: [box.internal]
persistence: {size: 100Gi, storageClass: fast}
service: {type: LoadBalancer, annotations: {a: b}}
ingress: {enabled: true, className: nginx, annotations: {a: b}, tlsSecret: box-tls}
clients: [{namespaceSelector: {matchLabels: {kubernetes.io/metadata.name: agents}}}]
router: {image: registry.example.com/nginx:1.28}
serviceMonitor: {enabled: true, labels: {prometheus: main}}
nodeSelector: {kubernetes.io/os: linux}
tolerations: [{key: a, operator: Exists}]
affinity: {podAntiAffinity: {requiredDuringSchedulingIgnoredDuringExecution: [{topologyKey: kubernetes.io/hostname}]}}
podAnnotations: {a: b}
`
)

func parse(t testing.TB, text string) map[string]any {
	t.Helper()
	values := map[string]any{}
	if err := yaml.Unmarshal([]byte(text), &values); err != nil {
		t.Fatal(err)
	}
	return values
}

// render returns the objects that helm install would create.
func render(t testing.TB, values string) (string, error) {
	t.Helper()
	loaded, err := loader.LoadDir(chartDir)
	if err != nil {
		t.Fatal(err)
	}
	install := action.NewInstall(&action.Configuration{Log: t.Logf})
	install.ClientOnly, install.DryRun = true, true
	install.ReleaseName, install.Namespace = release, namespace
	install.KubeVersion = &chartutil.KubeVersion{Version: "v1.34.4", Major: "1", Minor: "34"}
	made, err := install.Run(loaded, parse(t, values))
	if err != nil {
		return "", err
	}
	return made.Manifest, nil
}

// A serviceMonitor is the part of the Prometheus operator's object that the chart uses.
type serviceMonitor struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata"`
	Spec              struct {
		JobLabel  string               `json:"jobLabel"`
		Selector  metav1.LabelSelector `json:"selector"`
		Endpoints []struct {
			Port, Path, Interval string
			Authorization        struct {
				Credentials corev1.SecretKeySelector `json:"credentials"`
			} `json:"authorization"`
		} `json:"endpoints"`
	} `json:"spec"`
}

// decode returns the objects of a manifest. A field that does not exist is an error.
func decode(t testing.TB, manifest string) []any {
	t.Helper()
	decoder := serializer.NewCodecFactory(scheme.Scheme, serializer.EnableStrict).UniversalDeserializer()
	reader := utilyaml.NewYAMLReader(bufio.NewReader(strings.NewReader(manifest)))
	var all []any
	for {
		text, err := reader.Read()
		if errors.Is(err, io.EOF) {
			return all
		}
		if err != nil {
			t.Fatal(err)
		}
		var kind metav1.TypeMeta
		if err := yaml.Unmarshal(text, &kind); err != nil {
			t.Fatalf("%v:\n%s", err, text)
		}
		switch kind.Kind {
		case "":
		case "ServiceMonitor":
			m := &serviceMonitor{}
			if err := yaml.UnmarshalStrict(text, m); err != nil {
				t.Fatalf("%v:\n%s", err, text)
			}
			all = append(all, m)
		default:
			object, _, err := decoder.Decode(text, nil, nil)
			if err != nil {
				t.Fatalf("%v:\n%s", err, text)
			}
			all = append(all, object)
		}
	}
}

// objects returns the objects of a kind.
func objects[T any](all []any) []*T {
	var of []*T
	for _, o := range all {
		if o, ok := o.(*T); ok {
			of = append(of, o)
		}
	}
	return of
}

// kinds returns the kinds and names of objects.
func kinds(t testing.TB, all []any) []string {
	t.Helper()
	var list []string
	for _, o := range all {
		meta, ok := o.(metav1.Object)
		if !ok {
			t.Fatalf("%T has no name", o)
		}
		name := strings.TrimPrefix(fmt.Sprintf("%T", o), "*")
		list = append(list, name[strings.LastIndex(name, ".")+1:]+" "+meta.GetNamespace()+"/"+meta.GetName())
	}
	slices.Sort(list)
	return list
}

// TestLint checks the chart as helm lint --strict does.
func TestLint(t *testing.T) {
	for _, values := range []string{least, most} {
		for _, m := range lint.All(chartDir, parse(t, values), namespace, true).Messages {
			if m.Severity >= support.WarningSev {
				t.Error(m)
			}
		}
	}
}

// TestObjects names all that the chart makes.
func TestObjects(t *testing.T) {
	manifest, err := render(t, least)
	if err != nil {
		t.Fatal(err)
	}
	want := []string{
		"ConfigMap tools/box-glovebox",
		"Namespace /tools-sandboxes",
		"NetworkPolicy tools-sandboxes/box-glovebox-sandboxes",
		"NetworkPolicy tools/box-glovebox",
		"PodDisruptionBudget tools/box-glovebox",
		"Role tools-sandboxes/box-glovebox",
		"RoleBinding tools-sandboxes/box-glovebox",
		"Secret tools/box-glovebox-token",
		"Service tools/box-glovebox",
		"Service tools/box-glovebox-servers",
		"ServiceAccount tools/box-glovebox",
		"StatefulSet tools/box-glovebox",
	}
	if got := kinds(t, decode(t, manifest)); !slices.Equal(got, want) {
		t.Errorf("got  %q\nwant %q", got, want)
	}
	manifest, err = render(t, most)
	if err != nil {
		t.Fatal(err)
	}
	got := kinds(t, decode(t, manifest))
	for _, name := range []string{
		"Deployment tools/box-glovebox-router", "Ingress tools/box-glovebox", "ResourceQuota tools-sandboxes/box-glovebox", "RuntimeClass /kata",
		"serviceMonitor tools/box-glovebox", "Service tools/box-glovebox-3", "Service tools/box-glovebox-42", "PodDisruptionBudget tools/box-glovebox-router",
	} {
		if !slices.Contains(got, name) {
			t.Errorf("there is no %s in %q", name, got)
		}
	}
}

// TestRights checks that the server has the rights that it needs, in the namespace of
// sandboxes alone, and no others.
func TestRights(t *testing.T) {
	for _, values := range []string{least, most} {
		manifest, err := render(t, values)
		if err != nil {
			t.Fatal(err)
		}
		all := decode(t, manifest)
		checkRights(t, all, "tools-sandboxes")
	}
}

func checkRights(t *testing.T, all []any, sandboxes string) {
	t.Helper()
	if n := len(objects[rbacv1.ClusterRole](all)) + len(objects[rbacv1.ClusterRoleBinding](all)); n != 0 {
		t.Errorf("%d roles for the whole cluster", n)
	}
	roles := objects[rbacv1.Role](all)
	if len(roles) != 1 || roles[0].Namespace != sandboxes {
		t.Fatalf("roles %+v, want one in %s", roles, sandboxes)
	}
	var got []string
	for _, r := range roles[0].Rules {
		for _, resource := range r.Resources {
			got = append(got, strings.Join(r.APIGroups, ",")+"/"+resource+" "+strings.Join(r.Verbs, ","))
		}
	}
	want := []string{"/pods create,get,list,watch,delete", "/pods/exec create,get", "/pods/attach create,get", "/events list", "/resourcequotas list", "/persistentvolumeclaims get", "networking.k8s.io/networkpolicies list"}
	if !slices.Equal(got, want) {
		t.Errorf("rights %q, want %q", got, want)
	}
}

// TestDoctor checks the objects that glovebox doctor --fix prints: the cluster knows all
// of their fields, and the chart makes the same ones.
func TestDoctor(t *testing.T) {
	var text string
	files, err := filepath.Glob("../../internal/driver/kubernetes/doctor/manifests/*.yaml")
	if err != nil || len(files) == 0 {
		t.Fatal("there are no manifests:", err)
	}
	for _, file := range files {
		one, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		text += "---\n" + strings.NewReplacer("NAMESPACE", "tools-sandboxes", "ACCOUNT", "someone", "CLASS", "kata", "HANDLER", "kata").Replace(string(one))
	}
	doctors := decode(t, text)
	checkRights(t, doctors, "tools-sandboxes")
	manifest, err := render(t, most)
	if err != nil {
		t.Fatal(err)
	}
	charts := decode(t, manifest)
	for _, pair := range [][2]any{
		{objects[corev1.Namespace](doctors)[0].Labels["pod-security.kubernetes.io/enforce"], objects[corev1.Namespace](charts)[0].Labels["pod-security.kubernetes.io/enforce"]},
		{objects[nodev1.RuntimeClass](doctors)[0].Handler, objects[nodev1.RuntimeClass](charts)[0].Handler},
		{objects[rbacv1.RoleBinding](doctors)[0].RoleRef.Kind, objects[rbacv1.RoleBinding](charts)[0].RoleRef.Kind},
		{objects[networkingv1.NetworkPolicy](doctors)[0].Spec.PolicyTypes, objects[networkingv1.NetworkPolicy](charts)[0].Spec.PolicyTypes},
	} {
		if !reflect.DeepEqual(pair[0], pair[1]) {
			t.Errorf("the doctor has %v, the chart %v", pair[0], pair[1])
		}
	}
}

// TestConfig checks the configuration of the servers: no sandbox starts in a Pod if
// its processes must be limited.
func TestConfig(t *testing.T) {
	for _, values := range []string{least, most} {
		manifest, err := render(t, values)
		if err != nil {
			t.Fatal(err)
		}
		var config struct {
			Driver  string
			Sandbox struct {
				Allowed []string `json:"allow_unenforced"`
				Count   int
			}
			Kubernetes struct {
				Namespace string
				Class     string `json:"runtime_class"`
				Guest     string `json:"guest_image"`
				Claim     string `json:"workspace_claim"`
			}
		}
		for _, c := range objects[corev1.ConfigMap](decode(t, manifest)) {
			if text, ok := c.Data["config.yaml"]; ok {
				if err := yaml.Unmarshal([]byte(text), &config); err != nil {
					t.Fatal(err)
				}
			}
		}
		if config.Driver != "kubernetes" || !slices.Equal(config.Sandbox.Allowed, []string{"processes"}) ||
			config.Kubernetes.Namespace != "tools-sandboxes" || config.Kubernetes.Class == "" || !strings.HasPrefix(config.Kubernetes.Guest, "registry.example.com/glovebox") {
			t.Errorf("the configuration is %+v", config)
		}
		if (config.Kubernetes.Claim == "shared") != (values == most) {
			t.Errorf("the claim of workspaces is %q", config.Kubernetes.Claim)
		}
		if values == most && config.Sandbox.Count != 200 {
			t.Errorf("the value of config is lost: %+v", config)
		}
	}
}

// TestRestarts checks that routers and servers start again when their configuration
// changes, and otherwise do not.
func TestRestarts(t *testing.T) {
	sums := func(values string) map[string]string {
		manifest, err := render(t, values)
		if err != nil {
			t.Fatal(err)
		}
		list := map[string]string{}
		for name, pod := range pods(decode(t, manifest)) {
			list[name] = pod.Annotations["checksum/config"]
		}
		return list
	}
	before := sums(most)
	if before["server"] == "" || before["router"] == "" {
		t.Fatalf("checksums %q", before)
	}
	for values, want := range map[string][2]bool{ // whether server and router start again
		strings.Replace(most, "count: 200", "count: 201", 1):                 {true, false},
		strings.Replace(most, "replicas: 40", "replicas: 41", 1):             {false, true},
		strings.Replace(most, "storageClass: fast", "storageClass: slow", 1): {false, false},
		strings.Replace(most, "runtimeClass: kata", "runtimeClass: x", 1):    {true, false},
	} {
		after := sums(values)
		if got := [2]bool{after["server"] != before["server"], after["router"] != before["router"]}; got != want {
			t.Errorf("server and router start again: %v, want %v, for %s", got, want, values)
		}
	}
}

// pods returns the Pods that the chart's controllers make.
func pods(all []any) map[string]corev1.PodTemplateSpec {
	list := map[string]corev1.PodTemplateSpec{}
	for _, s := range objects[appsv1.StatefulSet](all) {
		list["server"] = s.Spec.Template
	}
	for _, d := range objects[appsv1.Deployment](all) {
		list["router"] = d.Spec.Template
	}
	return list
}

// TestConfined checks that all Pods meet the level "restricted".
func TestConfined(t *testing.T) {
	evaluator, err := policy.NewEvaluator(policy.DefaultChecks())
	if err != nil {
		t.Fatal(err)
	}
	level := api.LevelVersion{Level: api.LevelRestricted, Version: api.LatestVersion()}
	manifest, err := render(t, most)
	if err != nil {
		t.Fatal(err)
	}
	list := pods(decode(t, manifest))
	if len(list) != 2 {
		t.Fatalf("%d kinds of Pods, want server and router", len(list))
	}
	for name, pod := range list {
		if result := policy.AggregateCheckResults(evaluator.EvaluatePod(level, &pod.ObjectMeta, &pod.Spec)); !result.Allowed {
			t.Errorf("%s: %s", name, result.ForbiddenDetail())
		}
		for _, c := range pod.Spec.Containers {
			if !*c.SecurityContext.ReadOnlyRootFilesystem {
				t.Errorf("%s: the root is writable", name)
			}
		}
	}
	if token := list["router"].Spec.AutomountServiceAccountToken; token == nil || *token {
		t.Error("the router has a token of a service account")
	}
}

// TestServers checks the shard, the volume and the selectors of servers.
func TestServers(t *testing.T) {
	manifest, err := render(t, most)
	if err != nil {
		t.Fatal(err)
	}
	all := decode(t, manifest)
	set := objects[appsv1.StatefulSet](all)[0]
	if *set.Spec.Replicas != 40 || set.Spec.Ordinals.Start != 3 || len(set.Spec.VolumeClaimTemplates) != 1 {
		t.Errorf("StatefulSet %+v", set.Spec)
	}
	env := map[string]corev1.EnvVar{}
	for _, e := range set.Spec.Template.Spec.Containers[0].Env {
		env[e.Name] = e
	}
	if from := env["GLOVEBOX_SHARD"].ValueFrom; from == nil || from.FieldRef.FieldPath != "metadata.labels['apps.kubernetes.io/pod-index']" {
		t.Errorf("the shard is from %+v, want the ordinal", from)
	}
	if got := env["GLOVEBOX_PUBLIC_URL"].Value; got != "https://box.example.com" {
		t.Errorf("public URL %q", got)
	}
	for _, e := range env {
		if strings.Contains(e.Name, "TOKEN") && !strings.HasSuffix(e.Name, "_FILE") {
			t.Errorf("%s is in the environment", e.Name)
		}
	}
	servers := labels.Set(set.Spec.Template.Labels)
	routers := labels.Set(pods(all)["router"].Labels)
	for _, s := range objects[corev1.Service](all) {
		selector := labels.SelectorFromSet(s.Spec.Selector)
		switch {
		case s.Name == "box-glovebox":
			if !selector.Matches(routers) || selector.Matches(servers) {
				t.Errorf("clients get to %v, want the router alone", s.Spec.Selector)
			}
		case s.Name == "box-glovebox-servers":
			if !selector.Matches(servers) || selector.Matches(routers) {
				t.Errorf("%s selects %v", s.Name, s.Spec.Selector)
			}
		default:
			index := strings.TrimPrefix(s.Name, "box-glovebox-")
			if !selector.Matches(labels.Merge(servers, labels.Set{"apps.kubernetes.io/pod-index": index})) || selector.Matches(servers) {
				t.Errorf("%s selects %v", s.Name, s.Spec.Selector)
			}
		}
	}
}

// TestNetworkPolicies checks that all traffic of sandboxes is denied, and that of
// servers is not.
func TestNetworkPolicies(t *testing.T) {
	manifest, err := render(t, least)
	if err != nil {
		t.Fatal(err)
	}
	sandbox := labels.Set{"app.kubernetes.io/managed-by": "glovebox", "glovebox.network": "none"} // of the driver's Pods
	for _, p := range objects[networkingv1.NetworkPolicy](decode(t, manifest)) {
		selector, err := metav1.LabelSelectorAsSelector(&p.Spec.PodSelector)
		if err != nil {
			t.Fatal(err)
		}
		if p.Namespace == "tools-sandboxes" {
			if !selector.Matches(sandbox) || len(p.Spec.PolicyTypes) != 2 || len(p.Spec.Ingress)+len(p.Spec.Egress) != 0 {
				t.Errorf("the policy of sandboxes is %+v", p.Spec)
			}
		} else if slices.Contains(p.Spec.PolicyTypes, networkingv1.PolicyTypeEgress) {
			t.Error("servers cannot reach the API server")
		}
	}
}

// TestDirect checks that the transport "direct" permits the servers the port of guests,
// and nobody anything else.
func TestDirect(t *testing.T) {
	manifest, err := render(t, least+"\nsandboxes: {transport: direct}")
	if err != nil {
		t.Fatal(err)
	}
	made := decode(t, manifest)
	var found bool
	for _, p := range objects[networkingv1.NetworkPolicy](made) {
		if p.Namespace != "tools-sandboxes" {
			continue
		}
		found = true
		if len(p.Spec.PolicyTypes) != 2 || len(p.Spec.Egress) != 0 || len(p.Spec.Ingress) != 1 || len(p.Spec.Ingress[0].From) != 1 || len(p.Spec.Ingress[0].Ports) != 1 {
			t.Fatalf("the policy of sandboxes is %+v", p.Spec)
		}
		if port := p.Spec.Ingress[0].Ports[0]; *port.Protocol != corev1.ProtocolTCP || port.Port.IntValue() != 7353 || port.EndPort != nil {
			t.Errorf("the policy permits %+v", port)
		}
		from := p.Spec.Ingress[0].From[0]
		pods, err := metav1.LabelSelectorAsSelector(from.PodSelector)
		if err != nil {
			t.Fatal(err)
		}
		namespaces, err := metav1.LabelSelectorAsSelector(from.NamespaceSelector)
		if err != nil {
			t.Fatal(err)
		}
		for _, s := range objects[appsv1.StatefulSet](made) {
			if !pods.Matches(labels.Set(s.Spec.Template.Labels)) {
				t.Errorf("the policy does not select the servers, with %v", s.Spec.Template.Labels)
			}
		}
		if pods.Matches(labels.Set{"app.kubernetes.io/name": "glovebox", "app.kubernetes.io/instance": "box", "app.kubernetes.io/component": "router"}) {
			t.Error("the policy selects the router")
		}
		if !namespaces.Matches(labels.Set{"kubernetes.io/metadata.name": "tools"}) || namespaces.Matches(labels.Set{"kubernetes.io/metadata.name": "tools-sandboxes"}) || from.IPBlock != nil {
			t.Errorf("the policy permits %+v", from)
		}
	}
	if !found {
		t.Error("there is no policy of sandboxes")
	}
	if !strings.Contains(manifest, "transport: direct") {
		t.Error("the servers have another transport")
	}
}

// TestRefused checks that the schema refuses values that cannot work.
func TestRefused(t *testing.T) {
	for values, want := range map[string]string{
		``:                           "repository",
		least + "\nreplicaCount: 2":  "replicaCount",
		least + "\nreplicas: 0":      "replicas",
		least + "\nreplicas: 2":      "router",
		least + "\nfirstShard: 1024": "firstShard",
		least + "\nsandboxes: {runtimeClass: ''}":                    "sandboxes",
		least + "\nsandboxes: {transport: tls}":                      "transport",
		least + "\nsandboxes: {namespace: A_B}":                      "namespace",
		least + "\nconfig: {driver: docker}":                         "config",
		least + "\nconfig: {kubernetes: {}}":                         "config",
		least + "\npublicURL: box.example.com":                       "publicURL",
		least + "\ningress: {enabled: true, tlsSecret: x}":           "publicURL",
		least + "\npublicURL: https://a.b\ningress: {enabled: true}": "tlsSecret",
		least + "\nservice: {type: ExternalName}":                    "type",
		least + "\ntoken: {value: secret}":                           "value",
		"image: {repository: a, digest: latest}":                     "digest",
		least + "\nsandboxes: {namespace: tools}":                    "namespace of the release",
		least + "\nsandboxes: {quota: {pods: [1]}}":                  "quota",
		strings.Replace(most, "firstShard: 3", "firstShard: 985", 1): "shard above 1023",
	} {
		if _, err := render(t, values); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("values %q: %v, want an error about %s", values, err, want)
		}
	}
	for _, values := range []string{
		least + "\nsandboxes: {runtimeClass: '', allowContainerBoundary: true}",
		least + "\nsandboxes: {namespace: tools, createNamespace: false}",
		strings.Replace(most, "firstShard: 3", "firstShard: 984", 1),
	} {
		if _, err := render(t, values); err != nil {
			t.Errorf("values %q: %v", values, err)
		}
	}
}

// upstream matches the name of a server in the router's configuration.
var upstream = regexp.MustCompile(`box-glovebox-[0-9]+:8080`)

// TestRouter checks the marks of shards in the configuration of the router, and the
// whole with nginx itself.
func TestRouter(t *testing.T) {
	manifest, err := render(t, most)
	if err != nil {
		t.Fatal(err)
	}
	text := ""
	for _, c := range objects[corev1.ConfigMap](decode(t, manifest)) {
		text += c.Data["nginx.conf"]
	}
	for _, line := range []string{
		`"~^(ad|003|6164)$" glovebox_3;`, `"~^(a7|01f|6137)$" glovebox_31;`, `"~^(ba|020|6261)$" glovebox_32;`, `"~^(bk|02a|626b)$" glovebox_42;`,
		"upstream glovebox_42 { server box-glovebox-42:8080 max_fails=0; }", "    server box-glovebox-3:8080 max_fails=0;",
	} {
		if !strings.Contains(text, line) {
			t.Errorf("there is no %s", line)
		}
	}
	// The rules for requests are those of the example.
	example, err := os.ReadFile("../../deploy/nginx/shards.conf")
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(example)) {
		if line = strings.TrimSpace(line); strings.Contains(line, "$glovebox_") && !strings.Contains(text, line) {
			t.Errorf("deploy/nginx/shards.conf has %s, which the router has not", line)
		}
	}
	nginx, err := exec.LookPath("nginx")
	if err != nil {
		t.Skip("nginx is not here to check the whole")
	}
	dir := t.TempDir()
	file := filepath.Join(dir, "nginx.conf")
	text = strings.ReplaceAll(upstream.ReplaceAllString(text, "127.0.0.1:8080"), "/tmp/", dir+"/")
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	if out, err := exec.Command(nginx, "-t", "-c", file).CombinedOutput(); err != nil {
		t.Errorf("nginx: %v\n%s", err, out)
	}
}

var update = flag.Bool("update", false, "write deploy/kustomize/glovebox.yaml anew")

// forKustomize are the values of the objects for users without Helm.
const forKustomize = `
image: {repository: glovebox-image, tag: latest}
token: {existingSecret: glovebox-token}
env: [{name: GLOVEBOX_KUBERNETES_GUEST_IMAGE, value: "glovebox-image:latest"}]
`

// ofHelm matches the lines that say who made an object.
var ofHelm = regexp.MustCompile(`(?m)^ *(app.kubernetes.io/managed-by: Helm|helm.sh/chart: .*|# Source: .*)\n|^# Source: .*\n`)

// TestKustomize checks the objects for users without Helm: they are those of the
// chart, and kustomize puts the image and the token into them.
func TestKustomize(t *testing.T) {
	release, namespace = "glovebox", "glovebox"
	t.Cleanup(func() { release, namespace = "box", "tools" })
	manifest, err := render(t, forKustomize)
	if err != nil {
		t.Fatal(err)
	}
	want := "# Made of the chart by: go test -C test/chart -run Kustomize -update\n" + ofHelm.ReplaceAllString(manifest, "")
	file := filepath.Join(kustomizeDir, "glovebox.yaml")
	if *update {
		if err := os.WriteFile(file, []byte(want), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if text, err := os.ReadFile(file); err != nil || string(text) != want {
		t.Fatalf("%s is not what the chart makes (%v): go test -C test/chart -run Kustomize -update", file, err)
	}

	dir := t.TempDir()
	if err := os.CopyFS(dir, os.DirFS(kustomizeDir)); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "token"), []byte("a-token-of-the-operator"), 0o600); err != nil {
		t.Fatal(err)
	}
	made, err := krusty.MakeKustomizer(krusty.MakeDefaultOptions()).Run(filesys.MakeFsOnDisk(), dir)
	if err != nil {
		t.Fatal(err)
	}
	text, err := made.AsYaml()
	if err != nil {
		t.Fatal(err)
	}
	all := decode(t, string(text))
	checkRights(t, all, "glovebox-sandboxes")
	if secrets := objects[corev1.Secret](all); len(secrets) != 1 || string(secrets[0].Data["token"]) != "a-token-of-the-operator" || secrets[0].Name != "glovebox-token" {
		t.Errorf("Secrets %+v", secrets)
	}
	server := pods(all)["server"].Spec.Containers[0]
	if server.Image != "registry.example.com/glovebox:latest" {
		t.Errorf("the server has the image %s", server.Image)
	}
	if i := slices.IndexFunc(server.Env, func(e corev1.EnvVar) bool { return e.Name == "GLOVEBOX_KUBERNETES_GUEST_IMAGE" }); i < 0 || server.Env[i].Value != server.Image {
		t.Errorf("the guest's image is not the server's: %+v", server.Env)
	}
}
