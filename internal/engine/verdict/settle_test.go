package verdict

import (
	"errors"
	"fmt"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/glovebox-dev/glovebox/internal/driver"
	"github.com/glovebox-dev/glovebox/internal/guestapi"
	"github.com/glovebox-dev/glovebox/internal/sandbox"
)

func TestSettle(t *testing.T) {
	detail := func(end guestapi.End, d guestapi.EndDetail) guestapi.End {
		d.Signal = end.Detail.Signal
		end.Detail = d
		return end
	}
	killCounted := func(e Ending) Ending {
		e.Counted, e.Before.MemoryKills, e.After.MemoryKills = true, 1, 2
		return e
	}
	forkCounted := func(e Ending) Ending {
		e.Counted, e.Before.ProcessRefusals, e.After.ProcessRefusals = true, 0, 7
		return e
	}
	why := &Reason{Cause: "the sandbox died", Code: sandbox.SandboxLost, Next: "n"}
	none := -1 // no exit code
	for _, c := range []struct {
		name string
		e    Ending
		want sandbox.VerdictCode
		text string // in the cause
		next bool   // there is a next step
		code int
	}{
		{"OK", Ending{End: exitedWith(0)}, sandbox.OK, "", false, 0},
		{"OKThoughAChildWasKilled", killCounted(Ending{End: exitedWith(0), Alone: true}), sandbox.OK, "", false, 0},
		{"OKThoughTheDiskIsFull", Ending{End: detail(exitedWith(0), guestapi.EndDetail{DiskFull: true})}, sandbox.OK, "", false, 0},
		{"OKBeforeTheSandboxStopped", Ending{End: exitedWith(0), Why: why}, sandbox.OK, "", false, 0},

		{"Failed", Ending{End: exitedWith(3)}, sandbox.Failed, "status 3", false, 3},
		{"FailedBeforeTheSandboxStopped", Ending{End: exitedWith(3), Why: why}, sandbox.Failed, "status 3", false, 3},
		{"NotFound", Ending{End: exitedWith(127)}, sandbox.Failed, "not found", true, 127},
		{"NotExecutable", Ending{End: exitedWith(126)}, sandbox.Failed, "not be executed", true, 126},
		{"ShellSawASignal", Ending{End: exitedWith(139)}, sandbox.Failed, "SIGSEGV", false, 139},
		{"NotRun", Ending{End: guestapi.End{Status: guestapi.EndNotRun, Cause: "fork: no"}}, sandbox.Failed, "fork: no", false, none},

		{"Killed", Ending{End: killed(11)}, sandbox.Killed, "SIGSEGV", false, none},
		{"KilledByAnUnknownSignal", Ending{End: killed(42)}, sandbox.Killed, "signal 42", false, none},
		{"KilledWithoutDetail", Ending{End: guestapi.End{Status: guestapi.EndDied, Text: "signal: killed"}}, sandbox.Killed, "signal: killed", false, none},

		{"Timeout", Ending{End: killed(9), Fate: FateTimeout}, sandbox.Timeout, "30s", true, none},
		{"TimeoutThoughTheShellExited", Ending{End: exitedWith(137), Fate: FateTimeout}, sandbox.Timeout, "30s", true, none},
		{"TimeoutByTheGuest", Ending{End: guestapi.End{Status: guestapi.EndDied, TimedOut: true}}, sandbox.Timeout, "30s", true, none},
		{"TimeoutThatCostTheSandbox", Ending{Fate: FateTimeout, Why: why}, sandbox.Timeout, "30s", true, none},
		{"TimeoutThoughMemoryWasShort", killCounted(Ending{End: killed(9), Fate: FateTimeout}), sandbox.Timeout, "30s", true, none},

		{"Cancelled", Ending{End: killed(9), Fate: FateCancelled}, sandbox.Cancelled, "on request", false, none},
		{"Broken", Ending{End: killed(9), Fate: FateBroken, Broken: errors.New("disk on fire")}, sandbox.Killed, "disk on fire", true, none},

		{"OutOfMemoryByTheGuest", Ending{End: detail(exitedWith(1), guestapi.EndDetail{MemoryKill: true})}, sandbox.OutOfMemory, "512 MiB", true, 1},
		{"OutOfMemoryByTheDriver", killCounted(Ending{End: killed(9)}), sandbox.OutOfMemory, "512 MiB", true, none},
		{"OutOfMemoryOfAChild", killCounted(Ending{End: exitedWith(137)}), sandbox.OutOfMemory, "512 MiB", true, 137},
		{"OutOfMemoryOfAChildWhenAlone", killCounted(Ending{End: exitedWith(1), Alone: true}), sandbox.OutOfMemory, "512 MiB", true, 1},
		{"FailedBesideOneOutOfMemory", killCounted(Ending{End: exitedWith(1)}), sandbox.Failed, "status 1", false, 1},
		{"KilledWithoutCount", Ending{End: killed(9), Before: driver.Incidents{MemoryKills: 1}, Counted: true, After: driver.Incidents{MemoryKills: 1}}, sandbox.Killed, "SIGKILL", false, none},
		{"OutOfMemoryBeforeDiskFull", Ending{End: detail(exitedWith(1), guestapi.EndDetail{MemoryKill: true, DiskFull: true})}, sandbox.OutOfMemory, "", true, 1},

		{"TooManyProcessesByTheGuest", Ending{End: detail(exitedWith(1), guestapi.EndDetail{ProcessLimit: true})}, sandbox.TooManyProcesses, "256", true, 1},
		{"TooManyProcessesByTheDriver", forkCounted(Ending{End: exitedWith(1), Alone: true}), sandbox.TooManyProcesses, "256", true, 1},
		{"FailedBesideTooManyProcesses", forkCounted(Ending{End: exitedWith(1)}), sandbox.Failed, "", false, 1},

		{"DiskFull", Ending{End: detail(exitedWith(1), guestapi.EndDetail{DiskFull: true})}, sandbox.DiskFull, "1 GiB", true, 1},
		{"DiskFullAndKilled", Ending{End: detail(killed(7), guestapi.EndDetail{DiskFull: true})}, sandbox.DiskFull, "1 GiB", true, none},

		{"SandboxLost", Ending{Why: why}, sandbox.SandboxLost, "died", true, none},
		{"SandboxLostWithAnEnd", Ending{End: killed(9), Why: why}, sandbox.SandboxLost, "died", true, none},
		{"SandboxOutOfMemory", Ending{Why: &Reason{Cause: "too much", Code: sandbox.OutOfMemory, Next: "n"}}, sandbox.OutOfMemory, "too much", true, none},
		{"Untraceable", Ending{}, sandbox.SandboxLost, "lost track", true, none},
	} {
		t.Run(c.name, func(t *testing.T) {
			c.e.Timeout, c.e.Limits = 30*time.Second, sandbox.DefaultLimits()
			v, code := Settle(c.e)
			if v.Code != c.want || !strings.Contains(v.Cause, c.text) || (v.NextStep != "") != c.next {
				t.Errorf("%+v; want %s with %q, next step %v", v, c.want, c.text, c.next)
			}
			if (v.Cause == "") != (c.want == sandbox.OK) || strings.Contains(v.Cause, "\n") {
				t.Errorf("cause %q is not one line for all but ok", v.Cause)
			}
			if code == nil && c.code != none || code != nil && *code != c.code {
				t.Errorf("exit code %v, want %d", code, c.code)
			}
		})
	}
}

func TestUsageIsNotBelieved(t *testing.T) {
	const memory = 512 << 20
	for _, c := range []struct {
		name        string
		cpu, peak   int64
		lasted      time.Duration
		cpus        float64
		wantCPU     int64
		wantPeak    int64
		withoutEnds bool
	}{
		{name: "Plausible", cpu: 1500, peak: 1 << 20, lasted: 2 * time.Second, cpus: 1, wantCPU: 1500, wantPeak: 1 << 20},
		{name: "Negative", cpu: -5, peak: -1 << 60, lasted: time.Second, cpus: 1},
		{name: "TooMuch", cpu: math.MaxInt64, peak: math.MaxInt64, lasted: 2 * time.Second, cpus: 1.5, wantCPU: 6000, wantPeak: memory},
		{name: "PartOfACPU", cpu: math.MaxInt64, lasted: 2 * time.Second, cpus: 0.05, wantCPU: 3000},
		{name: "ClockWentBack", cpu: math.MaxInt64, lasted: -time.Hour, cpus: 2, wantCPU: 2000},
		{name: "Longest", cpu: math.MaxInt64, lasted: math.MaxInt64, cpus: 64, wantCPU: 64 * (math.MaxInt64/1_000_000 + 1000)},
		{name: "NoEnd", lasted: time.Second, cpus: 1, withoutEnds: true},
	} {
		t.Run(c.name, func(t *testing.T) {
			e := Ending{Lasted: c.lasted, Limits: sandbox.Limits{CPUs: c.cpus, MemoryBytes: memory}}
			if !c.withoutEnds {
				e.End = guestapi.End{Detail: guestapi.EndDetail{CPUMillis: c.cpu, PeakMemoryBytes: c.peak}}
			}
			if got, want := e.Usage(), (sandbox.Usage{CPUMillis: c.wantCPU, PeakMemoryBytes: c.wantPeak}); got != want {
				t.Errorf("%+v, want %+v", got, want)
			}
		})
	}
}

// TestContextOverQuota has a run in a context fill its workspace, whatever the guest
// says of its end.
func TestContextOverQuota(t *testing.T) {
	why := errors.New("the workspace may hold 8 B")
	for name, end := range map[string]guestapi.End{
		"stopped": {Status: guestapi.EndInterrupted, Stopped: true},
		"faster":  {Status: guestapi.EndOK},
		"killed":  {Status: guestapi.EndDied, Killed: true, StateLost: true},
	} {
		end.Context = true
		v, _ := Settle(Ending{Fate: FateDiskFull, Broken: why, End: end})
		if v.Code != sandbox.DiskFull || !strings.Contains(v.Cause, "it was ended, because it wrote too much: the workspace may hold 8 B") || v.NextStep != NextWorkspace {
			t.Errorf("%s: %+v", name, v)
		}
	}
}

func exitedWith(code int) guestapi.End {
	end := guestapi.End{Status: guestapi.EndExit, ExitCode: &code, Text: fmt.Sprintf("exit status %d", code)}
	if code == 0 {
		end.Status = guestapi.EndOK
	}
	return end
}

func killed(signal int) guestapi.End {
	return guestapi.End{Status: guestapi.EndDied, Text: "signal", Detail: guestapi.EndDetail{Signal: signal}}
}
