package sentry

import (
	"sync"
	_ "unsafe" // for go:linkname

	"gvisor.dev/gvisor/pkg/context"
	"gvisor.dev/gvisor/pkg/errors/linuxerr"
	"gvisor.dev/gvisor/pkg/log"
	"gvisor.dev/gvisor/pkg/sentry/kernel"
	"gvisor.dev/gvisor/pkg/sentry/seccheck"
	pb "gvisor.dev/gvisor/pkg/sentry/seccheck/points/points_go_proto"
)

// startObserver does the work in the sentry that requires a complete box: it acts
// when the guest starts its first thread. It also enforces the process limit.
// gVisor calls it like any observer of programs.
type startObserver struct {
	seccheck.SinkDefaults
	once  sync.Once
	limit processLimit
}

//go:linkname pointsOnce gvisor.dev/gvisor/pkg/sentry/seccheck.initOnce
var pointsOnce sync.Once

// observeStart registers a startObserver; it runs in a sentry. gVisor would build a
// list of several hundred observable points, in which other observers are found by
// name. There are no others, so observeStart prevents that list, which takes a
// fiftieth of a start.
func observeStart(limit processLimit) {
	pointsOnce.Do(func() {})
	seccheck.Global.AppendSink(&startObserver{limit: limit}, []seccheck.PointReq{{Pt: seccheck.PointClone}})
}

// Name implements [seccheck.Sink].
func (o *startObserver) Name() string { return "glovebox" }

// Clone implements [seccheck.Sink]. Its error becomes the error of the program's
// clone(2).
func (o *startObserver) Clone(ctx context.Context, _ seccheck.FieldSet, _ *pb.CloneInfo) error {
	o.once.Do(func() {
		if k := kernel.KernelFromContext(ctx); k == nil || !measureClock(k) {
			log.Warningf("the clock is not measured early: gVisor's kernel has changed")
		}
		go pollWhenBusy()
	})
	t := kernel.TaskFromContext(ctx)
	if t == nil {
		return linuxerr.EAGAIN // gVisor has changed: better no new process than no limit
	}
	return o.limit.check(t)
}
