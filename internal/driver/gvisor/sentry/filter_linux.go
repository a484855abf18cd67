package sentry

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"
	"sync/atomic"
	_ "unsafe" // for go:linkname

	specs "github.com/opencontainers/runtime-spec/specs-go"
	"golang.org/x/sys/unix"
	"gvisor.dev/gvisor/pkg/context"
	"gvisor.dev/gvisor/pkg/log"
	"gvisor.dev/gvisor/pkg/seccomp"
	"gvisor.dev/gvisor/pkg/seccomp/precompiledseccomp"
	"gvisor.dev/gvisor/pkg/sentry/platform"
	"gvisor.dev/gvisor/pkg/sentry/seccheck"
	pb "gvisor.dev/gvisor/pkg/sentry/seccheck/points/points_go_proto"
	"gvisor.dev/gvisor/runsc/boot/filter"
	"gvisor.dev/gvisor/runsc/boot/filter/config"
	"gvisor.dev/gvisor/runsc/cmd/util"
)

// Filter is the seccomp filter that the sentries of a supervisor's boxes install,
// compiled once for all of them. Otherwise each sentry takes some seven
// milliseconds of a processor to compile its own.
//
// gVisor can use a precompiled program with variables, if it has one for the
// settings of the sentry. Without Bazel, gVisor is built without such programs. So
// a supervisor compiles one, and passes it to sentries in their specifications. A
// sentry can receive data in no other way, neither before nor after it gives up its
// root directory.
type Filter struct {
	boxes   atomic.Int32
	program atomic.Pointer[string] // nil until it is compiled
}

// kernelFilterKey is the annotation of a specification that contains the program.
const kernelFilterKey = "glovebox.dev/kernel-filter"

// Give adds the program to a specification, if it is compiled. The compilation
// starts in the background with the second box, because a supervisor of a single
// box has no use for it.
func (f *Filter) Give(spec *specs.Spec) {
	if f.boxes.Add(1) == 2 {
		go f.compile()
	}
	if p := f.program.Load(); p != nil {
		if spec.Annotations == nil {
			spec.Annotations = map[string]string{}
		}
		spec.Annotations[kernelFilterKey] = *p
	}
}

func (f *Filter) compile() {
	text, err := func() (string, error) {
		opts, err := kernelFilterOptions()
		if err != nil {
			return "", err
		}
		program, err := compileFilter(opts)
		if err != nil {
			return "", err
		}
		data, err := json.Marshal(program)
		if err != nil {
			return "", err
		}
		// This process does not use the program. It registers it to detect an error
		// here, because a sentry could not report the same error.
		return string(data), registerFilter(program)
	}()
	if err != nil {
		log.Warningf("each box's kernel compiles its own filter of system calls: %v", err)
		return
	}
	f.program.Store(&text)
}

// kernelFilterOptions returns the options of the supervisor's settings, as the
// sentry has them when it installs its filter. If they were different, the sentry
// would not find the program and would compile its own.
func kernelFilterOptions() (filter.Options, error) {
	p, err := platform.Lookup("systrap")
	if err != nil {
		return filter.Options{}, err
	}
	infos := p.PrecompiledSeccompInfo()
	if len(infos) != 1 {
		return filter.Options{}, fmt.Errorf("gVisor's platform has %d kinds of filters", len(infos))
	}
	return filter.Options{Platform: infos[0], HostFilesystem: true}, nil
}

// compileFilter compiles the program of [filter.Install], for any values of its
// variables. gVisor compiles it twice, and fails if more than the variables
// differs.
func compileFilter(opts filter.Options) (precompiledseccomp.Program, error) {
	vars := slices.Collect(maps.Keys(opts.Vars()))
	var err error
	program, compileErr := precompiledseccomp.Precompile(opts.ConfigKey(), vars, func(vars precompiledseccomp.Values) *seccomp.Program {
		opts := opts
		opts.Platform = variablePlatform{opts.Platform, vars}
		rules, denyRules := config.Rules(opts)
		err = errors.Join(err, makePIDVariable(rules, vars))
		return &seccomp.Program{
			RuleSets: []seccomp.RuleSet{
				{Rules: denyRules},
				{Rules: rules, Action: seccomp.Allow},
			},
			Options: config.SeccompOptions(opts),
		}
	})
	return program, errors.Join(err, compileErr)
}

// variablePlatform makes gVisor generate its rules with the values of vars. gVisor
// prefers the variables of the platform to its own.
type variablePlatform struct {
	platform.SeccompInfo
	vars precompiledseccomp.Values
}

// Variables implements [platform.SeccompInfo].
func (p variablePlatform) Variables() precompiledseccomp.Values { return p.vars }

// makePIDVariable corrects one rule. gVisor uses the process ID of the compiling
// process in it, where its other rules use a variable.
func makePIDVariable(rules seccomp.SyscallRules, vars precompiledseccomp.Values) error {
	const call, name = unix.SYS_RT_TGSIGQUEUEINFO, "self_pid"
	if _, ok := vars[name+"_low32bits"]; !ok {
		return errors.New("gVisor's filter has no variable for the number of its process")
	}
	rule, ok := rules.Get(call).(seccomp.PerArg)
	if !ok || rule[0] != seccomp.EqualTo(os.Getpid()) {
		return fmt.Errorf("gVisor's rule for rt_tgsigqueueinfo has changed: %v", rules.Get(call))
	}
	rule[0] = seccomp.EqualTo(vars.GetUint64(name))
	rules.Remove(call)
	rules.Set(call, rule)
	return nil
}

// knownPrograms is gVisor's list of precompiled programs. If gVisor renames it,
// this is a separate variable that stays nil.
//
//go:linkname knownPrograms gvisor.dev/gvisor/runsc/boot/filter.precompiledPrograms
var knownPrograms map[string]precompiledseccomp.Program

// registerFilter makes gVisor use program in this process.
func registerFilter(program precompiledseccomp.Program) error {
	filter.GetPrecompiled(program.Name) // the first call makes the list
	if knownPrograms == nil {
		return errors.New("gVisor's list of filters is not where it was")
	}
	knownPrograms[program.Name] = program
	if _, ok := filter.GetPrecompiled(program.Name); !ok {
		return errors.New("gVisor's list of filters has changed")
	}
	return nil
}

// useKernelFilter makes a sentry use the program of its specification, if there is
// one. If the program is for other settings, the sentry compiles its own.
func useKernelFilter(spec *specs.Spec) {
	var program precompiledseccomp.Program
	if json.Unmarshal([]byte(spec.Annotations[kernelFilterKey]), &program) != nil || registerFilter(program) != nil {
		return
	}
	seccheck.Global.AppendSink(&filterReporter{given: slices.Clone(program.Bytecode32), now: program.Bytecode32},
		[]seccheck.PointReq{{Pt: seccheck.PointContainerStart}})
}

// filterReporter logs whether the sentry's filter is the program that it was given.
// gVisor calls it after the filter is installed.
type filterReporter struct {
	seccheck.SinkDefaults
	given, now []uint32
}

// Name implements [seccheck.Sink].
func (r *filterReporter) Name() string { return "glovebox-filter" }

// ContainerStart implements [seccheck.Sink].
func (r *filterReporter) ContainerStart(context.Context, seccheck.FieldSet, *pb.Start) error {
	what := filterIsSupervisors
	if slices.Equal(r.given, r.now) { // its variables were never filled in
		what = "warning: the filter of system calls is not the supervisor's, which is for other settings"
	}
	if util.ErrorLogger != nil {
		fmt.Fprintln(util.ErrorLogger, what)
	}
	return nil
}

const filterIsSupervisors = "the filter of system calls is the supervisor's"
