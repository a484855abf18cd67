package run

import (
	"testing"
	"testing/synctest"
	"time"
)

// TestLostPlots: figures that cannot be read count as not kept.
func TestLostPlots(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		r := w.mustBegin(t, time.Minute)
		r.plots = &plots{dir: "/plots", user: "user"} // before the end of the program
		w.guest.events <- exited(0)
		if _, err := r.Wait(t.Context()); err != nil {
			t.Fatal(err)
		}
		if got, err := r.Files().Results(); err != nil || got.Omitted != 1 {
			t.Errorf("%+v, %v; want one that was not kept", got, err)
		}
	})
}
