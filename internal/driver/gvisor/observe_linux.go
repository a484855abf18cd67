package gvisor

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

// startObserver does what is to be done in a box's kernel when all of it is there:
// when the guest starts its first thread. It also keeps the limit on processes.
// gVisor calls it as it calls any observer of what programs do.
type startObserver struct {
	seccheck.SinkDefaults
	once  sync.Once
	limit processLimit
}

//go:linkname pointsOnce gvisor.dev/gvisor/pkg/sentry/seccheck.initOnce
var pointsOnce sync.Once

// observeStart registers a startObserver; it is for a sentry. Other observers would
// be found by the names of what can be observed, a few hundred; as there are none,
// gVisor is not to make the list of them, which takes a fiftieth of a start.
func observeStart(limit processLimit) {
	pointsOnce.Do(func() {})
	seccheck.Global.AppendSink(&startObserver{limit: limit}, []seccheck.PointReq{{Pt: seccheck.PointClone}})
}

// Name implements [seccheck.Sink].
func (o *startObserver) Name() string { return "glovebox" }

// Clone implements [seccheck.Sink]. Its error is that of the program's clone(2).
func (o *startObserver) Clone(ctx context.Context, _ seccheck.FieldSet, _ *pb.CloneInfo) error {
	o.once.Do(func() {
		if k := kernel.KernelFromContext(ctx); k == nil || !measureClock(k) {
			log.Warningf("the clock is not measured early: gVisor's kernel is not what it was")
		}
		go pollWhenBusy()
	})
	t := kernel.TaskFromContext(ctx)
	if t == nil {
		return linuxerr.EAGAIN // gVisor is not what it was: no process is better than any number
	}
	return o.limit.check(t)
}
