package gvisor

import (
	"reflect"

	"gvisor.dev/gvisor/pkg/sentry/kernel"
)

// measureClock has the kernel's clock measured now, and reports whether it could,
// so that a box's programs tell the time by themselves from the start.
//
// They read it from memory that gVisor keeps up to date, once it has measured
// the processor's clock against the system's: twice, a second apart. Until then
// each look is a system call, and Python alone looks 400 times while it starts.
// So the second measurement is made when the guest starts its first thread,
// some ten milliseconds after the first. What that is less exact (a microsecond
// in ten milliseconds) the next one corrects without a jump, a second later.
//
// Where the result goes is not to be had from the kernel but by its name.
func measureClock(k *kernel.Kernel) bool {
	f := reflect.ValueOf(k).Elem().FieldByName("vdsoParams")
	if !f.IsValid() || f.Type() != reflect.TypeFor[*kernel.VDSOParamPage]() || f.IsNil() {
		return false
	}
	// The updater measures when it starts, and each second from then on.
	k.Timekeeper().PauseUpdates()
	k.Timekeeper().ResumeUpdates((*kernel.VDSOParamPage)(f.UnsafePointer()))
	return true
}
