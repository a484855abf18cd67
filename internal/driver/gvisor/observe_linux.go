package gvisor

import (
	"sync"

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

// observeStart registers a startObserver; it is for a sentry.
func observeStart() {
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
