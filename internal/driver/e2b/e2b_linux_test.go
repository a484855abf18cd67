package e2b_test

import (
	"bufio"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/glovebox-dev/glovebox/internal/auth"
	"github.com/glovebox-dev/glovebox/internal/driver"
	"github.com/glovebox-dev/glovebox/internal/driver/drivertest"
	"github.com/glovebox-dev/glovebox/internal/driver/e2b"
	"github.com/glovebox-dev/glovebox/internal/driver/fake"
	"github.com/glovebox-dev/glovebox/internal/e2bapi"
	"github.com/glovebox-dev/glovebox/internal/engine"
	"github.com/glovebox-dev/glovebox/internal/sandbox"
	"github.com/glovebox-dev/glovebox/internal/store"
)

// The tests' E2B is our own server of its protocol, which E2B's SDKs find
// right. It is a process of its own, and these say where it is, and that a
// process is to be it.
const (
	urlVariable    = "GLOVEBOX_E2B_TEST_URL"
	serverVariable = "GLOVEBOX_E2B_TEST_SERVER"
)

const token = "a-token-that-is-for-tests-only"

func TestMain(m *testing.M) {
	fake.Hook()
	if dir := os.Getenv(serverVariable); dir != "" {
		if err := serve(dir); err != nil {
			fmt.Fprintln(os.Stderr, "serve E2B's protocol:", err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	if os.Getenv(urlVariable) != "" {
		drivertest.Main(m, harness) // as the owner of a box
	}
	// How large a file can be is the guest's to show, and takes long this way.
	flag.Parse()
	if err := flag.Set("test.short", "true"); err != nil {
		panic(err)
	}
	dir, err := os.MkdirTemp("", "e2b")
	if err != nil {
		panic(err)
	}
	stop, err := startServer(dir)
	if err != nil {
		panic(err)
	}
	code := m.Run()
	if err := stop(); err != nil {
		fmt.Fprintln(os.Stderr, "the server:", err)
		code = 1
	}
	if err := os.RemoveAll(dir); err != nil {
		fmt.Fprintln(os.Stderr, err)
		code = 1
	}
	os.Exit(code)
}

// startServer starts the server as a process of its own, and returns what ends
// it and tells whether sandboxes were left.
func startServer(dir string) (stop func() error, err error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	cmd := exec.Command(self, "-test.run=^$")
	cmd.Env = append(os.Environ(), serverVariable+"="+dir)
	cmd.Stderr = os.Stderr
	in, err := cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	line, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		return nil, err
	}
	if err := os.Setenv(urlVariable, strings.TrimSpace(line)); err != nil {
		return nil, err
	}
	return func() error { in.Close(); return cmd.Wait() }, nil
}

// serve serves E2B's protocol until the end of its input. Of the requests to
// the control plane some fail as E2B's do on a bad day.
func serve(dir string) (err error) {
	ctx := context.Background()
	drv, err := fake.New(fake.Options{Dir: filepath.Join(dir, "fake"), Pretend: sandbox.ControlNames(), Stderr: os.Stderr})
	if err != nil {
		return err
	}
	defer drv.Close()
	st, err := store.Open(ctx, store.Options{Dir: dir})
	if err != nil {
		return err
	}
	defer st.Close()
	eng, err := engine.New(engine.Options{
		Driver: drv, Store: st, StateDir: dir, MaxSandboxes: 1000, MaxRuns: 2000,
		Defaults: sandbox.Limits{MemoryBytes: 128 << 20}, // as little as the suite asks for
	})
	if err != nil {
		return err
	}
	defer eng.Close(ctx)
	users, err := auth.New(auth.Options{Static: token})
	if err != nil {
		return err
	}
	access, err := auth.NewAccess(filepath.Join(dir, "key"))
	if err != nil {
		return err
	}
	api := e2bapi.New(e2bapi.Options{Engine: noVolumes{eng}, Auth: users, Access: access, Log: slog.New(slog.DiscardHandler)})
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	srv := &http.Server{Handler: failing(api.Authenticate(api))}
	go srv.Serve(ln)
	defer srv.Close()
	fmt.Printf("http://%s\n", ln.Addr())
	if _, err := io.Copy(io.Discard, os.Stdin); err != nil {
		return err
	}
	// A sandbox that was just being made when its owner was killed may appear
	// when nobody looks any more. It has a label, for the next who does, and an
	// end.
	left, err := eng.List(ctx, principal)
	for _, sb := range left {
		if sb.State != sandbox.Stopped && (sb.Ends.IsZero() || len(sb.Labels) == 0) {
			err = errors.Join(err, fmt.Errorf("a sandbox was left for good: %+v", sb))
		}
	}
	return err
}

// principal is whose the token is.
const principal = "environment"

// failing has every fifteenth request to the control plane fail, some with and some
// without effect.
func failing(next http.Handler) http.Handler {
	var n atomic.Int64
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("X-Api-Key") != "" {
			switch n.Add(1) % 60 {
			case 4:
				http.Error(w, `{"code":429,"message":"too many requests"}`, http.StatusTooManyRequests)
				return
			case 19:
				http.Error(w, "upstream connect error", http.StatusServiceUnavailable)
				return
			case 34:
				if r.Method != http.MethodPost {
					http.Error(w, `{"code":500,"message":"internal"}`, http.StatusInternalServerError)
					return
				}
			case 49:
				if r.Method == http.MethodDelete {
					next.ServeHTTP(nowhere{http.Header{}}, r) // done, but nobody learns of it
					panic(http.ErrAbortHandler)
				}
			}
		}
		next.ServeHTTP(w, r)
	})
}

type nowhere struct{ h http.Header }

func (n nowhere) Header() http.Header         { return n.h }
func (n nowhere) Write(b []byte) (int, error) { return len(b), nil }
func (n nowhere) WriteHeader(int)             {}

// unisolated is a driver whose server isolates nothing.
type unisolated struct{ *e2b.Driver }

func (d unisolated) Info() driver.Info {
	i := d.Driver.Info()
	i.Isolates = false
	return i
}

// withoutSnapshots is a driver whose server takes no snapshots. Its boxes ask for them,
// and are refused.
type withoutSnapshots struct{ unisolated }

func (d withoutSnapshots) Info() driver.Info {
	i := d.unisolated.Info()
	i.Features.Snapshot = false
	return i
}

var harness = drivertest.Harness{
	Name: "e2b",
	Open: func(dir string) (driver.Driver, error) {
		d, err := e2b.New(options(dir, os.Getenv(urlVariable)))
		if err != nil {
			return nil, err
		}
		return withoutSnapshots{unisolated{d}}, nil
	},
	Spec:       spec,
	Goroutines: []string{"net/http.(*persistConn)"},
	Python:     "python3",
	NoPreviews: true,
}

func options(dir, url string) e2b.Options {
	return e2b.Options{StateDir: dir, Key: token, APIURL: url, SandboxURL: url, Bare: true}
}

func spec() *driver.Spec {
	return &driver.Spec{
		ID: sandbox.NewID(), Image: sandbox.ImageHost, Hostname: "box", Limits: sandbox.DefaultLimits(), Network: sandbox.NetworkNone,
		AllowUnenforced: []sandbox.ControlName{sandbox.ControlProcesses},
	}
}

func TestDriver(t *testing.T) { drivertest.Run(t, harness) }

// noVolumes is an engine whose volumes no request of the suite uses.
type noVolumes struct{ *engine.Engine }

// Labels says that no sandbox has public ports.
func (noVolumes) Labels(context.Context, string) (map[string]string, error) { return nil, nil }

func (noVolumes) Volume(context.Context, string) (e2bapi.Volume, error) {
	return nil, sandbox.Errorf(sandbox.Unsupported, "there are no volumes")
}
