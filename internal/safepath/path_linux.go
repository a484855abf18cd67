package safepath

import "golang.org/x/sys/unix"

// pathOnly opens what may not be read.
const pathOnly = unix.O_PATH
