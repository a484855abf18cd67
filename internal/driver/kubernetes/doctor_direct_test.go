package kubernetes

import (
	"fmt"
	"net"
	"net/http"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/glovebox-dev/glovebox/internal/driver/kubernetes/direct"
	"github.com/glovebox-dev/glovebox/internal/driver/kubernetes/probe"
)

// transports are the ways to guests, by name, as changes of a driver's options.
var transports = map[string]func(*Options){
	"exec":   func(*Options) {},
	"direct": func(o *Options) { o.Direct = true },
}

// serverRule returns a policy that permits Pods of sandboxes some traffic.
func serverRule(ingress string) string {
	return fmt.Sprintf(`{"spec": {"podSelector": {"matchLabels": {"glovebox.network": "none"}}, "policyTypes": ["Ingress"], "ingress": [%s]}}`, ingress)
}

// TestDoctorOfTransport: the doctor says which transport is used, and whether the policies
// fit it.
func TestDoctorOfTransport(t *testing.T) {
	const (
		from = `"from": [{"podSelector": {"matchLabels": {"app": "server"}}}]`
		port = `"ports": [{"protocol": "TCP", "port": 7353}]`
		both = "{" + from + ", " + port + "}"
	)
	for _, test := range []struct {
		name, transport, policies string
		ok                        bool
		detail, fix               string
	}{
		{"exec", "exec", denyAll, true, "all traffic of Pods of sandboxes is denied", ""},
		{"exec with a rule", "exec", denyAll + "," + serverRule(both), false, "permits traffic", "leave out"},
		{"direct", "direct", denyAll + "," + serverRule(both), true, "all traffic of Pods of sandboxes but that of servers to TCP port 7353 is denied", ""},
		{"direct without a protocol", "direct", denyAll + "," + serverRule("{"+from+`, "ports": [{"port": 7353}]}`), true, "but that of servers", ""},
		{"direct without a rule", "direct", denyAll, false, "none permits the server TCP port 7353", "#transport"},
		{"direct from everywhere", "direct", denyAll + "," + serverRule("{"+port+"}"), false, "permits traffic", "leave out"},
		{"direct to every port", "direct", denyAll + "," + serverRule("{"+from+"}"), false, "permits traffic", "leave out"},
		{"direct to a range of ports", "direct", denyAll + "," + serverRule("{"+from+`, "ports": [{"port": 7353, "endPort": 7400}]}`), false, "permits traffic", "leave out"},
		{"direct over UDP", "direct", denyAll + "," + serverRule("{"+from+`, "ports": [{"protocol": "UDP", "port": 7353}]}`), false, "permits traffic", "leave out"},
		{"direct with another rule", "direct", denyAll + "," + serverRule(both+`, {}`), false, "permits traffic", "leave out"},
	} {
		checks := diagnose(t, &lookedAt{policies: test.policies}, transports[test.transport])
		c := checks["network policy"]
		if c.OK != test.ok || !strings.Contains(c.Detail, test.detail) || !strings.Contains(c.Fix, test.fix) || (test.fix == "") != (c.Fix == "") {
			t.Errorf("%s: %+v, want ok %v, detail %q and fix %q", test.name, c, test.ok, test.detail, test.fix)
		}
		if c := checks["transport"]; !c.OK || !strings.HasPrefix(c.Detail, test.transport+": ") {
			t.Errorf("%s: the transport is %+v", test.name, c)
		}
	}
}

// TestDoctorTriesTransport: the doctor dials the port of guests in the Pod that listens.
func TestDoctorTriesTransport(t *testing.T) {
	if direct.Port != probe.Port {
		t.Fatalf("guests listen at port %d, and the probe at %d", direct.Port, probe.Port)
	}
	const ip = "127.87.3.5"
	for _, listens := range []bool{true, false} {
		if listens {
			l, err := net.Listen("tcp", net.JoinHostPort(ip, fmt.Sprint(probe.Port)))
			if err != nil {
				t.Skip("this machine has one loopback address:", err)
			}
			defer l.Close()
		}
		f := newFakeCluster(t)
		f.made = func(pod *corev1.Pod) {
			runs(int32(probe.Tried))(pod)
			pod.Status.PodIP = ip
			if !listens {
				pod.Status.PodIP = "127.87.3.6"
			}
		}
		f.refuse = func(w http.ResponseWriter, r *http.Request) bool {
			if isPods := strings.HasPrefix(r.URL.Path, "/api/v1/namespaces/boxes/pods") && r.URL.Query().Get("dryRun") == ""; isPods || strings.HasSuffix(r.URL.Path, "/events") {
				return false
			}
			(&lookedAt{}).serve(t, w, r)
			return true
		}
		checks := Doctor(t.Context(), f.open(t, func(o *Options) { o.Direct = true }).opts, true)
		i := slices.IndexFunc(checks, func(c Check) bool { return c.Name == "transport" })
		if c := checks[i]; c.OK != listens || c.Fatal == listens || strings.Contains(c.Detail, "which this machine reached") != listens || strings.Contains(c.Fix, "kubernetes.transport: exec") == listens {
			t.Errorf("with a Pod that listens %v: %+v", listens, c)
		}
		f.nothingLeft(t)
	}
}
