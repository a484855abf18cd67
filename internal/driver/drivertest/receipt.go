package drivertest

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/glovebox-dev/glovebox/internal/driver"
	"github.com/glovebox-dev/glovebox/internal/sandbox"
)

// testReceipt checks the contents of a receipt, and that they are true.
func testReceipt(t *testing.T, s *suite) {
	t.Run("Complete", func(t *testing.T) { receiptComplete(t, s) })
	t.Run("CPU", func(t *testing.T) { receiptCPU(t, s) })
	t.Run("Memory", func(t *testing.T) { receiptMemory(t, s) })
	t.Run("Processes", func(t *testing.T) { receiptProcesses(t, s) })
	t.Run("Disk", func(t *testing.T) { receiptDisk(t, s) })
	t.Run("Incidents", func(t *testing.T) { receiptIncidents(t, s) })
	t.Run("Usage", func(t *testing.T) { receiptUsage(t, s) })
}

func pidText(pid uint32) string { return strconv.FormatUint(uint64(pid), 10) }

func receiptComplete(t *testing.T, s *suite) {
	st := s.open(t)
	b := st.box(t)
	receipt, err := b.Receipt(step(t))
	if err != nil {
		t.Fatalf("Receipt: %v", err)
	}
	var names []sandbox.ControlName
	for _, c := range receipt {
		names = append(names, c.Name)
		t.Logf("%-16s asked %q, value %q by %q, enforced %t", c.Name, c.Asked, c.Value, c.Mechanism, c.Enforced)
		if c.Asked == "" {
			t.Errorf("%s: the receipt does not say what was asked", c.Name)
		}
		if c.Enforced && (c.Value == "" || c.Mechanism == "") {
			t.Errorf("%s is said to be enforced, but value is %q and mechanism %q: want what was read back, and from what", c.Name, c.Value, c.Mechanism)
		}
	}
	if !slices.Equal(names, sandbox.ControlNames()) {
		t.Errorf("the receipt has %v, want every control once, in order: %v", names, sandbox.ControlNames())
	}
	if !st.Info().Isolates {
		return
	}
	for _, name := range receipt.Unenforced() {
		if !slices.Contains(b.Spec.AllowUnenforced, name) {
			t.Errorf("%s is not enforced, and AllowUnenforced does not name it: Create must refuse", name)
		}
	}
}

// tight returns a spec with low limits, which tests reach quickly.
func (s *suite) tight() *driver.Spec {
	spec := s.h.Spec()
	spec.Limits.MemoryBytes = 160 << 20
	spec.Limits.DiskBytes = 24 << 20
	spec.Limits.Processes = 48
	return spec
}

// limited opens a driver and makes a tight box, for a test of one limit. It
// skips the test if the driver does not isolate, or if the harness allows the
// limit unenforced. It verifies that programs in the box do not run on the host.
func (s *suite) limited(t *testing.T, name sandbox.ControlName) (*site, *Box) {
	t.Helper()
	st := s.open(t)
	s.isolated(t, st)
	spec := s.tight()
	enforced(t, spec, name)
	if name == sandbox.ControlCPU {
		spec.Limits.CPUs = 0.5 // less than any test machine has
		part := s.h.Spec()
		part.Limits.CPUs = spec.Limits.CPUs
		if st.refuses(t, part) {
			spec.Limits.CPUs = 1 // less than a machine with several CPUs has
		}
	}
	b := st.boxOf(t, spec)
	b.mustBeSealed(t)
	receipt, err := b.Receipt(step(t))
	if err != nil {
		t.Fatalf("Receipt: %v", err)
	}
	if !receipt.Control(name).Enforced {
		t.Fatalf("%s is not enforced: %+v", name, receipt.Control(name))
	}
	return st, b
}

// refuses reports whether the driver refuses the spec as unsupported. It fails
// the test if the error has another kind or no hint.
func (st *site) refuses(t testing.TB, spec *driver.Spec) bool {
	t.Helper()
	b, err := st.Create(step(t), spec)
	if err != nil {
		if sandbox.KindOf(err) != sandbox.Unsupported || sandbox.HintOf(err) == "" {
			t.Fatalf("Driver.Create refuses %+v with %v (hint: %q); want kind unsupported, and a hint", spec.Limits, err, sandbox.HintOf(err))
		}
		t.Logf("refused here: %v", err)
		return true
	}
	if err := b.Destroy(step(t)); err != nil {
		t.Fatalf("Box.Destroy: %v", err)
	}
	return false
}

// receiptCPU has two programs compute, and measures their CPU time on the host.
func receiptCPU(t *testing.T, s *suite) {
	st, b := s.limited(t, sandbox.ControlCPU)
	if s.h.Processes == nil {
		t.Skip("boxes are on another machine")
	}
	const span = 3 * time.Second
	p, _ := b.startReady(t, Sh("echo on; (while :; do :; done) & while :; do :; done"))
	defer p.Close()
	time.Sleep(300 * time.Millisecond)
	began := time.Now() // first, so that the counted ticks are within the time
	before := st.boxTicks(t, b)
	time.Sleep(span)
	ticks, wall := st.boxTicks(t, b)-before, time.Since(began)
	used := float64(ticks) / 100 / wall.Seconds()
	t.Logf("two busy programs took %.2f CPUs of %.2f", used, b.Spec.Limits.CPUs)
	if used > b.Spec.Limits.CPUs*1.25+0.05 {
		t.Errorf("two busy programs took %.2f CPUs, the limit is %.2f", used, b.Spec.Limits.CPUs)
	}
	if used == 0 {
		t.Error("busy programs took no processor time of the processes that the harness knows")
	}
	b.Answers(t, "while two programs compute")
}

// hold is a program that allocates as many bytes as its argument says, in steps,
// and then prints the sum.
const hold = `
import sys
want, have, held = int(sys.argv[1]), 0, []
while have < want:
    n = min(4 << 20, want - have)
    b = bytearray(n)
    for i in range(0, n, 4096): b[i] = 1
    held.append(b)
    have += n
print("held", have)
`

func receiptMemory(t *testing.T, s *suite) {
	s.python(t)
	_, b := s.limited(t, sandbox.ControlMemory)
	limit := b.Spec.Limits.MemoryBytes
	half := strconv.FormatInt(limit*2/5, 10)
	if r := b.MustRun(t, Python(s.h.Python, hold, half)); r.End.Code() != 0 || r.Stdout != "held "+half+"\n" {
		t.Errorf("a program that takes two fifths of the memory limit must work: %v", r)
	}
	r, err := b.Run(step(t), Python(s.h.Python, hold, strconv.FormatInt(limit*3/2, 10)))
	if err == nil && strings.Contains(r.Stdout, "held") {
		t.Errorf("a program took one and a half times the memory limit of %s: %v", sandbox.FormatBytes(limit), r)
	}
	if err != nil && !broken(err) {
		t.Errorf("a program that takes too much memory: %v", err)
	}
}

func receiptProcesses(t *testing.T, s *suite) {
	_, b := s.limited(t, sandbox.ControlProcesses)
	limit := b.Spec.Limits.Processes
	r, err := b.Run(step(t), Cmd{Shell: forker(2 * limit), Timeout: 30 * time.Second})
	if err != nil {
		t.Fatalf("a program that forks up to the limit: %v", err)
	}
	n := strings.Count(r.Stdout, "+")
	t.Logf("a program made %d processes; the limit is %d", n, limit)
	if n > limit {
		t.Errorf("a program made %d processes, the limit is %d", n, limit)
	}
	if n < limit/2 {
		t.Errorf("a program could make only %d processes of a limit of %d: that is stricter than asked by far", n, limit)
	}
	b.Answers(t, "after a program forked up to the limit")
}

// forker returns a script that starts n processes and prints a + for each. Its
// shell gives up when a fork fails.
func forker(n int) string {
	return fmt.Sprintf("i=0; while [ $i -lt %d ]; do sleep 600 & printf +; i=$((i+1)); done; echo; echo made all; kill -9 $(jobs -p) 2>/dev/null", n)
}

func receiptDisk(t *testing.T, s *suite) {
	_, b := s.limited(t, sandbox.ControlDisk)
	limit := b.Spec.Limits.DiskBytes
	fill := fmt.Sprintf("head -c %d /dev/zero > fill; echo $?; wc -c < fill; rm -f fill", 2*limit)
	for range 2 { // removed files must free their space
		r := b.MustRun(t, Sh(fill))
		fields := strings.Fields(r.Stdout)
		if len(fields) != 2 {
			t.Fatalf("filling the disk: %v", r)
		}
		n, err := strconv.ParseInt(fields[1], 10, 64)
		if err != nil {
			t.Fatal(err)
		}
		t.Logf("a program wrote %s; the limit is %s", sandbox.FormatBytes(n), sandbox.FormatBytes(limit))
		if fields[0] == "0" || n > limit {
			t.Errorf("a program wrote %s (exit code %s), the limit is %s", sandbox.FormatBytes(n), fields[0], sandbox.FormatBytes(limit))
		}
		if n < limit*8/10 {
			t.Errorf("a program could write only %s of a limit of %s", sandbox.FormatBytes(n), sandbox.FormatBytes(limit))
		}
	}
}

func receiptIncidents(t *testing.T, s *suite) {
	st := s.open(t)
	b := st.box(t)
	in, ok, err := driver.ReadIncidents(step(t), b.Box)
	if !st.Info().Features.Incidents {
		if ok {
			t.Errorf("Incidents is not declared in Info, but answers %+v", in)
		}
		return
	}
	if err != nil || !ok || !in.Alive || in.MemoryKills != 0 || in.ProcessRefusals != 0 {
		t.Errorf("Incidents of a box in which nothing happened: %+v, %t, %v", in, ok, err)
	}
	if err := b.Destroy(step(t)); err != nil {
		t.Fatal(err)
	}
	if in, ok, err := driver.ReadIncidents(step(t), b.Box); ok && in.Alive {
		t.Errorf("Incidents of a destroyed box says that its guest is alive: %+v, %v", in, err)
	}
}

// receiptUsage: the host kernel counts the CPU time of programs. The driver need not
// count it on each machine.
func receiptUsage(t *testing.T, s *suite) {
	st := s.open(t)
	b := st.box(t)
	before, ok, err := driver.ReadUsage(step(t), b.Box)
	if !st.Info().Features.Usage {
		if ok {
			t.Errorf("Usage is not declared in Info, but answers %+v", before)
		}
		return
	}
	if err != nil {
		t.Fatalf("Usage of a new box: %v", err)
	}
	if !ok {
		t.Skip("this machine does not count the usage of boxes")
	}
	const burn = 300 * time.Millisecond
	// The shell itself burns, so that the count of the guest is that of one process.
	b.MustRun(t, Sh("while :; do set -- $(cat /proc/$$/stat); [ $((${14} + ${15})) -ge 30 ] && exit 0; i=0; while [ $i -lt 2000 ]; do i=$((i+1)); done; done"))
	after, ok, err := driver.ReadUsage(step(t), b.Box)
	if used := after.CPU - before.CPU; err != nil || !ok || used < burn*8/10 {
		t.Errorf("a program used %v of CPU time, but Usage grew by %v, to %v: %t, %v", burn, used, after.CPU, ok, err)
	}
	if err := b.Destroy(step(t)); err != nil {
		t.Fatal(err)
	}
	if u, ok, err := driver.ReadUsage(step(t), b.Box); ok && u.CPU < after.CPU {
		t.Errorf("Usage of a destroyed box: %v, %v", u, err)
	}
}
