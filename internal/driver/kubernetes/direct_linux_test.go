package kubernetes

import (
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
	corev1 "k8s.io/api/core/v1"

	"github.com/glovebox-dev/glovebox/internal/driver"
	"github.com/glovebox-dev/glovebox/internal/driver/drivertest"
	"github.com/glovebox-dev/glovebox/internal/driver/kubernetes/direct"
	"github.com/glovebox-dev/glovebox/internal/guestapi"
	"github.com/glovebox-dev/glovebox/internal/pinned"
	"github.com/glovebox-dev/glovebox/internal/sandbox"
)

// directStreams returns the descriptors of this process's streams to Pods' addresses.
func directStreams(t *testing.T) []int {
	t.Helper()
	entries, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	var found []int
	for _, e := range entries {
		var fd int
		if _, err := fmt.Sscan(e.Name(), &fd); err != nil {
			continue
		}
		if peer, err := unix.Getpeername(fd); err == nil {
			if in, ok := peer.(*unix.SockaddrInet4); ok && in.Port == direct.Port {
				found = append(found, fd)
			}
		}
	}
	return found
}

// cutDirect ends all streams to Pods' addresses, as the end of a network does.
func cutDirect(t *testing.T) {
	t.Helper()
	for _, fd := range directStreams(t) {
		_ = unix.Shutdown(fd, unix.SHUT_RDWR) // it may have ended
	}
}

// answersAgain waits until a box answers after its stream broke.
func answersAgain(t *testing.T, b *drivertest.Box) {
	t.Helper()
	for end := time.Now().Add(time.Minute); ; time.Sleep(10 * time.Millisecond) {
		err := b.Client.Health(t.Context())
		if err == nil {
			return
		}
		if driver.IsGone(err) || time.Now().After(end) {
			t.Fatalf("after the stream broke: %v", err)
		}
	}
}

// TestDirectEnds: the API server is not needed once a guest listens. A box is reached
// again after its stream broke, and is gone when its guest ended.
func TestDirectEnds(t *testing.T) {
	f := newFakeCluster(t)
	n := f.withNode(t)
	d := f.open(t, transports["direct"])
	b := drivertest.Launch(t, d, unisolated(true))
	if got := len(directStreams(t)); got != 1 {
		t.Errorf("%d streams to the Pod's address, want 1", got)
	}
	const refusals = 1000
	n.mu.Lock()
	n.refusals = refusals // of programs that the API server executes
	n.mu.Unlock()
	n.cut()
	b.Answers(t, "after the end of the API server's streams")
	cutDirect(t)
	answersAgain(t, b)
	n.mu.Lock()
	if n.refusals != refusals {
		t.Errorf("%d programs were to be executed by the API server", refusals-n.refusals)
	}
	n.refusals = 0
	run := n.runs[podName(b.Ref())]
	n.mu.Unlock()
	_ = run.cmd.Process.Signal(unix.SIGTERM)
	<-run.ended
	if _, err := b.Dial(t.Context()); !driver.IsGone(err) {
		t.Errorf("Dial of a box whose guest ended: %v", err)
	}
	if err := b.Destroy(t.Context()); err != nil {
		t.Error(err)
	}
	f.nothingLeft(t)
	if left := directStreams(t); len(left) > 0 {
		t.Errorf("%d streams to Pods' addresses are left", len(left))
	}
}

// TestDirectServers: the guest listens for the server that gave the newest order. The one
// before it keeps its stream, and gives an order of its own when it needs another.
func TestDirectServers(t *testing.T) {
	f := newFakeCluster(t)
	f.withNode(t)
	var dir string
	one := f.open(t, func(o *Options) { o.Direct, dir = true, o.StateDir })
	two := f.open(t, func(o *Options) { o.Direct, o.StateDir = true, dir })
	b := drivertest.Launch(t, one, unisolated(true))
	for range 3 {
		other, err := two.Attach(t.Context(), b.Ref())
		if err != nil {
			t.Fatalf("Attach by the second server: %v", err)
		}
		drivertest.NewBox(t, other).Answers(t, "at the second server")
		b.Answers(t, "at the first server, after the order of the second")
		cutDirect(t)
		answersAgain(t, b)
		two.boxes.Release()
	}
	if err := b.Destroy(t.Context()); err != nil {
		t.Error(err)
	}
}

// TestDirectFails: without the Pod's address, a box is not made. The error comes soon,
// and names what to do. No box is reached in another way.
func TestDirectFails(t *testing.T) {
	pretend := func([]string) ([]string, string) { // an address behind a firewall
		c, err := pinned.New("box")
		if err != nil {
			t.Fatal(err)
		}
		text, err := json.Marshal(&guestapi.DirectAnswer{Certificate: c.Certificate[0]})
		if err != nil {
			t.Fatal(err)
		}
		return nil, string(text) + "\n"
	}
	for _, test := range []struct {
		name         string
		order        func([]string) ([]string, string)
		taken        bool
		is           error
		detail, hint string
	}{
		{name: "not reached", order: pretend, is: direct.ErrNotReached, detail: "connection refused", hint: "permit it TCP port 7353 of them by a NetworkPolicy"},
		{name: "another certificate", order: pretend, taken: true, is: direct.ErrNotReached, detail: "does not answer this server", hint: "NetworkPolicy"},
		{name: "port taken", taken: true, is: direct.ErrRefused, detail: "address already in use", hint: "has taken port 7353"},
		{name: "older guest", is: direct.ErrRefused, detail: "unknown command", hint: "kubernetes.guest_image",
			order: func(argv []string) ([]string, string) { return []string{argv[0], "older"}, "" }},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			f := newFakeCluster(t)
			n := f.withNode(t)
			n.order = test.order
			d := f.open(t, transports["direct"])
			spec := unisolated(true)
			if test.taken {
				l, err := net.Listen("tcp", net.JoinHostPort(address(podName(spec.ID)), fmt.Sprint(direct.Port)))
				if err != nil {
					t.Fatal(err)
				}
				defer l.Close()
				go func() {
					for {
						conn, err := l.Accept()
						if err != nil {
							return
						}
						conn.Close()
					}
				}()
			}
			began := time.Now()
			_, err := d.Create(t.Context(), spec)
			if !errors.Is(err, test.is) || sandbox.KindOf(err) != sandbox.Unavailable || !strings.Contains(err.Error(), test.detail) || !strings.Contains(err.Error(), "kubernetes.transport") {
				t.Errorf("Create: %v", err)
			}
			if hint := sandbox.HintOf(err); !strings.Contains(hint, test.hint) || !strings.Contains(hint, "set kubernetes.transport: exec") && !strings.Contains(hint, "needs kubernetes.transport: exec") {
				t.Errorf("the hint is %q, want %q in it", hint, test.hint)
			}
			if took := time.Since(began); took > 45*time.Second {
				t.Errorf("Create failed after %v", took)
			}
			f.nothingLeft(t)
		})
	}
}

// TestDirectHostile: where the guest has left the Pod's network, a program of the box
// neither reaches the port of its guest nor gives it an order, and reads no memory of the
// process that has the key.
func TestDirectHostile(t *testing.T) {
	f := newFakeCluster(t)
	n := f.withNode(t)
	d := f.open(t, transports["direct"])
	b := drivertest.Launch(t, d, unisolated(true))
	if got := b.MustRun(t, drivertest.Cmd{Shell: "ls /sys/class/net >/dev/null; cut -d: -f1 /proc/net/dev | tail -n +3 | xargs"}).Stdout; got != "lo\n" {
		t.Skipf("this machine lets no guest leave the network: a box has %q", got)
	}
	n.mu.Lock()
	pid := n.runs[podName(b.Ref())].cmd.Process.Pid
	n.mu.Unlock()
	at := address(podName(b.Ref()))
	order := fmt.Sprintf(`{"address":"%s:%d","name":"box","client":""}`, at, direct.Port)
	for what, script := range map[string]string{
		"connects to the port":     fmt.Sprintf("bash -c 'exec 3<>/dev/tcp/%s/%d'", at, direct.Port),
		"gives an order":           fmt.Sprintf("echo '%s' | %s direct --socket %s | grep certificate", order, n.guest, filepath.Join(n.socket(podName(b.Ref())), "s")),
		"reads the key":            fmt.Sprintf("head -c 1 /proc/%d/mem || cat /proc/%[1]d/environ", pid),
		"takes the Pod's network":  fmt.Sprintf("nsenter --net=/proc/%d/ns/net true", pid),
		"has a descriptor of it":   fmt.Sprintf("readlink /proc/%d/fd/*", pid),
		"traces the guest's maker": fmt.Sprintf("cat /proc/%d/stack /proc/%[1]d/maps", pid),
	} {
		if r := b.MustRun(t, drivertest.Cmd{Shell: script}); r.End.Code() == 0 {
			t.Errorf("a program %s: %v", what, r)
		}
	}
	b.Answers(t, "after the attacks")
}

// TestDirectPodEnds: a call does not wait for the guest of a Pod that the cluster reports as
// ended, and the box is gone. The network reports nothing: the guest is only stopped.
func TestDirectPodEnds(t *testing.T) {
	f := newFakeCluster(t)
	n := f.withNode(t)
	d := f.open(t, transports["direct"])
	b := drivertest.Launch(t, d, unisolated(true))
	name := podName(b.Ref())
	n.mu.Lock()
	run := n.runs[name]
	n.refusals = 1000 // of programs that the API server executes
	n.mu.Unlock()
	if err := run.cmd.Process.Signal(unix.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = run.cmd.Process.Signal(unix.SIGCONT) })
	// Its threads go on until the kernel has stopped each of them, after the signal is sent.
	if err := unix.Waitid(unix.P_PID, run.cmd.Process.Pid, nil, unix.WSTOPPED|unix.WNOWAIT, nil); err != nil {
		t.Fatal(err)
	}
	answer := make(chan error, 1)
	go func() { answer <- b.Client.Health(t.Context()) }()
	time.Sleep(100 * time.Millisecond) // so that the call waits, as a rule
	began := time.Now()
	f.change(name, func(p *corev1.Pod) {
		p.Status.Phase = corev1.PodFailed
		p.Status.ContainerStatuses[0].State = corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{ExitCode: 137, Reason: "OOMKilled"}}
	})
	if err := <-answer; err == nil {
		t.Error("a stopped guest answered")
	}
	if _, err := b.Dial(t.Context()); !driver.IsGone(err) {
		t.Errorf("Dial of a box whose Pod ended: %v", err)
	}
	if took := time.Since(began); took > 30*time.Second {
		t.Errorf("the end was known after %v", took)
	}
}
