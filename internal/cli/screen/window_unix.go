//go:build unix

package screen

import "golang.org/x/sys/unix"

// windowWidth returns the width of a terminal in characters and in pixels. Zeros
// are not known.
func windowWidth(fd int) (columns, pixels int) {
	size, err := unix.IoctlGetWinsize(fd, unix.TIOCGWINSZ)
	if err != nil {
		return 0, 0
	}
	return int(size.Col), int(size.Xpixel)
}
