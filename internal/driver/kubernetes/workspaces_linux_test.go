package kubernetes

import (
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"

	"github.com/glovebox-dev/glovebox/internal/driver"
	"github.com/glovebox-dev/glovebox/internal/driver/container"
	"github.com/glovebox-dev/glovebox/internal/sandbox"
	"github.com/glovebox-dev/glovebox/internal/workspace"
)

// withClaim has the servers of workspaces serve a directory in place of the claim. They
// stay in the test's user namespace, where root may give files away.
func (n *fakeNode) withClaim(t *testing.T) string {
	t.Helper()
	claim := t.TempDir()
	n.change = func(args []string) []string {
		if i := slices.Index(args, "--workspaces"); i >= 0 {
			rest, ok := strings.CutPrefix(args[i+1], container.WorkspacesDir)
			if !ok {
				t.Errorf("workspaces at %q", args[i+1])
			}
			args[i+1] = claim + rest
			args = slices.DeleteFunc(args, func(a string) bool { return a == "--leave-network" })
		}
		return args
	}
	return claim
}

// openClaim opens a driver with a claim, and its workspaces.
func (f *fakeCluster) openClaim(t *testing.T) (*Driver, *workspace.Remote) {
	t.Helper()
	d := f.open(t, func(o *Options) { o.WorkspaceClaim = "shared" })
	dir, ok := d.KeepsWorkspaces()
	if !ok {
		t.Fatal("the driver keeps no workspaces")
	}
	r, err := workspace.OpenRemote(workspace.RemoteOptions{Secrets: t.TempDir(), Dir: dir, Dial: d.DialWorkspaces})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { r.Close() })
	return d, r
}

// TestClaim keeps a workspace in a claim. Its server is the only Pod that has the whole
// claim, and another one takes its place when it ends.
func TestClaim(t *testing.T) {
	f := newFakeCluster(t)
	n := f.withNode(t)
	claim := n.withClaim(t)
	d, r := f.openClaim(t)
	id := workspace.NewID()
	if _, err := r.Make(id); err != nil {
		t.Fatal(err)
	}
	w, err := r.Open(id)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := w.Write(t.Context(), "a/file", strings.NewReader("text")); err != nil {
		t.Fatal(err)
	}
	state, err := d.state.ID()
	if err != nil {
		t.Fatal(err)
	}
	dir := filepath.Join(claim, "workspaces", state, string(id))
	if text, err := os.ReadFile(filepath.Join(dir, "a/file")); err != nil || string(text) != "text" {
		t.Fatalf("the claim has %q, %v", text, err)
	}
	if refs, err := d.List(t.Context()); err != nil || len(refs) != 0 {
		t.Errorf("List has the server of workspaces: %q, %v", refs, err)
	}

	names := f.names()
	if len(names) != 1 {
		t.Fatalf("Pods %q, want the server of workspaces", names)
	}
	n.mu.Lock()
	run := n.runs[names[0]]
	n.mu.Unlock()
	run.cmd.Process.Kill()
	<-run.ended
	file, err := w.Read(t.Context(), "a/file")
	if err != nil {
		t.Fatalf("after the server of workspaces ended: %v", err)
	}
	text, err := io.ReadAll(file)
	if err := errors.Join(err, file.Close()); err != nil || string(text) != "text" {
		t.Errorf("after the server of workspaces ended: %q, %v", text, err)
	}

	purge, err := r.Remove(id)
	if err == nil {
		err = purge()
	}
	if err != nil {
		t.Fatal(err)
	}
	if _, err := os.Lstat(dir); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("a removed workspace is in the claim: %v", err)
	}
	if err := errors.Join(w.Close(), d.Close()); err != nil {
		t.Fatal(err)
	}
	f.nothingLeft(t)
}

// TestKeeperOfKilledServer: the Pod that a killed process left is removed when the next
// one needs it, and not if it still runs.
func TestKeeperOfKilledServer(t *testing.T) {
	f := newFakeCluster(t)
	d := f.open(t, nil)
	id, err := d.state.ID()
	if err != nil {
		t.Fatal(err)
	}
	a, err := d.conn.open()
	if err != nil {
		t.Fatal(err)
	}
	for name, phase := range map[string]corev1.PodPhase{"ended": corev1.PodSucceeded, "failed": corev1.PodFailed, "runs": corev1.PodRunning} {
		pod := testPod(t, true)
		pod.Name, pod.Status.Phase = name, phase
		pod.Labels[container.LabelState], pod.Labels[container.LabelRole] = id, container.RoleWorkspaces
		delete(pod.Labels, container.LabelSandbox)
		f.put("ADDED", pod)
	}
	if err := d.removeKeepers(t.Context(), a); err != nil {
		t.Error(err)
	}
	if names := f.names(); slices.Contains(names, "ended") || slices.Contains(names, "failed") || !slices.Contains(names, "runs") {
		t.Errorf("Pods %q", names)
	}
}

// TestClaimPods checks what Pods mount of a claim.
func TestClaimPods(t *testing.T) {
	state := container.NewStateDir(t.TempDir(), Name)
	id, err := state.ID()
	if err != nil {
		t.Fatal(err)
	}
	opts := &Options{RuntimeClass: "gvisor", GuestImage: "example.com/glovebox:1", WorkspaceClaim: "shared"}
	pod := func(rec *container.Record) *corev1.Pod {
		t.Helper()
		rec.Disk, rec.OneUser = container.DiskMemory, true
		plan, err := container.NewPlan(state, rec, abilities, nil)
		if err != nil {
			t.Fatal(err)
		}
		return podOf(opts, plan, "python:3-slim", true)
	}
	mounts := func(pod *corev1.Pod) (got []corev1.VolumeMount) {
		for _, m := range pod.Spec.Containers[0].VolumeMounts {
			if m.Name == "workspaces" {
				got = append(got, m)
			}
		}
		return got
	}
	spec := testSpec()
	if p := pod(&container.Record{Spec: *spec}); len(mounts(p)) != 0 || p.Spec.SecurityContext.FSGroup != nil {
		t.Errorf("a box without a workspace has the claim: %+v", mounts(p))
	}
	spec.Workspace = container.WorkspacesDir + "/one"
	spec.Mounts = []driver.Mount{{Path: "/mnt/two", Dir: container.WorkspacesDir + "/two", ReadOnly: true}}
	box := pod(&container.Record{Spec: *spec})
	want := []corev1.VolumeMount{
		{Name: "workspaces", MountPath: sandbox.WorkDir, SubPath: "workspaces/" + id + "/one"},
		{Name: "workspaces", MountPath: "/mnt/two", SubPath: "workspaces/" + id + "/two", ReadOnly: true},
	}
	if diff := cmp.Diff(want, mounts(box)); diff != "" {
		t.Errorf("a box's mounts (-want +got):\n%s", diff)
	}
	if *box.Spec.RuntimeClassName != "gvisor" || *box.Spec.SecurityContext.FSGroup != sandbox.UserUID {
		t.Errorf("a box has the runtime class %v and the group %v", *box.Spec.RuntimeClassName, *box.Spec.SecurityContext.FSGroup)
	}

	keeper := pod(container.ServerRecord("shared", opts.GuestImage))
	if got := mounts(keeper); len(got) != 1 || got[0].MountPath != container.WorkspacesDir || got[0].SubPath != "" || got[0].ReadOnly {
		t.Errorf("the server of workspaces has %+v", got)
	}
	args := keeper.Spec.Containers[0].Args
	if i := slices.Index(args, "--workspaces"); i < 0 || args[i+1] != container.WorkspacesDir+"/workspaces/"+id {
		t.Errorf("the server of workspaces has the arguments %q", args)
	}
	// gVisor's kernel follows links that the server of workspaces must refuse.
	if keeper.Spec.RuntimeClassName != nil || keeper.Labels[LabelNetwork] != string(sandbox.NetworkNone) || keeper.Labels[container.LabelSandbox] != "" {
		t.Errorf("the server of workspaces has the runtime class %v and the labels %v", keeper.Spec.RuntimeClassName, keeper.Labels)
	}
	for _, p := range []*corev1.Pod{box, keeper} {
		claims := 0
		for _, v := range p.Spec.Volumes {
			if v.PersistentVolumeClaim != nil && v.PersistentVolumeClaim.ClaimName == "shared" {
				claims++
			}
		}
		if claims != 1 {
			t.Errorf("%d volumes of the claim", claims)
		}
		p.Spec.RuntimeClassName = box.Spec.RuntimeClassName
		p.Spec.Volumes = slices.DeleteFunc(p.Spec.Volumes, func(v corev1.Volume) bool { return v.PersistentVolumeClaim != nil })
		checkRestricted(t, p)
	}
}

// TestClaimRefuses: with a claim, a box has no directory of the server's machine, and
// without one no workspace at all.
func TestClaimRefuses(t *testing.T) {
	f := newFakeCluster(t)
	for claim, dirs := range map[string][]string{"": {"/srv", container.WorkspacesDir + "/one"}, "shared": {"/srv", container.WorkspacesDir + "/a/b", container.WorkspacesDir + "/.."}} {
		d := f.open(t, func(o *Options) { o.WorkspaceClaim = claim })
		if got := d.Info().Features; got.Workspace != (claim != "") || got.Mounts != (claim != "") || got.WorkspaceCopied == (claim != "") {
			t.Errorf("claim %q: %+v", claim, got)
		}
		for _, dir := range dirs {
			one, other := testSpec(), testSpec()
			one.Workspace = dir
			other.Mounts = []driver.Mount{{Path: "/mnt", Dir: dir}}
			for _, spec := range []*driver.Spec{one, other} {
				if _, err := d.Create(t.Context(), spec); sandbox.KindOf(err) != sandbox.Unsupported {
					t.Errorf("claim %q, workspace %q: %v", claim, dir, err)
				}
			}
		}
	}
	f.nothingLeft(t)
}
