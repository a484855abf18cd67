package kubernetes

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// A lookedAt is what a doctor finds in a fake cluster. Its zero value has all that
// sandboxes need.
type lookedAt struct {
	version  string
	denied   string // "verb resource" pairs that the server may not do, each between semicolons
	classes  http.HandlerFunc
	policies string // in JSON; "" is one that denies all traffic
	admit    http.HandlerFunc
	skew     time.Duration
	review   http.HandlerFunc
	quotas   string // in JSON
	claim    string // in JSON; "" is none
}

const denyAll = `{"metadata": {"name": "no-network"}, "spec": {"podSelector": {"matchLabels": {"glovebox.network": "none"}}, "policyTypes": ["Ingress", "Egress"]}}`

func refuses(code int, reason metav1.StatusReason, message string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) { status(w, code, reason, message) }
}

func (l *lookedAt) serve(t *testing.T, w http.ResponseWriter, r *http.Request) {
	text := func(text string) {
		w.Header().Set("Content-Type", "application/json")
		_, _ = io.WriteString(w, text)
	}
	switch r.Method + " " + r.URL.Path {
	case "GET /version":
		if l.version == "" {
			l.version = "v1.34.4"
		}
		text(fmt.Sprintf(`{"gitVersion": %q}`, l.version))
	case "POST /apis/authorization.k8s.io/v1/selfsubjectaccessreviews":
		if l.review != nil {
			l.review(w, r)
			return
		}
		var question struct {
			Kind string
			Spec struct {
				ResourceAttributes struct{ Namespace, Verb, Resource, Subresource string }
			}
		}
		if err := json.NewDecoder(r.Body).Decode(&question); err != nil || question.Kind != "SelfSubjectAccessReview" {
			t.Errorf("the question %+v: %v", question, err)
		}
		of := question.Spec.ResourceAttributes
		if of.Namespace != "boxes" {
			t.Errorf("asked about the namespace %q", of.Namespace)
		}
		what := strings.TrimSuffix(of.Verb+" "+of.Resource+"/"+of.Subresource, "/")
		text(fmt.Sprintf(`{"status": {"allowed": %v}}`, !strings.Contains(";"+l.denied+";", ";"+what+";")))
	case "POST /apis/authentication.k8s.io/v1/selfsubjectreviews":
		text(`{"status": {"userInfo": {"username": "system:serviceaccount:tools:glovebox"}}}`)
	case "GET /apis/node.k8s.io/v1/runtimeclasses/gvisor":
		if l.classes != nil {
			l.classes(w, r)
			return
		}
		text(`{"handler": "runsc"}`)
	case "GET /apis/networking.k8s.io/v1/namespaces/boxes/networkpolicies":
		switch l.policies {
		case "":
			text(`{"items": [` + denyAll + `]}`)
		case "forbidden":
			status(w, http.StatusForbidden, metav1.StatusReasonForbidden, "networkpolicies is forbidden")
		default:
			text(`{"items": [` + l.policies + `]}`)
		}
	case "GET /api/v1/namespaces/boxes/resourcequotas":
		if l.quotas == "forbidden" {
			status(w, http.StatusForbidden, metav1.StatusReasonForbidden, "resourcequotas is forbidden")
			return
		}
		text(`{"items": [` + l.quotas + `]}`)
	case "GET /api/v1/namespaces/boxes/persistentvolumeclaims/work":
		switch l.claim {
		case "":
			status(w, http.StatusNotFound, metav1.StatusReasonNotFound, `persistentvolumeclaims "work" not found`)
		case "forbidden":
			status(w, http.StatusForbidden, metav1.StatusReasonForbidden, "persistentvolumeclaims is forbidden")
		default:
			text(l.claim)
		}
	case "POST /api/v1/namespaces/boxes/pods":
		if r.URL.Query().Get("dryRun") != "All" {
			t.Error("a Pod is made")
		}
		if l.admit != nil {
			l.admit(w, r)
			return
		}
		var pod corev1.Pod
		if err := json.NewDecoder(r.Body).Decode(&pod); err != nil {
			t.Error(err)
		}
		pod.CreationTimestamp = metav1.NewTime(time.Now().Add(l.skew))
		answer(w, &pod)
	default:
		t.Errorf("the doctor asks for %s %s", r.Method, r.URL)
		status(w, http.StatusNotFound, metav1.StatusReasonNotFound, r.URL.Path)
	}
}

// quotaOf returns a quota. Hard, used and spec are fields in JSON.
func quotaOf(hard, used, spec string) string {
	return fmt.Sprintf(`{"metadata": {"name": "all"}, "spec": {%s}, "status": {"hard": {%s}, "used": {%s}}}`, spec, hard, used)
}

// TestDoctorCountsRoom: a quota that has room is no finding, and the least room counts.
func TestDoctorCountsRoom(t *testing.T) {
	const small = `"limits.memory": "1Gi"`
	for _, test := range []struct{ name, quotas, want string }{
		{"the least", quotaOf(`"limits.memory": "8Gi", "limits.cpu": "100", "limits.ephemeral-storage": "300Mi", "count/pods": "9", "secrets": "1"`, `"limits.memory": "1Gi", "secrets": "1"`, ""),
			"room for 2 more with the default limits: all has 300Mi of limits.ephemeral-storage left, and a sandbox takes 128Mi"},
		{"requests", quotaOf(`"memory": "160Mi", "requests.cpu": "10"`, `"memory": "32Mi"`, ""), "room for 2 more with the default limits: all has 128Mi of memory left, and a sandbox takes 64Mi"},
		{"overhead", quotaOf(`"limits.memory": "2Gi"`, ``, ""), "room for 2 more"},
		{"parts of a processor", quotaOf(`"requests.cpu": "300m"`, `"requests.cpu": "150m"`, ""), "room for 3 more"},
		{"other Pods", quotaOf(small, small, `"scopes": ["Terminating"]`) + "," + quotaOf(small, small, `"scopeSelector": {}`), "none limits sandboxes"},
		{"these Pods", quotaOf(`"pods": "1"`, ``, `"scopes": ["NotTerminating", "NotBestEffort"]`), "room for 1 more"},
		{"other objects", quotaOf(`"secrets": "1"`, `"secrets": "1"`, ""), "none limits sandboxes"},
		{"not counted yet", quotaOf(``, ``, ""), "none limits sandboxes"},
		{"none", "", "has none"},
	} {
		t.Run(test.name, func(t *testing.T) {
			overhead := func(w http.ResponseWriter, r *http.Request) {
				var pod corev1.Pod
				_ = json.NewDecoder(r.Body).Decode(&pod)
				pod.CreationTimestamp = metav1.Now()
				if test.name == "overhead" {
					pod.Spec.Overhead = corev1.ResourceList{corev1.ResourceMemory: resource.MustParse("256Mi")}
				}
				answer(w, &pod)
			}
			c := diagnose(t, &lookedAt{quotas: test.quotas, admit: overhead}, nil)["quota"]
			if !c.OK || c.Fix != "" || !strings.Contains(c.Detail, test.want) {
				t.Errorf("%+v, want %q", c, test.want)
			}
		})
	}
}

// diagnose returns the checks of a fake cluster, by name.
func diagnose(t *testing.T, found *lookedAt, change func(*Options)) map[string]Check {
	t.Helper()
	f := newFakeCluster(t)
	f.refuse = func(w http.ResponseWriter, r *http.Request) bool {
		found.serve(t, w, r)
		return true
	}
	checks := map[string]Check{}
	for _, c := range Doctor(t.Context(), f.open(t, change).opts, false) {
		if _, twice := checks[c.Name]; twice {
			t.Errorf("two checks are called %s", c.Name)
		}
		checks[c.Name] = c
	}
	return checks
}

// TestDoctorOfHealthy: nothing is wrong with a cluster that has all.
func TestDoctorOfHealthy(t *testing.T) {
	checks := diagnose(t, &lookedAt{}, func(o *Options) { o.Network = "/program" })
	for _, name := range []string{"cluster", "permissions", "runtime class", "network policy", "admission", "quota", "network", "transport"} {
		if c, ok := checks[name]; !ok || !c.OK || c.Fatal || c.Fix != "" || c.Manifest != "" || c.Detail == "" {
			t.Errorf("%s: %+v", name, c)
		}
	}
	if len(checks) != 8 {
		t.Errorf("%d checks, want 8: %v", len(checks), checks)
	}
	if c := checks["cluster"]; !strings.Contains(c.Detail, "v1.34.4") || !strings.Contains(c.Detail, "namespace boxes") {
		t.Errorf("the cluster is %q", c.Detail)
	}
	if c := checks["network policy"]; !strings.Contains(c.Detail, "not tried") || !strings.Contains(c.Detail, "--probe") {
		t.Errorf("without a probe, the network policy is %q", c.Detail)
	}
	if c := checks["runtime class"]; c.Detail != "gvisor, handler runsc" {
		t.Errorf("the runtime class is %q", c.Detail)
	}
}

// claimOf returns a claim in JSON.
func claimOf(mode, phase string) string {
	return fmt.Sprintf(`{"spec": {"accessModes": [%q], "storageClassName": "nfs"}, "status": {"phase": %q, "capacity": {"storage": "50Gi"}}}`, mode, phase)
}

// TestDoctorOfClaim: a claim that Pods can mount is no finding.
func TestDoctorOfClaim(t *testing.T) {
	for _, test := range []struct{ claim, want string }{
		{claimOf("ReadWriteMany", "Bound"), "work, of the storage class nfs, with a volume of 50Gi"},
		{claimOf("ReadWriteMany", "Pending"), "no volume yet"},
		{"forbidden", "may not look"},
	} {
		c := diagnose(t, &lookedAt{claim: test.claim}, func(o *Options) { o.WorkspaceClaim = "work" })["workspace claim"]
		if !c.OK || c.Fatal || c.Fix != "" || c.Manifest != "" || !strings.Contains(c.Detail, test.want) {
			t.Errorf("%s: %+v, want %q", test.claim, c, test.want)
		}
	}
}

// TestDoctorFinds has something wrong with the cluster. Each finding must say what it
// is, whether it prevents all sandboxes, and what mends it.
func TestDoctorFinds(t *testing.T) {
	forbidden := func(message string) http.HandlerFunc {
		return refuses(http.StatusForbidden, metav1.StatusReasonForbidden, `pods "x" is forbidden: `+message)
	}
	for _, test := range []struct {
		name                       string
		found                      lookedAt
		opts                       func(*Options)
		check, detail, fix, object string // object is a part of the manifest
		fatal                      bool
	}{
		{
			name: "old cluster", found: lookedAt{version: "v1.29.14-eks-1"},
			check: "cluster", detail: "v1.29.14-eks-1", fix: "Kubernetes 1.30",
		},
		{
			name: "permission missing", found: lookedAt{denied: "delete pods;get pods/exec"},
			check: "permissions", detail: "may not delete pods, get pods/exec", fix: "system:serviceaccount:tools:glovebox", fatal: true,
			object: `name: "system:serviceaccount:tools:glovebox"`,
		},
		{
			name: "reviews fail", found: lookedAt{review: refuses(http.StatusServiceUnavailable, metav1.StatusReasonServiceUnavailable, "later")},
			check: "permissions", detail: "does not answer", fix: "try again", fatal: true,
		},
		{
			name: "no runtime class", found: lookedAt{classes: refuses(http.StatusNotFound, metav1.StatusReasonNotFound, "no such class")},
			check: "runtime class", detail: "has no runtime class gvisor", fix: "kubectl get runtimeclass", fatal: true,
			object: "handler: runsc",
		},
		{
			name: "runtime classes cannot be read", found: lookedAt{classes: refuses(http.StatusTooManyRequests, metav1.StatusReasonTooManyRequests, "later")},
			check: "runtime class", detail: "later", fix: "try again",
		},
		{
			name: "shared kernel", opts: func(o *Options) { o.RuntimeClass, o.AllowContainer = "", true },
			check: "runtime class", detail: "share the kernel", fix: "kubernetes.runtime_class",
		},
		{
			name: "no policy", found: lookedAt{policies: strings.Replace(denyAll, "none", "other", 1)},
			check: "network policy", detail: "none denies", fix: "NetworkPolicy", object: "namespace: boxes",
		},
		{
			name: "policy of one direction", found: lookedAt{policies: strings.Replace(denyAll, `, "Egress"`, "", 1)},
			check: "network policy", detail: "none denies", fix: "NetworkPolicy", object: "policyTypes: [Ingress, Egress]",
		},
		{
			name: "policy that permits", found: lookedAt{policies: denyAll + `, {"spec": {"podSelector": {}, "policyTypes": ["Egress"], "egress": [{}]}}`},
			check: "network policy", detail: "permits traffic", fix: "leave out Pods",
		},
		{
			name: "no namespace", found: lookedAt{admit: refuses(http.StatusNotFound, metav1.StatusReasonNotFound, `namespaces "boxes" not found`)},
			check: "admission", detail: `namespaces "boxes" not found`, fix: "kubernetes.namespace", fatal: true, object: "name: boxes",
		},
		{
			name: "quota", found: lookedAt{admit: forbidden("exceeded quota: all, requested: limits.memory=1Gi, used: limits.memory=8Gi, limited: limits.memory=8Gi")},
			check: "admission", detail: "quota is used up", fix: "ResourceQuota", fatal: true,
		},
		{
			name: "limit range", found: lookedAt{admit: forbidden("maximum memory usage per Container is 256Mi, but limit is 1Gi")},
			check: "admission", detail: "limits its Pods", fix: "raise the maximum", fatal: true,
		},
		{
			name: "admission", found: lookedAt{admit: forbidden(`violates PodSecurity "ours:latest": seccompProfile`)},
			check: "admission", detail: "seccompProfile", fix: "restricted", fatal: true,
		},
		{
			name: "rejected credentials", found: lookedAt{admit: refuses(http.StatusUnauthorized, metav1.StatusReasonUnauthorized, "Unauthorized")},
			check: "admission", detail: "credentials", fix: "renew", fatal: true,
		},
		{
			name: "no room", found: lookedAt{quotas: quotaOf(`"limits.memory": "8Gi", "pods": "10"`, `"limits.memory": "7936Mi", "pods": "3"`, "")},
			check: "quota", detail: "all has 256Mi of limits.memory left, and a sandbox takes 512Mi", fix: "raise the ResourceQuota of namespace boxes",
		},
		{
			name: "no Pods left", found: lookedAt{quotas: quotaOf(`"limits.memory": "8Gi", "pods": "3"`, `"limits.memory": "1Gi", "pods": "4"`, "")},
			check: "quota", detail: "all has -1 of pods left", fix: "stop other sandboxes",
		},
		{
			name: "quotas cannot be read", found: lookedAt{quotas: "{"},
			check: "quota", detail: "invalid character",
		},
		{
			name: "no claim", opts: func(o *Options) { o.WorkspaceClaim = "work" }, fatal: true,
			check: "workspace claim", detail: "boxes has no claim work", fix: "kubernetes.workspace_claim", object: `name: "work"`,
		},
		{
			name: "claim of one node", opts: func(o *Options) { o.WorkspaceClaim = "work" }, found: lookedAt{claim: claimOf("ReadWriteOnce", "Bound")},
			check: "workspace claim", detail: "Pods of one node", fix: "ReadWriteMany",
		},
		{
			name: "lost claim", opts: func(o *Options) { o.WorkspaceClaim = "work" }, found: lookedAt{claim: claimOf("ReadWriteMany", "Lost")}, fatal: true,
			check: "workspace claim", detail: "has lost its volume", fix: "restore the volume",
		},
		{name: "clock behind", found: lookedAt{skew: -150 * time.Second}, check: "clock", detail: "differ by 2m3", fix: "NTP"},
		{name: "clock ahead", found: lookedAt{skew: 2 * time.Minute}, check: "clock", detail: "differ by", fix: "NTP"},
		{
			name: "no guest image", opts: func(o *Options) { o.GuestImage = "" },
			check: "configuration", detail: "kubernetes.guest_image", fix: "set it", fatal: true,
		},
		{
			name: "no boundary", opts: func(o *Options) { o.RuntimeClass = "" },
			check: "configuration", detail: "kubernetes.runtime_class", fix: "allow_container_boundary", fatal: true,
		},
	} {
		t.Run(test.name, func(t *testing.T) {
			checks := diagnose(t, &test.found, test.opts)
			c, ok := checks[test.check]
			if !ok || c.OK || c.Fatal != test.fatal || !strings.Contains(c.Detail, test.detail) || !strings.Contains(c.Fix, test.fix) {
				t.Errorf("%s: %+v, want fatal %v, detail %q and fix %q; all: %+v", test.check, c, test.fatal, test.detail, test.fix, checks)
			}
			if (c.Manifest != "") != (test.object != "") || !strings.Contains(c.Manifest, test.object) {
				t.Errorf("the manifest has no %q:\n%s", test.object, c.Manifest)
			}
			for word := range strings.FieldsSeq("NAMESPACE ACCOUNT CLASS HANDLER CLAIM") {
				if strings.Contains(c.Manifest, word) {
					t.Errorf("the manifest still has %s:\n%s", word, c.Manifest)
				}
			}
		})
	}
}

// TestDoctorMayNotLook: what the server may not look at is no finding.
func TestDoctorMayNotLook(t *testing.T) {
	checks := diagnose(t, &lookedAt{policies: "forbidden", quotas: "forbidden", classes: refuses(http.StatusForbidden, metav1.StatusReasonForbidden, "no")}, nil)
	for _, name := range []string{"network policy", "quota", "runtime class"} {
		if c := checks[name]; !c.OK || !strings.Contains(c.Detail, "may not look") {
			t.Errorf("%s: %+v", name, c)
		}
	}
}

// TestDoctorWithoutCluster: one check says why there is none.
func TestDoctorWithoutCluster(t *testing.T) {
	for name, opts := range map[string]Options{
		"no kubeconfig": {Kubeconfig: t.TempDir() + "/none", StateDir: t.TempDir()},
		"no server": func() Options {
			f := newFakeCluster(t)
			opts := f.open(t, nil).opts
			f.Close()
			return opts
		}(),
	} {
		checks := Doctor(t.Context(), opts, false)
		if len(checks) != 1 || checks[0].Name != "cluster" || !checks[0].Fatal || checks[0].Fix == "" {
			t.Errorf("%s: %+v", name, checks)
		}
	}
}
