package workspace

import (
	"time"

	"golang.org/x/sys/unix"
)

func coarseNow() time.Time {
	var ts unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_REALTIME_COARSE, &ts); err != nil {
		return time.Now().Add(-Tick)
	}
	return time.Unix(ts.Unix())
}
