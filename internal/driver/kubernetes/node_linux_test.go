package kubernetes

import (
	"context"
	"crypto/sha256"
	"errors"
	"io"
	"net/http"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/gorilla/websocket"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/glovebox-dev/glovebox/internal/driver"
	"github.com/glovebox-dev/glovebox/internal/driver/container"
	"github.com/glovebox-dev/glovebox/internal/driver/drivertest"
	"github.com/glovebox-dev/glovebox/internal/sandbox"
)

// A fakeNode runs the guests of the Pods of a cluster as processes of this machine,
// and serves their streams. It isolates nothing.
type fakeNode struct {
	t     *testing.T
	f     *fakeCluster
	guest string // the guest's program
	dir   string

	// change, if not nil, changes the guest's arguments.
	change func(args []string) []string

	mu   sync.Mutex
	runs map[string]*fakeRun // by the name of the Pod
	open []*websocket.Conn
	// refusals and ends count down the next programs that a starting node refuses to
	// execute, and whose streams it ends at once.
	refusals, ends int
	// order, if not nil, changes the arguments of a program that passes an order to listen
	// on, or answers it.
	order func(argv []string) (_ []string, answer string)
	work  sync.WaitGroup
}

type fakeRun struct {
	cmd   *exec.Cmd
	stdin io.WriteCloser
	ended chan struct{}
}

// withNode gives the cluster a node.
func (f *fakeCluster) withNode(t *testing.T) *fakeNode {
	t.Helper()
	dir, err := os.MkdirTemp("", "kn") // sockets need short paths
	if err != nil {
		t.Fatal(err)
	}
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	n := &fakeNode{t: t, f: f, guest: filepath.Join(dir, container.GuestName), dir: dir, runs: map[string]*fakeRun{}}
	if err := os.Symlink(self, n.guest); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		n.mu.Lock()
		for _, run := range n.runs {
			_ = syscall.Kill(-run.cmd.Process.Pid, syscall.SIGKILL) // with the guest below, as the end of a Pod does
		}
		n.mu.Unlock()
		n.work.Wait()
		os.RemoveAll(dir)
	})
	f.refuse = n.serve
	return n
}

// address returns the address of a Pod, which is one of this machine.
func address(pod string) string {
	h := sha256.Sum256([]byte(pod))
	return netip.AddrFrom4([4]byte{127, h[0] | 1, h[1], h[2] | 1}).String()
}

func (n *fakeNode) socket(pod string) string { return filepath.Join(n.dir, pod[len(pod)-8:]) }

// serve answers the requests that a node does, and has Pods that were created run.
func (n *fakeNode) serve(w http.ResponseWriter, r *http.Request) bool {
	name, verb, ok := strings.Cut(strings.TrimPrefix(r.URL.Path, "/api/v1/namespaces/boxes/pods/"), "/")
	switch {
	case ok && (verb == "exec" || verb == "attach"):
		n.stream(w, r, name, verb)
		return true
	case r.Method == http.MethodPost:
		n.f.create(w, r)
		for _, name := range n.f.names() {
			n.run(name)
		}
		return true
	case r.Method == http.MethodDelete:
		n.mu.Lock()
		run := n.runs[name]
		n.mu.Unlock()
		if run != nil {
			run.cmd.Process.Signal(syscall.SIGTERM)
			<-run.ended
		}
	}
	return false
}

// run starts the guest of a Pod, unless it was started.
func (n *fakeNode) run(name string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.runs[name] != nil {
		return
	}
	n.f.mu.Lock()
	pod := n.f.pods[name]
	n.f.mu.Unlock()
	if pod == nil {
		return // deleted before the node saw it
	}
	box := pod.Spec.Containers[0]
	args := slices.Clone(box.Args)
	if n.change != nil {
		args = n.change(args)
	}
	args = append(args, "--socket", filepath.Join(n.socket(name), "s"))
	run := &fakeRun{cmd: exec.Command(n.guest, args...), ended: make(chan struct{})}
	run.cmd.Env = append(os.Environ(), "KUBERNETES_SERVICE_HOST=10.0.0.1")
	run.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if box.Stdin {
		var err error
		if run.stdin, err = run.cmd.StdinPipe(); err != nil {
			n.t.Error(err)
			return
		}
	}
	if err := run.cmd.Start(); err != nil {
		n.t.Error(err)
		return
	}
	n.runs[name] = run
	n.work.Go(func() {
		n.f.change(name, func(p *corev1.Pod) {
			p.Status.Phase, p.Status.PodIP = corev1.PodRunning, address(name)
			p.Status.ContainerStatuses = []corev1.ContainerStatus{{
				Name: boxContainer, State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{}},
				Resources: &corev1.ResourceRequirements{Limits: corev1.ResourceList{
					corev1.ResourceCPU: resource.MustParse("1"), corev1.ResourceMemory: resource.MustParse("1Gi"),
				}},
			}}
		})
		err := run.cmd.Wait()
		close(run.ended)
		n.f.change(name, func(p *corev1.Pod) {
			p.Status.Phase = corev1.PodSucceeded
			if err != nil {
				p.Status.Phase = corev1.PodFailed
			}
			for i := range p.Status.ContainerStatuses {
				p.Status.ContainerStatuses[i].State = corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{}}
			}
		})
	})
}

// cut ends all streams, as the end of the API server does.
func (n *fakeNode) cut() {
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, conn := range n.open {
		conn.NetConn().Close()
	}
}

// stream serves a stream to a process, by version 5 of the protocol.
func (n *fakeNode) stream(w http.ResponseWriter, r *http.Request, name, verb string) {
	n.mu.Lock()
	run := n.runs[name]
	refuses := verb == "exec" && n.refusals > 0
	if refuses {
		n.refusals--
	}
	n.mu.Unlock()
	if refuses {
		status(w, http.StatusInternalServerError, "InternalError", "the container runtime is down")
		return
	}
	if run == nil {
		status(w, http.StatusNotFound, "NotFound", `pods "`+name+`" not found`)
		return
	}
	select {
	case <-run.ended:
		status(w, http.StatusInternalServerError, "InternalError", "container not running")
		return
	default:
	}
	upgrader := websocket.Upgrader{Subprotocols: []string{protocol}}
	conn, err := upgrader.Upgrade(w, r, nil)
	if err != nil {
		return
	}
	defer conn.Close()
	n.mu.Lock()
	n.open = append(n.open, conn)
	ends := verb == "exec" && n.ends > 0
	if ends {
		n.ends--
	}
	n.mu.Unlock()
	if ends {
		return
	}
	input := run.stdin
	if verb == "exec" {
		argv := r.URL.Query()["command"]
		if n.order != nil && argv[1] == "direct" {
			var answer string
			if argv, answer = n.order(argv); answer != "" {
				_ = conn.WriteMessage(websocket.BinaryMessage, append([]byte{channelStdout}, answer...))
				return
			}
		}
		cmd := exec.Command(n.guest, append(slices.Clone(argv[1:]), "--socket", filepath.Join(n.socket(name), "s"))...)
		var output, errors io.Reader
		if input, err = cmd.StdinPipe(); err == nil {
			output, err = cmd.StdoutPipe()
		}
		if err == nil {
			errors, err = cmd.StderrPipe()
		}
		if err == nil {
			err = cmd.Start()
		}
		if err != nil {
			n.t.Error(err)
			return
		}
		var writing sync.Mutex
		copyTo := func(channel byte, from io.Reader) {
			buf := make([]byte, 1000) // so that large data comes in many messages
			for {
				read, err := from.Read(buf)
				writing.Lock()
				if read > 0 {
					_ = conn.WriteMessage(websocket.BinaryMessage, append([]byte{channel}, buf[:read]...))
				}
				writing.Unlock()
				if err != nil {
					return
				}
			}
		}
		var copies sync.WaitGroup
		copies.Go(func() { copyTo(channelStdout, output) })
		copies.Go(func() { copyTo(channelStderr, errors) })
		n.work.Go(func() {
			copies.Wait()
			_ = cmd.Wait()
			writing.Lock()
			_ = conn.WriteMessage(websocket.BinaryMessage, append([]byte{channelStatus}, `{"status":"Success"}`...))
			writing.Unlock()
			conn.Close()
		})
	}
	defer input.Close() // as with stdinOnce
	for {
		_, message, err := conn.ReadMessage()
		if err != nil {
			return
		}
		if len(message) > 0 && message[0] == channelStdin {
			if _, err := input.Write(message[1:]); err != nil {
				return
			}
		}
	}
}

// unisolated is a spec for a node that isolates nothing.
func unisolated(detached bool) *driver.Spec {
	spec := testSpec()
	spec.AllowUnenforced = sandbox.ControlNames()
	spec.Detached = detached
	return spec
}

// TestBox makes boxes by the real guest, and uses and ends them.
func TestBox(t *testing.T) {
	for name, change := range transports {
		t.Run(name, func(t *testing.T) {
			f := newFakeCluster(t)
			f.withNode(t)
			d := f.open(t, change)
			for _, detached := range []bool{true, false} {
				b := drivertest.Launch(t, d, unisolated(detached))
				if r := b.MustRun(t, drivertest.Cmd{Shell: "cat | wc -c; env | grep -c ^KUBERNETES_; exit 3", Stdin: make([]byte, 1<<20)}); r.Stdout != "1048576\n0\n" || r.End.Code() != 3 {
					t.Errorf("detached %v: a run: %v", detached, r)
				}
				receipt, err := b.Receipt(t.Context())
				if err != nil || len(receipt) != len(sandbox.ControlNames()) {
					t.Errorf("Receipt: %v, %v", receipt, err)
				}
				other, err := d.Attach(t.Context(), b.Ref())
				if err != nil {
					t.Fatalf("Attach: %v", err)
				}
				drivertest.NewBox(t, other).Answers(t, "by a second connection")
				if err := b.Destroy(t.Context()); err != nil {
					t.Errorf("Destroy: %v", err)
				}
				if err := b.Client.Health(t.Context()); !driver.IsGone(err) {
					t.Errorf("a destroyed box answers %v, want that it is gone", err)
				}
			}
			f.nothingLeft(t)
		})
	}
}

// TestHolder: an attached box ends when its driver does, and a detached one does not.
func TestHolder(t *testing.T) {
	for name, change := range transports {
		t.Run(name, func(t *testing.T) {
			f := newFakeCluster(t)
			n := f.withNode(t)
			d := f.open(t, change)
			attached := drivertest.Launch(t, d, unisolated(false)).Ref()
			detached := drivertest.Launch(t, d, unisolated(true)).Ref()
			d.boxes.Release()
			n.mu.Lock()
			run := n.runs[podName(attached)]
			n.mu.Unlock()
			select {
			case <-run.ended:
			case <-time.After(time.Minute):
				t.Fatal("an attached box outlives its holder")
			}
			if _, err := d.Attach(t.Context(), attached); !driver.IsGone(err) {
				t.Errorf("Attach to the box that ended: %v", err)
			}
			b, err := d.Attach(t.Context(), detached)
			if err != nil {
				t.Fatalf("Attach to the detached box: %v", err)
			}
			drivertest.NewBox(t, b).Answers(t, "after its holder left")
		})
	}
}

// TestRelayEnds: a box is reached again after its connection broke, and is gone when
// its guest ended.
func TestRelayEnds(t *testing.T) {
	f := newFakeCluster(t)
	n := f.withNode(t)
	d := f.open(t, nil)
	b := drivertest.Launch(t, d, unisolated(true))
	// The API server restarts: its connections end.
	n.cut()
	deadline := time.Now().Add(time.Minute)
	for {
		err := b.Client.Health(t.Context())
		if err == nil {
			break
		}
		if driver.IsGone(err) || time.Now().After(deadline) {
			t.Fatalf("after the connection broke: %v", err)
		}
		time.Sleep(10 * time.Millisecond)
	}
	// Then its node starts again, which a caller does not see.
	n.mu.Lock()
	n.refusals, n.ends = 2, 2
	n.mu.Unlock()
	n.cut()
	again, err := d.Attach(t.Context(), b.Ref())
	if err != nil {
		t.Fatal(err)
	}
	conn, err := again.Dial(t.Context())
	if err != nil {
		t.Fatalf("Dial while the node starts again: %v", err)
	}
	conn.Close()
	n.mu.Lock()
	if n.refusals != 0 || n.ends != 0 {
		t.Errorf("%d refusals and %d ends of streams are left, want none", n.refusals, n.ends)
	}
	run := n.runs[podName(b.Ref())]
	n.mu.Unlock()
	run.cmd.Process.Signal(syscall.SIGTERM)
	<-run.ended
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	if _, err := b.Dial(ctx); !driver.IsGone(err) || errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("Dial of a box whose guest ended: %v", err)
	}
	if in, err := b.Box.(driver.Reporter).Incidents(ctx); err != nil || in.Alive {
		t.Errorf("Incidents: %+v, %v", in, err)
	}
}
