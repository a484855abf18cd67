package gvisor

import (
	"sync"
	_ "unsafe" // for go:linkname

	"gvisor.dev/gvisor/pkg/context"
	"gvisor.dev/gvisor/pkg/log"
	"gvisor.dev/gvisor/pkg/sentry/kernel"
	"gvisor.dev/gvisor/pkg/sentry/seccheck"
	pb "gvisor.dev/gvisor/pkg/sentry/seccheck/points/points_go_proto"
)

// startObserver does what is to be done in a box's kernel when all of it is there:
// when the guest starts its first thread. gVisor calls it as it calls any observer
// of what programs do.
type startObserver struct {
	seccheck.SinkDefaults
	once sync.Once
}

//go:linkname pointsOnce gvisor.dev/gvisor/pkg/sentry/seccheck.initOnce
var pointsOnce sync.Once

// observeStart registers a startObserver; it is for a sentry. Other observers would
// be found by the names of what can be observed, a few hundred; as there are none,
// gVisor is not to make the list of them, which takes a fiftieth of a start.
func observeStart() {
	pointsOnce.Do(func() {})
	seccheck.Global.AppendSink(new(startObserver), []seccheck.PointReq{{Pt: seccheck.PointClone}})
}

// Name implements [seccheck.Sink].
func (o *startObserver) Name() string { return "glovebox" }

// Clone implements [seccheck.Sink].
func (o *startObserver) Clone(ctx context.Context, _ seccheck.FieldSet, _ *pb.CloneInfo) error {
	o.once.Do(func() {
		if k := kernel.KernelFromContext(ctx); k == nil || !measureClock(k) {
			log.Warningf("the clock is not measured early: gVisor's kernel is not what it was")
		}
		go pollWhenBusy()
	})
	return nil
}
