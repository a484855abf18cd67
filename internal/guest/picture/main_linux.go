package picture

import (
	"errors"
	"os"
	"runtime/debug"
	"strconv"
	"time"

	"golang.org/x/sys/unix"

	"github.com/glovebox-dev/glovebox/internal/guest/procfs"
)

// Main is the command that shrinks the picture at descriptor 0, or with a width
// turns it into sixels. To descriptor 1 it writes a byte for success or failure,
// and then the picture or the reason why there is none.
func Main(args []string) error {
	if len(args) < 1 || len(args) > 2 {
		return errors.New("picture takes a MIME type, and for sixels a width")
	}
	work := func() ([]byte, error) { return shrink(os.NewFile(0, "picture"), args[0]) }
	if len(args) == 2 {
		width, err := strconv.Atoi(args[1])
		if err != nil {
			return err
		}
		work = func() ([]byte, error) { return encodeSixel(os.NewFile(0, "picture"), args[0], width) }
	}
	if err := limit(); err != nil {
		return err
	}
	answer := []byte{made}
	data, err := work()
	if why, ok := errors.AsType[refusal](err); ok {
		answer, data, err = []byte{refused}, []byte(why), nil
	}
	if err != nil {
		return err
	}
	_, err = os.NewFile(1, "answer").Write(append(answer, data...))
	return err
}

// The first byte of the answer of Main.
const (
	made    = '+'
	refused = '-'
)

// maxTime bounds the shrinking of one picture.
const maxTime = 10 * time.Second

// limit bounds the memory and the time of this process.
func limit() error {
	debug.SetGCPercent(20)
	text, err := procfs.ReadBounded("/proc/self/status")
	if err != nil {
		return err
	}
	// The Go runtime has reserved some memory already. gVisor limits addresses
	// only, and Go reserves them for its heap 64 MiB at a time.
	had := procfs.ParseMeminfo(text)
	limits := map[int]uint64{
		unix.RLIMIT_DATA: uint64(had["VmData"]) + (maxMemory+headroom)*raceFactor,
		unix.RLIMIT_AS:   uint64(had["VmSize"]) + headroom*raceFactor,
		unix.RLIMIT_CPU:  uint64(maxTime.Seconds()) * raceFactor, unix.RLIMIT_FSIZE: 0, unix.RLIMIT_CORE: 0,
	}
	for which, n := range limits {
		var was unix.Rlimit
		if err := unix.Getrlimit(which, &was); err != nil {
			return os.NewSyscallError("getrlimit", err)
		}
		n = min(n, was.Max)
		if err := unix.Setrlimit(which, &unix.Rlimit{Cur: n, Max: n}); err != nil {
			return os.NewSyscallError("setrlimit", err)
		}
	}
	return nil
}
