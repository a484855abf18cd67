package gvisor

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

// kernelFilter is the filter that the kernels of a maker's boxes put over
// themselves, compiled once for all of them. Each would take some seven
// milliseconds of a processor to compile its own.
//
// gVisor can use a program that was compiled before, in which the numbers that
// differ are still to be filled in, if it knows one for the settings that the
// kernel has. It knows none where it is built without Bazel. So a maker makes
// one, and the kernels find it in their specifications: they have no other way
// to get anything of ours, before they give up their root directory and after.
type kernelFilter struct {
	boxes   atomic.Int32
	program atomic.Pointer[string] // nil until it is compiled
}

// kernelFilterKey is the annotation of a specification that has the program.
const kernelFilterKey = "glovebox.dev/kernel-filter"

// give adds the program to a specification, once there is one. Compiling it
// begins, in the background, when a second box is made: who makes but one would
// have nothing of it.
func (f *kernelFilter) give(spec *specs.Spec) {
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

func (f *kernelFilter) compile() {
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
		// It is not used in this process; but what fails here fails in a
		// kernel, and there is nobody to tell.
		return string(data), registerFilter(program)
	}()
	if err != nil {
		log.Warningf("each box's kernel compiles its own filter of system calls: %v", err)
		return
	}
	f.program.Store(&text)
}

// kernelFilterOptions are those of [maker.config], as the kernel sees them when
// it makes its filter. Were they others, it would not find the program, and
// compile its own.
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

// compileFilter compiles what [filter.Install] would, for any value of the
// variables. gVisor compiles it twice, and fails if anything but the variables
// is different.
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

// variablePlatform has gVisor make its rules with the values of vars. It takes
// those of the platform in preference to its own.
type variablePlatform struct {
	platform.SeccompInfo
	vars precompiledseccomp.Values
}

// Variables implements [platform.SeccompInfo].
func (p variablePlatform) Variables() precompiledseccomp.Values { return p.vars }

// makePIDVariable corrects the one rule in which gVisor has the number of the
// process that compiles, where it has a variable in the others.
func makePIDVariable(rules seccomp.SyscallRules, vars precompiledseccomp.Values) error {
	const call, name = unix.SYS_RT_TGSIGQUEUEINFO, "self_pid"
	if _, ok := vars[name+"_low32bits"]; !ok {
		return errors.New("gVisor's filter has no variable for the number of its process")
	}
	rule, ok := rules.Get(call).(seccomp.PerArg)
	if !ok || rule[0] != seccomp.EqualTo(os.Getpid()) {
		return fmt.Errorf("gVisor's rule for rt_tgsigqueueinfo is not what it was: %v", rules.Get(call))
	}
	rule[0] = seccomp.EqualTo(vars.GetUint64(name))
	rules.Remove(call)
	rules.Set(call, rule)
	return nil
}

// knownPrograms is gVisor's list of the programs that were compiled before. If
// it has another name one day, this is a variable of ours that stays nil.
//
//go:linkname knownPrograms gvisor.dev/gvisor/runsc/boot/filter.precompiledPrograms
var knownPrograms map[string]precompiledseccomp.Program

// registerFilter has gVisor use program in this process.
func registerFilter(program precompiledseccomp.Program) error {
	filter.GetPrecompiled(program.Name) // which makes the list when it is first asked
	if knownPrograms == nil {
		return errors.New("gVisor's list of filters is not where it was")
	}
	knownPrograms[program.Name] = program
	if _, ok := filter.GetPrecompiled(program.Name); !ok {
		return errors.New("gVisor's list of filters is not what it was")
	}
	return nil
}

// useKernelFilter has a kernel use the program of its specification, if there
// is one. If that is not for its settings, it compiles its own.
func useKernelFilter(spec *specs.Spec) {
	var program precompiledseccomp.Program
	if json.Unmarshal([]byte(spec.Annotations[kernelFilterKey]), &program) != nil || registerFilter(program) != nil {
		return
	}
	seccheck.Global.AppendSink(&filterReporter{given: slices.Clone(program.Bytecode32), now: program.Bytecode32},
		[]seccheck.PointReq{{Pt: seccheck.PointContainerStart}})
}

// filterReporter says in the box's log whether the program that a kernel was
// given is the one in force. gVisor calls it once it is under a filter.
type filterReporter struct {
	seccheck.SinkDefaults
	given, now []uint32
}

// Name implements [seccheck.Sink].
func (r *filterReporter) Name() string { return "glovebox-filter" }

// ContainerStart implements [seccheck.Sink].
func (r *filterReporter) ContainerStart(context.Context, seccheck.FieldSet, *pb.Start) error {
	what := filterIsMakers
	if slices.Equal(r.given, r.now) { // its variables were never filled in
		what = "warning: the filter of system calls is not the maker's, which is for other settings"
	}
	if util.ErrorLogger != nil {
		fmt.Fprintln(util.ErrorLogger, what)
	}
	return nil
}

const filterIsMakers = "the filter of system calls is the maker's"
