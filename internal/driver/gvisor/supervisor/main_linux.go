package supervisor

import (
	"crypto/rand"
	"fmt"
	"net"
	"os"
	"os/signal"
	"path/filepath"
	"runtime/debug"
	"strconv"

	"golang.org/x/sys/unix"
	"gvisor.dev/gvisor/pkg/log"

	"github.com/glovebox-dev/glovebox/internal/driver/gvisor/builds"
	"github.com/glovebox-dev/glovebox/internal/driver/gvisor/cgroup"
	"github.com/glovebox-dev/glovebox/internal/driver/gvisor/checkpoint"
	"github.com/glovebox-dev/glovebox/internal/driver/gvisor/message"
	"github.com/glovebox-dev/glovebox/internal/driver/gvisor/rootfs"
	"github.com/glovebox-dev/glovebox/internal/driver/gvisor/users"
	"github.com/glovebox-dev/glovebox/internal/state"
)

// driverFD is the descriptor of a supervisor's connection to its driver.
const driverFD = 3

// KeptFDs returns the descriptors that a supervisor with these arguments receives:
// the connection to its driver, and a tree for each argument from the fifth on. The
// first tree is the guest.
func KeptFDs(args []string) map[int]bool {
	fds := map[int]bool{driverFD: true}
	for i := range len(args) - 4 {
		fds[driverFD+1+i] = true
	}
	return fds
}

// gcPercent is the garbage at which a garbage collection begins, in per cent of the memory
// in use. That memory grows with the number of boxes.
const gcPercent = 50

// Main is the supervisor's main function, with all arguments of its process. It
// returns the exit status.
func Main(args []string) int {
	args = args[1:]
	if os.Getenv("GOGC") == "" {
		debug.SetGCPercent(gcPercent)
	}
	// The supervisor logs to the server, which may die first. SIGPIPE is caught rather
	// than ignored, because children inherit an ignored signal.
	signal.Notify(make(chan os.Signal, 1), unix.SIGPIPE)
	stderr := os.Stderr
	log.SetTarget(log.GoogleEmitter{Writer: &log.Writer{Next: stderr}})
	log.SetLevel(log.Warning)
	if len(args) < 3 {
		fmt.Fprintf(stderr, "%s: started by hand; it is a part of glovebox\n", message.SupervisorName)
		return 2
	}
	// Mounts that this process makes stay in its namespace. Unmounts on the host
	// also take effect here.
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_SLAVE, ""); err != nil {
		fmt.Fprintf(stderr, "%s: detach mounts: %v\n", message.SupervisorName, err)
		return 1
	}
	conn, err := message.FileConn(os.NewFile(driverFD, "driver"))
	if err != nil {
		fmt.Fprintf(stderr, "%s: %v\n", message.SupervisorName, err)
		return 1
	}
	dir := filepath.Join(args[0], "gvisor")
	null, err := os.OpenFile(os.DevNull, os.O_RDWR, 0)
	if err != nil {
		fmt.Fprintf(stderr, "%s: %v\n", message.SupervisorName, err)
		return 1
	}
	// gVisor gives its own standard streams to a box.
	os.Stdin, os.Stdout, os.Stderr = null, null, null
	s := &supervisor{
		name:   rand.Text(),
		dir:    dir,
		guest:  args[1],
		null:   null,
		groups: cgroup.Find(users.RootIsRoot()),
		keys:   checkpoint.Keys{Guest: args[1]},
		builds: builds.Set{Dir: filepath.Join(dir, message.BuildsDir)},
		bases:  state.Bases{Dir: filepath.Join(dir, message.BasesDir)},
		boxes:  map[string]*box{},
	}
	if s.holds, err = s.builds.Hold(s.guest); err != nil {
		fmt.Fprintf(stderr, "%s: keep this build: %v\n", message.SupervisorName, err)
		return 1
	}
	s.hostRoot = onceMade(func() (*rootfs.Tree, error) {
		return rootfs.MakeHost(filepath.Join(s.dir, "host"), 0, nil)
	})
	s.hostGuest = onceMade(func() (*rootfs.Tree, error) {
		return rootfs.MakeGuest(filepath.Join(s.dir, "guest"), s.guest, 0, nil)
	})
	if shown := args[3:]; len(shown) > 0 {
		if s.firstUser, err = strconv.Atoi(args[2]); err != nil {
			fmt.Fprintf(stderr, "%s: %v\n", message.SupervisorName, err)
			return 1
		}
		given := make([]rootfs.Given, len(shown))
		for i, path := range shown {
			given[i] = rootfs.Given{Source: path, To: path, FD: driverFD + 1 + i}
		}
		given[0].To = rootfs.GuestName
		s.userRoot = onceMade(func() (*rootfs.Tree, error) {
			return rootfs.MakeHost(filepath.Join(s.dir, "host-users"), s.firstUser, given[1:])
		})
		s.userGuest = onceMade(func() (*rootfs.Tree, error) {
			return rootfs.MakeGuest(filepath.Join(s.dir, "guest-users"), s.guest, s.firstUser, given[:1])
		})
	}
	s.serve(conn.(*net.UnixConn))
	return 0
}
