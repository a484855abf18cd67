package kubernetes_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/glovebox-dev/glovebox/internal/driver"
	"github.com/glovebox-dev/glovebox/internal/driver/drivertest"
	"github.com/glovebox-dev/glovebox/internal/sandbox"
)

// pidsEnv names the directory with the process numbers of the cluster's programs, which
// are started again after their end.
const pidsEnv = "GLOVEBOX_TEST_PIDS"

// maxOutage bounds an outage, until a box is of use again, and so do calls meanwhile.
const maxOutage = 2 * time.Minute

// TestOutages kills programs of a node while a box works. Calls fail as unavailable or
// wait, and no call takes the box for ended. Afterwards its program still runs, and all
// that was acknowledged is there. New boxes can be made again.
func TestOutages(t *testing.T) {
	need(t)
	pids := os.Getenv(pidsEnv)
	if pids == "" {
		t.Fatalf("%s is not set: run this by test/kubernetes.sh", pidsEnv)
	}
	for _, h := range []drivertest.Harness{gvisorHarness, runcHarness} {
		d, err := h.Open(t.TempDir())
		if err != nil {
			t.Fatal(err)
		}
		closeLater(t, d)
		spec := h.Spec()
		spec.Detached = true // as a server's boxes are
		b := drivertest.Launch(t, d, spec)
		p, err := b.Start(t.Context(), drivertest.Sh(`i=0; while :; do i=$((i+1)); echo $i > /tmp/counter; sleep 0.1; done`))
		if err != nil {
			t.Fatal(err)
		}
		defer p.Close()
		for _, name := range []string{"containerd", "kubelet", "kube-apiserver"} {
			t.Run(h.Name+"/"+name, func(t *testing.T) { outage(t, d, h, b, p.PID(), filepath.Join(pids, name)) })
		}
	}
}

// outage kills the program whose process number is in a file.
func outage(t *testing.T, d driver.Driver, h drivertest.Harness, b *drivertest.Box, pid uint32, file string) {
	name := filepath.Base(file)
	b.MustSh(t, "echo acknowledged > /tmp/"+name)
	counted := counter(t, b)
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	victim, err := strconv.Atoi(strings.TrimSpace(string(text)))
	if err != nil {
		t.Fatal(err)
	}
	began := time.Now()
	if err := syscall.Kill(victim, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	again(t, began, "a run in the box", func(ctx context.Context) error {
		_, err := b.Run(ctx, drivertest.Sh("true"))
		return err
	})
	t.Logf("a box is of use %v after the death of %s", time.Since(began).Round(100*time.Millisecond), name)
	if got := b.MustSh(t, fmt.Sprintf("cat /tmp/%s; kill -0 %d && echo runs", name, pid)); got != "acknowledged\nruns\n" {
		t.Errorf("after the death of %s: %q", name, got)
	}
	if now := counter(t, b); now <= counted {
		t.Errorf("the program counted to %d before the death of %s, and is at %d", counted, name, now)
	}
	again(t, began, "a new box", func(ctx context.Context) error {
		spec := h.Spec()
		fresh, err := d.Create(ctx, spec)
		if err != nil {
			return err
		}
		return fresh.Destroy(ctx)
	})
	t.Logf("a new box can be made %v after the death of %s", time.Since(began).Round(100*time.Millisecond), name)
	refs, err := d.List(t.Context())
	if err != nil || len(refs) != 1 || refs[0] != b.Ref() {
		t.Errorf("List after the death of %s: %q, %v; want the box alone", name, refs, err)
	}
}

// again repeats a call until it succeeds. Its errors have to be of an outage.
func again(t *testing.T, began time.Time, what string, call func(context.Context) error) {
	t.Helper()
	ctx, cancel := context.WithDeadline(t.Context(), began.Add(maxOutage))
	defer cancel()
	for {
		err := call(ctx)
		switch {
		case err == nil:
			return
		case ctx.Err() != nil:
			t.Fatalf("%s, %v after the outage began: %v", what, maxOutage, err)
		case driver.IsGone(err) || sandbox.KindOf(err) != sandbox.Unavailable:
			t.Errorf("%s: %v (kind %s), want unavailable", what, err, sandbox.KindOf(err))
		default:
			t.Logf("%s: %v", what, err)
		}
		time.Sleep(500 * time.Millisecond)
	}
}

// counter returns the number to which the program of a box has counted. The program
// writes it in place, so a reader may find nothing.
func counter(t *testing.T, b *drivertest.Box) int {
	t.Helper()
	r := b.MustSh(t, "until [ -s /tmp/counter ]; do :; done; cat /tmp/counter")
	n, err := strconv.Atoi(strings.TrimSpace(r))
	if err != nil {
		t.Fatal(err)
	}
	return n
}
