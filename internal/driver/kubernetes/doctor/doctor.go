// Package doctor checks whether a cluster has what sandboxes need, and writes the
// objects that it lacks.
//
// Only package kubernetes imports it. A [Cluster] lives for one call of [Run]. Nothing
// in the cluster is changed, except that a [Prober] runs two Pods for some seconds.
package doctor

import (
	"cmp"
	"context"
	"embed"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/glovebox-dev/glovebox/internal/driver/kubernetes/probe"
	"github.com/glovebox-dev/glovebox/internal/sandbox"
)

// A Check is one fact about a cluster that affects its boxes.
type Check struct {
	Name string
	// OK means that nothing is wrong. Fatal marks a check that is not OK and prevents
	// all boxes.
	OK, Fatal bool
	// Detail describes the finding and its consequences.
	Detail string
	// Fix is a command or a step that corrects it; empty if there is none.
	Fix string
	// Manifest is the YAML of objects that correct it, for kubectl apply; empty if there
	// are none.
	Manifest string
}

// Failed returns the check that err prevents all boxes.
func Failed(name string, err error) Check {
	c := noticed(name, err)
	c.Fatal = true
	return c
}

func noticed(name string, err error) Check {
	return Check{Name: name, Detail: err.Error(), Fix: sandbox.HintOf(err)}
}

// A Cluster is what is looked at. All fields must be set, except Configuration,
// RuntimeClass, Claim, Direct and Prober.
type Cluster struct {
	Host, Namespace string
	// RuntimeClass is that of sandboxes, or "".
	RuntimeClass string
	// Claim is the name of the claim of workspaces, or "".
	Claim string
	// Direct means that the server connects to the addresses of Pods.
	Direct bool
	// Labels are those of every sandbox's Pod.
	Labels map[string]string
	// Configuration is what is wrong with the configuration, or nil. The Pod of a
	// sandbox is not tried then.
	Configuration error
	// Object reads an object as JSON.
	Object func(ctx context.Context, path string, into any) error
	// Ask makes an object that is a question of spec, and reads the answer.
	Ask func(ctx context.Context, group, kind string, spec map[string]any, answer any) error
	// Pod returns the Pod of a new sandbox with the default limits. Its only container
	// besides init containers has the guest's image.
	Pod func() (*corev1.Pod, error)
	// Try has the API server check a Pod, which is not made, and returns the Pod as it
	// would be.
	Try func(ctx context.Context, pod *corev1.Pod) (*corev1.Pod, error)
	// Prober runs the Pods that try whether policies hold. If it is nil, that is not
	// tried.
	Prober Prober
	// Dial connects to an address, and ends the connection.
	Dial func(ctx context.Context, address string) error
	// Explain adds kinds and hints to the errors of the others.
	Explain func(ctx context.Context, err error) error
}

// oldest is the minor version of the oldest Kubernetes that the driver is made for.
const oldest = 30

// Run returns all checks. Objects of a namespace follow the namespace.
func Run(ctx context.Context, on *Cluster) []Check {
	var version struct{ GitVersion string }
	if err := on.Object(ctx, "/version", &version); err != nil {
		return []Check{Failed("cluster", on.Explain(ctx, err))}
	}
	c := Check{Name: "cluster", OK: true, Detail: fmt.Sprintf("Kubernetes %s at %s, namespace %s", version.GitVersion, on.Host, on.Namespace)}
	var major, minor int
	if _, err := fmt.Sscanf(version.GitVersion, "v%d.%d", &major, &minor); err == nil && major == 1 && minor < oldest {
		c.OK, c.Fix = false, fmt.Sprintf("upgrade it: the driver is made for Kubernetes 1.%d and later", oldest)
	}
	checks := []Check{c}
	if on.Configuration != nil {
		checks = append(checks, Failed("configuration", on.Configuration))
	} else {
		checks = append(checks, on.pod(ctx)...)
	}
	checks = append(checks, on.rights(ctx), on.class(ctx), on.policy(ctx))
	if on.Claim != "" {
		checks = append(checks, on.claim(ctx))
	}
	transport := on.transport()
	if on.Prober != nil && on.Configuration == nil {
		checks = append(checks, on.enforcement(ctx, &transport))
	}
	return append(checks, transport)
}

//go:embed manifests
var manifests embed.FS

// manifest returns a file of the directory manifests. Each pair of with is a word in
// capitals and what replaces it.
func (on *Cluster) manifest(name string, with ...string) string {
	text, _ := manifests.ReadFile("manifests/" + name + ".yaml") // which is in the program
	return strings.NewReplacer(append(with, "NAMESPACE", on.Namespace)...).Replace(string(text))
}

// needed are what the server must be allowed to do in its namespace: verbs, resource,
// and subresource.
var needed = [][3]string{
	{"create get list watch delete", "pods", ""},
	{"create get", "pods", "exec"},
	{"create get", "pods", "attach"},
}

// rights reports what the server may not do.
func (on *Cluster) rights(ctx context.Context) Check {
	var missing []string
	for _, r := range needed {
		for verb := range strings.FieldsSeq(r[0]) {
			var answer struct{ Status struct{ Allowed bool } }
			attributes := map[string]string{"namespace": on.Namespace, "verb": verb, "resource": r[1], "subresource": r[2]}
			err := on.Ask(ctx, "authorization.k8s.io/v1", "SelfSubjectAccessReview", map[string]any{"resourceAttributes": attributes}, &answer)
			if err != nil {
				return Failed("permissions", on.Explain(ctx, err))
			}
			if !answer.Status.Allowed {
				missing = append(missing, verb+" "+strings.TrimSuffix(r[1]+"/"+r[2], "/"))
			}
		}
	}
	if len(missing) == 0 {
		return Check{Name: "permissions", OK: true, Detail: "all that sandboxes need, in namespace " + on.Namespace}
	}
	slices.Sort(missing)
	c := Check{
		Name: "permissions", Fatal: true, Detail: "in namespace " + on.Namespace + " the server may not " + strings.Join(missing, ", "),
		Fix: "bind the Role of docs/guides/kubernetes.md to its account",
	}
	var answer struct {
		Status struct{ UserInfo struct{ Username string } }
	}
	if err := on.Ask(ctx, "authentication.k8s.io/v1", "SelfSubjectReview", nil, &answer); err != nil {
		return c // without a name there is nothing to bind
	}
	c.Fix += ", " + answer.Status.UserInfo.Username
	c.Manifest = on.manifest("role", "ACCOUNT", fmt.Sprintf("%q", answer.Status.UserInfo.Username))
	return c
}

// class reports whether the runtime class exists.
func (on *Cluster) class(ctx context.Context) Check {
	c := Check{Name: "runtime class", OK: true, Detail: on.RuntimeClass}
	if on.RuntimeClass == "" {
		c.OK, c.Detail = false, "none: sandboxes share the kernel of their node"
		c.Fix = "install gVisor or Kata Containers on the nodes, and name their class in kubernetes.runtime_class"
		return c
	}
	var class struct{ Handler string }
	err := on.Object(ctx, "/apis/node.k8s.io/v1/runtimeclasses/"+on.RuntimeClass, &class)
	switch {
	case apierrors.IsNotFound(err):
		c.OK, c.Fatal, c.Detail = false, true, "the cluster has no runtime class "+on.RuntimeClass
		c.Fix = "make it, if the nodes have gVisor or Kata Containers, or name another in kubernetes.runtime_class: kubectl get runtimeclass"
		handler := map[string]string{"gvisor": "runsc"}[on.RuntimeClass]
		c.Manifest = on.manifest("runtimeclass", "CLASS", on.RuntimeClass, "HANDLER", cmp.Or(handler, on.RuntimeClass))
	case apierrors.IsForbidden(err):
		c.Detail += "; the server may not look whether the cluster has it"
	case err != nil:
		return noticed(c.Name, on.Explain(ctx, err))
	default:
		c.Detail += ", handler " + class.Handler
	}
	return c
}

// policy reports whether the namespace denies the traffic of boxes. One policy denies
// it in the directions of its types, and the rules of all policies permit it.
func (on *Cluster) policy(ctx context.Context) Check {
	c := Check{Name: "network policy", OK: true, Detail: "all traffic of Pods of sandboxes is denied, if the cluster's network enforces policies"}
	if on.Prober == nil {
		c.Detail += ", which was not tried: glovebox doctor --probe does"
	}
	var list struct {
		Items []struct {
			Spec struct {
				PodSelector metav1.LabelSelector
				PolicyTypes []string
				Ingress     []ingress
				Egress      []any
			}
		}
	}
	err := on.Object(ctx, "/apis/networking.k8s.io/v1/namespaces/"+on.Namespace+"/networkpolicies", &list)
	if apierrors.IsForbidden(err) {
		c.Detail = "the server may not look whether one denies the traffic of sandboxes"
		return c
	} else if err != nil {
		return noticed(c.Name, on.Explain(ctx, err))
	}
	denied, served := map[string]bool{}, false
	for _, p := range list.Items {
		selector, err := metav1.LabelSelectorAsSelector(&p.Spec.PodSelector)
		if err != nil || !selector.Matches(labels.Set(on.Labels)) {
			continue
		}
		for _, direction := range p.Spec.PolicyTypes {
			denied[direction] = true
		}
		open := len(p.Spec.Egress) > 0
		for _, rule := range p.Spec.Ingress {
			own := on.Direct && rule.isTransport()
			served, open = served || own, open || !own
		}
		if open {
			c.OK, c.Detail = false, "a policy permits traffic of Pods of sandboxes, which need none"
			c.Fix = "have policies leave out Pods with the labels of docs/guides/kubernetes.md"
			return c
		}
	}
	if !denied["Ingress"] || !denied["Egress"] {
		c.OK, c.Detail = false, "none denies the traffic of Pods of sandboxes, for runtimes in which the guest cannot leave the Pod's network"
		c.Fix, c.Manifest = "make the NetworkPolicy of docs/guides/kubernetes.md", on.manifest("networkpolicy")
	} else if on.Direct && !served {
		c.OK, c.Detail = false, fmt.Sprintf("none permits the server TCP port %d of Pods of sandboxes, which kubernetes.transport: direct needs", probe.Port)
		c.Fix = "add the policy of docs/guides/kubernetes.md#transport"
	} else if on.Direct {
		c.Detail = strings.Replace(c.Detail, "all traffic of Pods of sandboxes", fmt.Sprintf("all traffic of Pods of sandboxes but that of servers to TCP port %d", probe.Port), 1)
	}
	return c
}

// An ingress is a rule of a NetworkPolicy.
type ingress struct {
	From  []any
	Ports []struct {
		Protocol string
		Port     intstr.IntOrString
		EndPort  int
	}
}

// isTransport reports whether a rule permits some Pods the connections of the transport
// "direct", and nothing else.
func (r *ingress) isTransport() bool {
	return len(r.From) > 0 && len(r.Ports) == 1 && cmp.Or(r.Ports[0].Protocol, "TCP") == "TCP" &&
		r.Ports[0].Port == intstr.FromInt(probe.Port) && r.Ports[0].EndPort == 0
}

// transport says how the server reaches sandboxes, which is not tried yet.
func (on *Cluster) transport() Check {
	if !on.Direct {
		return Check{Name: "transport", OK: true, Detail: "exec: all traffic between server and sandboxes goes through the API server"}
	}
	c := Check{Name: "transport", OK: true, Detail: fmt.Sprintf("direct: TLS to port %d of the addresses of Pods", probe.Port)}
	if on.Prober == nil {
		c.Detail += ", which was not tried: glovebox doctor --probe does"
	}
	return c
}

// Network returns the check whether sandboxes can have a network, as far as is known
// before they are made. err is why not, or nil.
func Network(err error) Check {
	if err != nil {
		return Check{Name: "network", Detail: "sandboxes can have none: " + err.Error(), Fix: sandbox.HintOf(err)}
	}
	return Check{
		Name: "network", OK: true,
		Detail: "sandboxes can have one if the runtime class has gVisor's network stack; others are refused with the reason",
	}
}

// maxSkew is how far the clocks of the server and the cluster may differ. Leases end
// at the server's time.
const maxSkew = 30 * time.Second

// pod tries the Pod of a sandbox, and with it admission, quotas and limits of the
// namespace. The call itself may take long.
func (on *Cluster) pod(ctx context.Context) []Check {
	sample, err := on.Pod()
	if err != nil {
		return []Check{Failed("admission", err)}
	}
	began := time.Now()
	made, err := on.Try(ctx, sample)
	if err != nil {
		c := Failed("admission", on.Explain(ctx, err))
		if apierrors.IsNotFound(err) {
			c.Manifest = on.manifest("namespace")
			return []Check{c}
		}
		return []Check{c, on.quota(ctx, sample)}
	}
	checks := []Check{
		{Name: "admission", OK: true, Detail: "the namespace admits a sandbox with the default limits, which meets the level restricted"},
		on.quota(ctx, made),
	}
	given := made.CreationTimestamp.Time
	if skew := max(began.Sub(given), time.Until(given)); skew > maxSkew {
		checks = append(checks, Check{
			Name: "clock", Detail: fmt.Sprintf("the clocks of the server and the cluster differ by %v", skew.Round(time.Second)), Fix: "set both by NTP",
		})
	}
	return checks
}
