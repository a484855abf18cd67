package safepath

import "syscall"

// pathOnly is nothing here: what may not be read cannot be opened.
const pathOnly = 0

func changeTime(st *syscall.Stat_t) int64 { return st.Ctimespec.Nano() }
