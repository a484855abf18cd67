package safepath

import "syscall"

// pathOnly is 0: macOS cannot open an unreadable directory.
const pathOnly = 0

func changeTime(st *syscall.Stat_t) int64 { return st.Ctimespec.Nano() }

func accessTime(st *syscall.Stat_t) int64 { return st.Atimespec.Nano() }
