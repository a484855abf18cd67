package guest

import (
	"bytes"
	"crypto/rand"
	"errors"
	"fmt"
	"io/fs"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/glovebox-dev/glovebox/internal/guest/rpc"
	"github.com/glovebox-dev/glovebox/internal/guestapi"
)

// A clone has what programs must know when a snapshot gave the box its state.
type clone struct {
	file string // see guestapi.GenerationFile
	tell func() // tells interpreters

	mu sync.Mutex
}

// cloned begins another generation.
func (c *clone) cloned(r *http.Request, _ *struct{}) (*struct{}, error) {
	if rpc.IsByProgram(r) {
		return nil, rpc.Errorf(guestapi.CodePermissionDenied, "programs of the sandbox cannot clone it")
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if err := c.count(); err != nil {
		return nil, rpc.Errorf(guestapi.CodeInternal, "begin a generation: %v", err)
	}
	c.tell()
	return &struct{}{}, nil
}

// count replaces the file of the generation.
func (c *clone) count() error {
	was, err := os.ReadFile(c.file)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	first, _, _ := bytes.Cut(was, []byte("\n"))
	n, _ := strconv.ParseUint(string(first), 10, 63)
	dir := filepath.Dir(c.file)
	if err := os.MkdirAll(dir, 0o711); err != nil {
		return err
	}
	// The directory also has the guest's socket, which only its own user can open.
	if err := os.Chmod(dir, 0o711); err != nil {
		return err
	}
	next := c.file + ".new"
	if err := os.WriteFile(next, fmt.Appendf(nil, "%d\n%s\n", n+1, rand.Text()), 0o644); err != nil {
		return err
	}
	return os.Rename(next, c.file)
}

// hostnameMain sets the hostname of the box, with the rights that its caller gives it.
func hostnameMain(args []string) error {
	if len(args) != 1 {
		return errors.New("hostname takes one argument")
	}
	return os.NewSyscallError("sethostname", unix.Sethostname([]byte(args[0])))
}
