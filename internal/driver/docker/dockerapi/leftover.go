package dockerapi

import (
	"time"

	"github.com/glovebox-dev/glovebox/internal/driver/container"
)

// leftoverAge is the minimum age of a leftover. A younger container that does not
// run may still be about to start.
const leftoverAge = 10 * time.Minute

// IsLeftover reports whether a container that does not run is unused. The
// leftovers are the containers of any state directory, except the boxes of the
// state directory with the identity own.
func IsLeftover(labels map[string]string, made time.Time, own string, now time.Time) bool {
	if labels[container.LabelRole] == "" && labels[container.LabelState] == own {
		return false // the driver lists it
	}
	return now.Sub(made) > leftoverAge
}
