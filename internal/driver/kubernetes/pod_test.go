package kubernetes

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/glovebox-dev/glovebox/internal/driver/container"
	"github.com/glovebox-dev/glovebox/internal/driver/kubernetes/podstate"
	"github.com/glovebox-dev/glovebox/internal/sandbox"
)

// testPod returns the Pod of a box.
func testPod(t *testing.T, attached bool) *corev1.Pod {
	t.Helper()
	spec := testSpec()
	spec.Detached = !attached
	plan, err := container.NewPlan(container.NewStateDir(t.TempDir(), Name), &container.Record{Spec: *spec, Disk: container.DiskMemory, OneUser: true}, abilities, nil)
	if err != nil {
		t.Fatal(err)
	}
	return podOf(&Options{RuntimeClass: "gvisor", GuestImage: "example.com/glovebox:1", PullSecrets: []string{"registry"}}, plan, spec.Image, attached)
}

// TestRestricted checks each rule of the level restricted of the Pod Security
// Standards, and what goes beyond it.
func TestRestricted(t *testing.T) {
	pod := testPod(t, false)
	spec := pod.Spec
	checkRestricted(t, pod)
	if path := spec.Containers[0].TerminationMessagePath; path != container.GuestDir+"/closed/log" {
		t.Errorf("programs may fill the node's disk at %s", path)
	}
	var disk int64
	for _, v := range spec.Volumes {
		if v.EmptyDir == nil || v.EmptyDir.SizeLimit.IsZero() {
			t.Errorf("volume %s is not a bounded emptyDir: %+v", v.Name, v)
			continue
		}
		if v.Name != guestVolume {
			disk += v.EmptyDir.SizeLimit.Value()
		}
	}
	if limits := sandbox.DefaultLimits(); disk > limits.DiskBytes+1<<20 {
		t.Errorf("the box may write %d bytes, of a limit of %d", disk, limits.DiskBytes)
	}
}

// checkRestricted checks the rules that hold for every Pod.
func checkRestricted(t *testing.T, pod *corev1.Pod) {
	t.Helper()
	spec := pod.Spec
	if spec.HostNetwork || spec.HostPID || spec.HostIPC {
		t.Error("the Pod has namespaces of its node")
	}
	if *spec.AutomountServiceAccountToken || *spec.EnableServiceLinks || spec.RestartPolicy != corev1.RestartPolicyNever || *spec.RuntimeClassName != "gvisor" {
		t.Errorf("token %v, service links %v, restart %v, runtime class %v",
			*spec.AutomountServiceAccountToken, *spec.EnableServiceLinks, spec.RestartPolicy, *spec.RuntimeClassName)
	}
	if !*spec.SecurityContext.RunAsNonRoot || *spec.SecurityContext.RunAsUser != sandbox.UserUID || spec.SecurityContext.SeccompProfile.Type != corev1.SeccompProfileTypeRuntimeDefault {
		t.Errorf("security context of the Pod: %+v", spec.SecurityContext)
	}
	want := &corev1.SecurityContext{
		AllowPrivilegeEscalation: new(bool), Privileged: new(bool), ReadOnlyRootFilesystem: pointer(true), RunAsNonRoot: pointer(true),
		Capabilities:   &corev1.Capabilities{Drop: []corev1.Capability{"ALL"}},
		SeccompProfile: &corev1.SeccompProfile{Type: corev1.SeccompProfileTypeRuntimeDefault},
	}
	for _, c := range append(spec.InitContainers, spec.Containers...) {
		if diff := cmp.Diff(want, c.SecurityContext); diff != "" {
			t.Errorf("%s: security context (-want +got):\n%s", c.Name, diff)
		}
		for _, name := range []corev1.ResourceName{corev1.ResourceCPU, corev1.ResourceMemory, corev1.ResourceEphemeralStorage} {
			if limit := c.Resources.Limits[name]; limit.IsZero() {
				t.Errorf("%s: no limit of %s", c.Name, name)
			}
		}
		for _, m := range c.VolumeMounts {
			if m.Name == guestVolume && c.Name == boxContainer && !m.ReadOnly {
				t.Errorf("the box may write the guest's program at %s", m.MountPath)
			}
		}
	}
}

// TestPodIsValid checks the forms that the API server demands.
func TestPodIsValid(t *testing.T) {
	pod := testPod(t, true)
	if bad := validation.IsDNS1123Label(pod.Name); len(bad) > 0 {
		t.Errorf("name %q: %q", pod.Name, bad)
	}
	for name, value := range pod.Labels {
		if bad := append(validation.IsQualifiedName(name), validation.IsValidLabelValue(value)...); len(bad) > 0 {
			t.Errorf("label %s=%q: %q", name, value, bad)
		}
	}
	for name := range pod.Annotations {
		if bad := validation.IsQualifiedName(name); len(bad) > 0 {
			t.Errorf("annotation %s: %q", name, bad)
		}
	}
	if _, err := container.DecodeRecord(pod.Annotations); err != nil {
		t.Errorf("the record is not to be had again: %v", err)
	}
	box := pod.Spec.Containers[0]
	if !box.Stdin || !box.StdinOnce || !slices.Contains(box.Args, "--leased") || slices.Contains(box.Args, "--stdio") {
		t.Errorf("an attached box: stdin %v, once %v, args %q", box.Stdin, box.StdinOnce, box.Args)
	}
	if box := testPod(t, false).Spec.Containers[0]; box.Stdin || slices.Contains(box.Args, "--leased") {
		t.Errorf("a detached box: stdin %v, args %q", box.Stdin, box.Args)
	}
	if text, err := json.Marshal(pod); err != nil || strings.Contains(string(text), "KUBERNETES_") {
		t.Errorf("%v: %s", err, text)
	}
}

func TestStateOf(t *testing.T) {
	pod := testPod(t, false)
	if s := podstate.Of(pod, time.Now()); s.Running || s.Source != "" {
		t.Errorf("a Pod without a status: %+v", s)
	}
	pod.Status.Phase = corev1.PodRunning
	pod.Status.ContainerStatuses = []corev1.ContainerStatus{{
		Name: boxContainer, State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{}},
		Resources: &corev1.ResourceRequirements{Limits: corev1.ResourceList{
			corev1.ResourceCPU: resource.MustParse("1500m"), corev1.ResourceMemory: resource.MustParse("512Mi"),
		}},
	}}
	if s := podstate.Of(pod, time.Now()); !s.Running || s.CPUs != 1.5 || s.MemoryBytes != 512<<20 || s.Source == "" {
		t.Errorf("a Pod that runs: %+v", s)
	}
}
