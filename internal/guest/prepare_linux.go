package guest

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/glovebox-dev/glovebox/internal/sandbox"
)

// ownDirs makes the directories of a comma-separated list, if they are not
// there, and gives them to the user. A driver whose image cannot have files of
// that user asks for it.
func ownDirs(list string) error {
	if list == "" {
		return nil
	}
	for dir := range strings.SplitSeq(list, ",") {
		if err := os.Mkdir(dir, 0o755); err != nil && !errors.Is(err, fs.ErrExist) {
			return err
		}
		if err := os.Lchown(dir, sandbox.UserUID, sandbox.UserUID); err != nil {
			return err
		}
	}
	return nil
}

// Limits is what the command "limits" prints, as JSON: what the sandbox's
// kernel says of the limits that it keeps, to a program of the calling user.
type Limits struct {
	DiskBytes    int64    `json:"disk_bytes"`   // size of the root file system
	Processes    int64    `json:"processes"`    // of the calling user
	NoNewPrivs   bool     `json:"no_new_privs"` //
	Capabilities string   `json:"capabilities"` // effective, in hexadecimal
	Interfaces   []string `json:"interfaces"`   // of the network
}

// limitsMain prints Limits on standard output.
func limitsMain([]string) error {
	var st unix.Statfs_t
	if err := unix.Statfs("/", &st); err != nil {
		return fmt.Errorf("statfs: %w", err)
	}
	var nproc unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NPROC, &nproc); err != nil {
		return fmt.Errorf("getrlimit: %w", err)
	}
	status, err := os.ReadFile("/proc/self/status")
	if err != nil {
		return err
	}
	l := Limits{
		DiskBytes: int64(st.Blocks) * st.Bsize,
		Processes: int64(min(nproc.Max, 1<<62)),
	}
	for line := range strings.Lines(string(status)) {
		if value, ok := strings.CutPrefix(line, "CapEff:"); ok {
			l.Capabilities = strings.TrimSpace(value)
		}
	}
	// Not every kernel shows it in the status.
	noNewPrivs, err := unix.PrctlRetInt(unix.PR_GET_NO_NEW_PRIVS, 0, 0, 0, 0)
	if err != nil {
		return fmt.Errorf("prctl: %w", err)
	}
	l.NoNewPrivs = noNewPrivs == 1
	interfaces, err := net.Interfaces()
	if err != nil {
		return fmt.Errorf("list network interfaces: %w", err)
	}
	for _, i := range interfaces {
		l.Interfaces = append(l.Interfaces, i.Name)
	}
	return json.NewEncoder(os.Stdout).Encode(&l)
}
