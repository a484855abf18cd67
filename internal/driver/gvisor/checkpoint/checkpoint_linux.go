package checkpoint

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"

	"gvisor.dev/gvisor/pkg/sentry/control"
	"gvisor.dev/gvisor/pkg/sentry/state/checkpointfiles"
	"gvisor.dev/gvisor/pkg/state/statefile"
	"gvisor.dev/gvisor/pkg/urpc"
	"gvisor.dev/gvisor/runsc/boot"
	"gvisor.dev/gvisor/runsc/boot/procfs"

	"github.com/glovebox-dev/glovebox/internal/driver/gvisor/message"
	"github.com/glovebox-dev/glovebox/internal/driver/gvisor/rootfs"
	"github.com/glovebox-dev/glovebox/internal/sandbox"
	"github.com/glovebox-dev/glovebox/internal/sealed"
	"github.com/glovebox-dev/glovebox/internal/state"
)

// Files are the files of a state, in the order in which gVisor takes them. The last
// has the memory and the writable layer.
var Files = []string{checkpointfiles.StateFileName, checkpointfiles.PagesMetadataFileName, message.PagesFile}

const (
	// smallFile is the room for each of the files without memory.
	smallFile = 16 << 20
	pageSize  = 4096
)

// A Writer is a state that a sentry writes.
type Writer struct {
	*state.Writer
	files []*os.File
	rooms []int64
}

// NewWriter begins to write the state at dir of a box that is about to be paused. If
// this process dies before the state is complete, [state.Interrupted] reports that. If key
// is not nil, the state is encrypted with it.
func NewWriter(dir string, key sealed.Key) (*Writer, error) {
	w, err := state.New(dir, key)
	return &Writer{Writer: w}, err
}

// MakeRoom makes room on the disk for all of the state of the paused box whose sentry
// has the files f: gVisor can meet a full disk and report success.
func (w *Writer) MakeRoom(f SentryFiles) error {
	w.rooms = []int64{smallFile, smallFile, f.Memory + f.Written + smallFile}
	for i, name := range Files {
		file, err := w.Create(name, w.rooms[i])
		if err != nil {
			return err
		}
		w.files = append(w.files, file)
	}
	return nil
}

// Room returns how many bytes the state may have at most.
func (w *Writer) Room() int64 { return w.rooms[0] + w.rooms[1] + w.rooms[2] }

// Save has the sentry of conn write the state of its paused box. The box is paused
// afterwards, too.
//
// gVisor could end the sentry itself when it has written the state. But it also does
// so if it could not write it. So it is asked to let the box go on; the caller has
// paused the box once more than gVisor does meanwhile.
func (w *Writer) Save(conn *urpc.Client) error {
	return conn.Call(boot.ContMgrCheckpoint, &control.SaveOpts{
		Metadata:      statefile.CompressionLevelNone.ToMetadata(),
		HavePagesFile: true,
		Resume:        true,
		FilePayload:   urpc.FilePayload{Files: w.files},
	}, nil)
}

// ErrSocket means that a state contains a socket of the host, and cannot be restored.
// The guest may have closed it a moment ago: another save may succeed.
var ErrSocket = sandbox.WithHint(sandbox.Errorf(sandbox.Conflict, "the sandbox holds a connection to the server open"),
	"end what is connected to the sandbox, and try again")

// hostSocket matches what the kernel's objects contain if a socket of the host is
// among them: the type of its endpoint, or the number of a descriptor that a restored
// sentry does not have. The sentry closes a socket a moment before it forgets it, so
// that the list of its descriptors does not show this.
var hostSocket = regexp.MustCompile(`HostConnectedEndpoint|host:([7-9]|[1-9][0-9])`)

// Check returns [ErrSocket], or an error if the sentry wrote a file beyond the room for
// it, so that it may have met a full disk, or if a file cannot be whole.
func (w *Writer) Check() error {
	objects, err := io.ReadAll(io.NewSectionReader(w.files[0], 0, w.rooms[0]))
	if err != nil {
		return err
	}
	if hostSocket.Match(objects) {
		return ErrSocket
	}
	for i, f := range w.files {
		fi, err := f.Stat()
		if err != nil {
			return err
		}
		if n := fi.Size(); n == 0 || n > w.rooms[i] || i == len(Files)-1 && n%pageSize != 0 {
			return sandbox.Errorf(sandbox.Internal, "gVisor wrote %d bytes of %s, and room was made for %d", n, Files[i], w.rooms[i])
		}
	}
	return nil
}

// Restore has a new sentry, which has started no program, read the state of a box.
// When it returns, the programs run and all of their memory is there. If that takes
// longer than limit, it calls kill, which ends the sentry: gVisor can wait for ever.
func Restore(conn *urpc.Client, files []*os.File, limit time.Duration, kill func() error) error {
	result := make(chan error, 1)
	go func() {
		result <- conn.Call(boot.ContMgrRestore, &boot.RestoreOpts{
			HavePagesFile: true,
			FilePayload:   urpc.FilePayload{Files: files},
		}, nil)
	}()
	late := time.NewTimer(limit)
	defer late.Stop()
	select {
	case err := <-result:
		return err
	case <-late.C:
		err := errors.Join(fmt.Errorf("gVisor does not complete the restore in %v", limit), kill())
		<-result
		return err
	}
}

// ListFiles adds to a manifest the files that programs of a paused box use and that
// its state does not contain. onHost means that the box has the image "host".
func ListFiles(conn *urpc.Client, m *state.Manifest, onHost, workspace bool) error {
	var dump []procfs.ProcessProcfsDump
	if err := conn.Call(boot.ContMgrProcfsDump, nil, &dump); err != nil {
		return fmt.Errorf("list the files that programs use: %w", err)
	}
	used := map[string]bool{}
	for _, p := range dump {
		used[p.Exe], used[p.CWD] = true, true
		for _, fd := range p.FDs {
			used[fd.Path] = true
		}
		for _, mapping := range p.Maps {
			used[mapping.Pathname] = true
		}
	}
	for path := range used {
		if path != filepath.Clean(path) {
			continue
		}
		top, _, _ := strings.Cut(strings.TrimPrefix(path, "/"), "/")
		switch {
		case workspace && (path == sandbox.WorkDir || strings.HasPrefix(path, sandbox.WorkDir+"/")):
			// gVisor itself keeps a file that has no name any more.
			if !strings.HasSuffix(path, " (deleted)") {
				m.Needed = append(m.Needed, path)
			}
		case onHost && slices.Contains(rootfs.SystemDirs, top):
			// A file that is not on the machine is in the writable layer.
			if file, err := state.HostFileAt(path); err == nil {
				m.Host = append(m.Host, file)
			}
		}
	}
	slices.Sort(m.Needed)
	slices.SortFunc(m.Host, func(a, b state.HostFile) int { return strings.Compare(a.Path, b.Path) })
	return nil
}
