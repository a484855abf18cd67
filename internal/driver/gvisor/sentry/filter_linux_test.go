package sentry

import (
	"encoding/json"
	"os"
	"os/exec"
	"slices"
	"syscall"
	"testing"

	"gvisor.dev/gvisor/pkg/bpf"
	"gvisor.dev/gvisor/pkg/seccomp"
	"gvisor.dev/gvisor/pkg/seccomp/precompiledseccomp"
	"gvisor.dev/gvisor/runsc/boot/filter"
	"gvisor.dev/gvisor/runsc/boot/filter/config"

	"github.com/glovebox-dev/glovebox/internal/driver/gvisor/users"
)

// compiledThere is what gVisor compiles in a process, and the values that the
// variables have in it.
type compiledThere struct {
	Key     string
	Vars    precompiledseccomp.Values
	Program []bpf.Instruction
}

// compileInFull compiles as [filter.Install] does.
func compileInFull(t *testing.T, opts filter.Options) compiledThere {
	rules, denyRules := config.Rules(opts)
	program, _, err := (&seccomp.Program{
		RuleSets: []seccomp.RuleSet{{Rules: denyRules}, {Rules: rules, Action: seccomp.Allow}},
		Options:  config.SeccompOptions(opts),
	}).Build()
	if err != nil {
		t.Fatal(err)
	}
	return compiledThere{opts.ConfigKey(), opts.Vars(), program}
}

// TestKernelFilter holds the filter that is compiled before to being, to the
// instruction, what gVisor compiles in the process that it is for: here too,
// and in one that is the first of its PID namespace, as the kernels are.
func TestKernelFilter(t *testing.T) {
	opts, err := kernelFilterOptions()
	if err != nil {
		t.Fatal(err)
	}
	const thereEnv = "GLOVEBOX_TEST_COMPILE_THERE"
	opts.ControllerFD = 11
	if os.Getenv(thereEnv) != "" {
		opts.ControllerFD = 12
		json.NewEncoder(os.Stdout).Encode(compileInFull(t, opts))
		os.Exit(0)
	}
	here := compileInFull(t, opts)

	var f Filter
	f.compile()
	text := f.program.Load()
	if text == nil {
		t.Fatal("nothing was compiled; see the log")
	}

	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), exe, "-test.run=^TestKernelFilter$")
	cmd.Env = append(os.Environ(), thereEnv+"=1")
	cmd.Stderr = os.Stderr
	if cmd.SysProcAttr, err = users.SupervisorAttributes(); err != nil {
		t.Fatal(err)
	}
	cmd.SysProcAttr.Cloneflags |= syscall.CLONE_NEWPID
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	var there compiledThere
	if err := json.Unmarshal(out, &there); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	if pid := there.Vars.GetUint64("self_pid"); pid != 1 {
		t.Errorf("the other process has number %d", pid)
	}
	if slices.Equal(here.Program, there.Program) {
		t.Error("the same was compiled in both processes")
	}

	for _, full := range []compiledThere{here, there} {
		var program precompiledseccomp.Program
		if err := json.Unmarshal([]byte(*text), &program); err != nil {
			t.Fatal(err)
		}
		if program.Name != full.Key {
			t.Errorf("the program is for %s, wanted for %s", program.Name, full.Key)
		}
		got, err := program.RenderInstructions(full.Vars)
		if err != nil {
			t.Fatal(err)
		}
		if !slices.Equal(got, full.Program) {
			t.Errorf("with %v\n%v\nwhere gVisor has\n%v", full.Vars, got, full.Program)
		}
	}
}
