package engine

import (
	"errors"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/glovebox-dev/glovebox/internal/driver"
	"github.com/glovebox-dev/glovebox/internal/guestapi"
	"github.com/glovebox-dev/glovebox/internal/sandbox"
)

func TestSettle(t *testing.T) {
	detail := func(end *guestapi.EndEvent, d guestapi.EndDetail) *guestapi.EndEvent {
		if d.Signal == 0 && end.Detail != nil {
			d.Signal = end.Detail.Signal
		}
		end.Detail = &d
		return end
	}
	killCounted := func(e ending) ending {
		e.counted, e.before.MemoryKills, e.after.MemoryKills = true, 1, 2
		return e
	}
	forkCounted := func(e ending) ending {
		e.counted, e.before.ProcessRefusals, e.after.ProcessRefusals = true, 0, 7
		return e
	}
	why := &reason{cause: "the sandbox died", code: sandbox.SandboxLost, next: "n"}
	none := -1 // no exit code
	for _, c := range []struct {
		name string
		e    ending
		want sandbox.VerdictCode
		text string // in the cause
		next bool   // there is a next step
		code int
	}{
		{"OK", ending{event: exited(0)}, sandbox.OK, "", false, 0},
		{"OKThoughAChildWasKilled", killCounted(ending{event: exited(0), alone: true}), sandbox.OK, "", false, 0},
		{"OKThoughTheDiskIsFull", ending{event: detail(exited(0), guestapi.EndDetail{DiskFull: true})}, sandbox.OK, "", false, 0},
		{"OKBeforeTheSandboxStopped", ending{event: exited(0), why: why}, sandbox.OK, "", false, 0},

		{"Failed", ending{event: exited(3)}, sandbox.Failed, "status 3", false, 3},
		{"FailedBeforeTheSandboxStopped", ending{event: exited(3), why: why}, sandbox.Failed, "status 3", false, 3},
		{"NotFound", ending{event: exited(127)}, sandbox.Failed, "not found", true, 127},
		{"NotExecutable", ending{event: exited(126)}, sandbox.Failed, "not be executed", true, 126},
		{"ShellSawASignal", ending{event: exited(139)}, sandbox.Failed, "SIGSEGV", false, 139},
		{"NotRun", ending{event: &guestapi.EndEvent{Error: "fork: no"}}, sandbox.Failed, "fork: no", false, none},

		{"Killed", ending{event: killed(11)}, sandbox.Killed, "SIGSEGV", false, none},
		{"KilledByAnUnknownSignal", ending{event: killed(42)}, sandbox.Killed, "signal 42", false, none},
		{"KilledWithoutDetail", ending{event: &guestapi.EndEvent{Status: "signal: killed"}}, sandbox.Killed, "signal: killed", false, none},

		{"Timeout", ending{event: killed(9), fate: fateTimeout}, sandbox.Timeout, "30s", true, none},
		{"TimeoutThoughTheShellExited", ending{event: exited(137), fate: fateTimeout}, sandbox.Timeout, "30s", true, none},
		{"TimeoutByTheGuest", ending{event: detail(killed(9), guestapi.EndDetail{TimedOut: true})}, sandbox.Timeout, "30s", true, none},
		{"TimeoutThatCostTheSandbox", ending{fate: fateTimeout, why: why}, sandbox.Timeout, "30s", true, none},
		{"TimeoutThoughMemoryWasShort", killCounted(ending{event: killed(9), fate: fateTimeout}), sandbox.Timeout, "30s", true, none},

		{"Cancelled", ending{event: killed(9), fate: fateCancelled}, sandbox.Cancelled, "on request", false, none},
		{"Broken", ending{event: killed(9), fate: fateBroken, broken: errors.New("disk on fire")}, sandbox.Killed, "disk on fire", true, none},

		{"OutOfMemoryByTheGuest", ending{event: detail(exited(1), guestapi.EndDetail{MemoryKill: true})}, sandbox.OutOfMemory, "512 MiB", true, 1},
		{"OutOfMemoryByTheDriver", killCounted(ending{event: killed(9)}), sandbox.OutOfMemory, "512 MiB", true, none},
		{"OutOfMemoryOfAChild", killCounted(ending{event: exited(137)}), sandbox.OutOfMemory, "512 MiB", true, 137},
		{"OutOfMemoryOfAChildWhenAlone", killCounted(ending{event: exited(1), alone: true}), sandbox.OutOfMemory, "512 MiB", true, 1},
		{"FailedBesideOneOutOfMemory", killCounted(ending{event: exited(1)}), sandbox.Failed, "status 1", false, 1},
		{"KilledWithoutCount", ending{event: killed(9), before: driver.Incidents{MemoryKills: 1}, counted: true, after: driver.Incidents{MemoryKills: 1}}, sandbox.Killed, "SIGKILL", false, none},
		{"OutOfMemoryBeforeDiskFull", ending{event: detail(exited(1), guestapi.EndDetail{MemoryKill: true, DiskFull: true})}, sandbox.OutOfMemory, "", true, 1},

		{"TooManyProcessesByTheGuest", ending{event: detail(exited(1), guestapi.EndDetail{ProcessLimit: true})}, sandbox.TooManyProcesses, "256", true, 1},
		{"TooManyProcessesByTheDriver", forkCounted(ending{event: exited(1), alone: true}), sandbox.TooManyProcesses, "256", true, 1},
		{"FailedBesideTooManyProcesses", forkCounted(ending{event: exited(1)}), sandbox.Failed, "", false, 1},

		{"DiskFull", ending{event: detail(exited(1), guestapi.EndDetail{DiskFull: true})}, sandbox.DiskFull, "1 GiB", true, 1},
		{"DiskFullAndKilled", ending{event: detail(killed(7), guestapi.EndDetail{DiskFull: true})}, sandbox.DiskFull, "1 GiB", true, none},

		{"SandboxLost", ending{why: why}, sandbox.SandboxLost, "died", true, none},
		{"SandboxLostWithAnEnd", ending{event: killed(9), why: why}, sandbox.SandboxLost, "died", true, none},
		{"SandboxOutOfMemory", ending{why: &reason{cause: "too much", code: sandbox.OutOfMemory, next: "n"}}, sandbox.OutOfMemory, "too much", true, none},
		{"Untraceable", ending{}, sandbox.SandboxLost, "lost track", true, none},
	} {
		t.Run(c.name, func(t *testing.T) {
			c.e.timeout, c.e.limits = 30*time.Second, sandbox.DefaultLimits()
			v, code := settle(c.e)
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
			e := ending{lasted: c.lasted, limits: sandbox.Limits{CPUs: c.cpus, MemoryBytes: memory}}
			if !c.withoutEnds {
				e.event = &guestapi.EndEvent{Detail: &guestapi.EndDetail{CPUMillis: c.cpu, PeakMemoryBytes: c.peak}}
			}
			if got, want := e.usage(), (sandbox.Usage{CPUMillis: c.wantCPU, PeakMemoryBytes: c.wantPeak}); got != want {
				t.Errorf("%+v, want %+v", got, want)
			}
		})
	}
}

// TestContextOverQuota has a run in a context fill its workspace, whatever the guest
// says of its end.
func TestContextOverQuota(t *testing.T) {
	why := exceeded("the workspace", sandbox.WorkspaceUsage{Bytes: 9}, sandbox.WorkspaceUsage{Bytes: 8})
	for name, end := range map[string]guestapi.ExecutionEnd{
		"stopped": {Status: guestapi.EndInterrupted, Stopped: true},
		"faster":  {Status: guestapi.EndOK},
		"killed":  {Status: guestapi.EndDied, Killed: true, StateLost: true},
	} {
		v, _ := settle(ending{fate: fateDiskFull, broken: why, context: &end})
		if v.Code != sandbox.DiskFull || !strings.Contains(v.Cause, "the workspace may hold 8 B") || v.NextStep != nextWorkspace {
			t.Errorf("%s: %+v", name, v)
		}
	}
}
