package sentry

import (
	"reflect"

	"gvisor.dev/gvisor/pkg/sentry/kernel"
)

// measureClock makes the sentry measure its clock now, and reports whether it
// could. Programs then read the time without a system call from the start.
//
// Programs read the time from a memory page. gVisor fills it after it has measured
// the processor's clock against the system's clock twice, a second apart. Until
// then each read is a system call, and Python alone makes 400 of them at its start.
// So the second measurement happens when the guest starts its first thread, some
// ten milliseconds after the first. The loss of precision is a microsecond in ten
// milliseconds. The next measurement corrects it a second later, without a jump.
//
// The kernel exports no accessor for the page, so the field is read by its name.
func measureClock(k *kernel.Kernel) bool {
	f := reflect.ValueOf(k).Elem().FieldByName("vdsoParams")
	if !f.IsValid() || f.Type() != reflect.TypeFor[*kernel.VDSOParamPage]() || f.IsNil() {
		return false
	}
	// The updater measures when it starts, and then every second.
	k.Timekeeper().PauseUpdates()
	k.Timekeeper().ResumeUpdates((*kernel.VDSOParamPage)(f.UnsafePointer()))
	return true
}
