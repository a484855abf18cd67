package files

import (
	"io"
	"net/http"
	"time"

	"github.com/glovebox-dev/glovebox/internal/guest/account"
)

// A Server serves the files of a sandbox. Its methods are safe for concurrent
// use.
type Server struct {
	accounts *account.Accounts
	preview  Preview
	shared   bool
	changes  func(http.HandlerFunc) http.HandlerFunc
	marked   markedTree
	watches  *watches
	turns    turns
	started  time.Time
	// editing and searching have a place for each edit and search under way. A search
	// holds a thread.
	editing, searching chan struct{}
}

// Preview returns the preview of a picture of size bytes, or nil if models can
// be shown the picture as it is. Closing done ends the work.
type Preview func(done <-chan struct{}, a *account.Account, mime string, size int64, open func() io.Reader) ([]byte, error)

// New returns a server of files. The caller ends it with Close. If shared is
// set, the root file system is not the sandbox's own, and is not served as a
// whole. Handlers that change files are wrapped by changes.
func New(accounts *account.Accounts, preview Preview, shared bool, changes func(http.HandlerFunc) http.HandlerFunc) *Server {
	return &Server{accounts: accounts, preview: preview, shared: shared, changes: changes, watches: newWatches(), started: time.Now(),
		editing: make(chan struct{}, 1), searching: make(chan struct{}, 2)}
}

// Close ends every watch.
func (s *Server) Close() { s.watches.close() }
