//go:build linux

package cli

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/glovebox-dev/glovebox/internal/app"
	"github.com/glovebox-dev/glovebox/internal/driver"
	"github.com/glovebox-dev/glovebox/internal/driver/fake"
	"github.com/glovebox-dev/glovebox/internal/image/imagetest"
	"github.com/glovebox-dev/glovebox/internal/sandbox"
)

// The test binary is also the command glovebox of the scripts, with a driver
// more, and the fake driver's helper.
func TestMain(m *testing.M) {
	fake.Hook()
	glovebox := func() {
		p := &program{Streams: OS(), testDrivers: map[string]app.Maker{"fake": fakeDriver, "broken": brokenDriver, "container": containerDriver}}
		p.testAuto = strings.Fields(p.Getenv("GLOVEBOX_TEST_AUTO"))
		os.Exit(run(Signals(), expand(os.Args[0], os.Args[1:], p.Getenv), p))
	}
	testscript.Main(m, map[string]func(){"glovebox": glovebox, "code-sandbox-mcp": glovebox, "mcp-code-sandbox": glovebox})
}

// fakeDriver claims to enforce everything, so that sandboxes are not refused.
func fakeDriver(o app.DriverOptions) (driver.Driver, error) {
	return fake.New(fake.Options{Dir: filepath.Join(o.StateDir, "fake"), Pretend: sandbox.ControlNames()})
}

// A posing driver is the fake one that says other things of itself.
type posing struct {
	driver.Driver
	info  driver.Info
	probe error
}

func (p posing) Info() driver.Info { return p.info }

func (p posing) Probe(ctx context.Context) error { return errors.Join(p.probe, p.Driver.Probe(ctx)) }

// brokenDriver has a kernel of its own, and does not work.
func brokenDriver(o app.DriverOptions) (driver.Driver, error) {
	d, err := fakeDriver(o)
	if err != nil {
		return nil, err
	}
	why := sandbox.WithHint(fmt.Errorf("%w: user namespaces are\nforbidden", driver.ErrUnavailable), "sysctl something=1")
	return posing{d, driver.Info{Name: "broken", Isolates: true, Boundary: sandbox.BoundaryKernel, Features: d.Info().Features}, why}, nil
}

// containerDriver has no kernel of its own, and works.
func containerDriver(o app.DriverOptions) (driver.Driver, error) {
	d, err := fakeDriver(o)
	if err != nil {
		return nil, err
	}
	return posing{d, driver.Info{Name: "container", Isolates: true, Boundary: sandbox.BoundaryContainer, Features: d.Info().Features}, nil}, nil
}

// TestScripts runs the scripts on the fake driver.
func TestScripts(t *testing.T) {
	if clientsDir() == "" && required("inspector") {
		t.Error("GLOVEBOX_REQUIRE has inspector, which is not installed: make clients")
	}
	if _, err := exec.LookPath("nginx"); err != nil && required("nginx") {
		t.Error("GLOVEBOX_REQUIRE has nginx, which is not installed: test/tools.sh nginx")
	}
	runScripts(t, "fake", "")
}

// discardBoxes ends the boxes of the fake driver below a script's directory. They outlive
// the script's servers.
func discardBoxes(t *testing.T, root string) {
	err := filepath.WalkDir(root, func(path string, entry fs.DirEntry, err error) error {
		if errors.Is(err, fs.ErrNotExist) {
			return nil // a program removed it meanwhile
		}
		if err != nil || !entry.IsDir() || filepath.Base(path) != "boxes" || filepath.Base(filepath.Dir(path)) != "fake" {
			return err
		}
		d, err := fake.New(fake.Options{Dir: filepath.Dir(path)})
		if err != nil {
			return err
		}
		refs, err := d.List(context.Background())
		for _, ref := range refs {
			err = errors.Join(err, d.Discard(context.Background(), ref))
		}
		if err = errors.Join(err, d.Close()); err != nil {
			return err
		}
		return fs.SkipDir
	})
	if err != nil {
		t.Errorf("end the boxes of a script: %v", err)
	}
}

// runScripts runs testdata/*.txtar with the driver of that name. binary, if not
// empty, is the program to test; else it is this test binary.
func runScripts(t *testing.T, driverName, binary string, files ...string) {
	archive := imageArchive(t, driverName)
	repo, err := filepath.Abs("../..")
	if err != nil {
		t.Fatal(err)
	}
	params := testscript.Params{
		Dir:                 "testdata",
		RequireExplicitExec: true,
		RequireUniqueNames:  true,
		UpdateScripts:       *rewrite,
		Setup: func(env *testscript.Env) error {
			if binary != "" {
				bin := filepath.Join(env.WorkDir, ".bin")
				if err := os.Mkdir(bin, 0o755); err != nil {
					return err
				}
				for _, name := range []string{"glovebox", "code-sandbox-mcp", "mcp-code-sandbox"} {
					if err := os.Symlink(binary, filepath.Join(bin, name)); err != nil {
						return err
					}
				}
				env.Setenv("PATH", bin+string(os.PathListSeparator)+env.Getenv("PATH"))
			}
			if archive != "" {
				if err := os.Link(archive, filepath.Join(env.WorkDir, "saved.tar")); err != nil {
					return err
				}
			}
			if clients := clientsDir(); clients != "" {
				env.Setenv("PATH", env.Getenv("PATH")+string(os.PathListSeparator)+clients)
			}
			env.Setenv("GLOVEBOX_DRIVER", driverName)
			if host := os.Getenv("GLOVEBOX_TEST_" + strings.ToUpper(driverName)); host != "" {
				env.Setenv("GLOVEBOX_DOCKER_HOST", host)
			}
			env.Setenv("GLOVEBOX_STATE_DIR", filepath.Join(env.WorkDir, ".state"))
			env.Setenv("HOME", env.WorkDir)
			env.Setenv("REPO", repo)
			env.Setenv("NO_COLOR", "1")
			env.Defer(func() { discardBoxes(t, env.WorkDir) })
			return nil
		},
		Condition: func(cond string) (bool, error) {
			switch cond {
			case "fake", "gvisor", "docker", "podman":
				return cond == driverName, nil
			case "archive":
				return archive != "", nil
			case "inspector":
				return clientsDir() != "", nil
			case "matplotlib", "pandas":
				return exec.Command("/usr/bin/python3", "-c", "import "+cond).Run() == nil, nil
			case "python3", "node":
				// Where the image host looks, not where this user's PATH does.
				for _, dir := range []string{"/usr/local/bin", "/usr/bin", "/bin"} {
					if _, err := os.Stat(filepath.Join(dir, cond)); err == nil {
						return true, nil
					}
				}
				return false, nil
			}
			return false, fmt.Errorf("unknown condition %q", cond)
		},
		Cmds: map[string]func(*testscript.TestScript, bool, []string){
			"status":      cmdStatus,
			"retry":       cmdRetry,
			"freeport":    cmdFreePort,
			"http":        cmdHTTP,
			"header":      cmdHeader,
			"flood":       cmdFlood,
			"certificate": cmdCertificate,
			"mcp":         cmdMCP,
			"converse":    cmdConverse,
			"findfirst":   cmdFindFirst,
		},
	}
	if len(files) > 0 { // and not the whole directory
		params.Dir = ""
		for _, name := range files {
			params.Files = append(params.Files, filepath.Join("testdata", name))
		}
	}
	testscript.Run(t, params)
}

// imageArchive returns an archive of a small image, made as docker save does, or
// "" if the driver keeps no images or what it is made of is not here.
func imageArchive(t *testing.T, driverName string) string {
	t.Helper()
	if driverName != "gvisor" {
		return ""
	}
	if _, err := exec.LookPath("busybox"); err != nil {
		if required("images") {
			t.Fatal("GLOVEBOX_REQUIRE has images, but busybox is not here: make images")
		}
		return ""
	}
	path := filepath.Join(t.TempDir(), "saved.tar")
	imagetest.Save(t, path, "mine:1", imagetest.Image(t, imagetest.Config{Env: []string{"A=from the image"}}, imagetest.Busybox(t)))
	return path
}

// clientsDir returns the directory of the MCP clients that "make clients"
// installs, or "" if they are not there.
func clientsDir() string {
	dir, err := filepath.Abs(filepath.Join("..", "..", "test", "node", "node_modules", ".bin"))
	if err != nil {
		return ""
	}
	if _, err := os.Stat(filepath.Join(dir, "mcp-inspector")); err != nil {
		return ""
	}
	return dir
}

// required reports whether a component that is missing is a failure here.
func required(component string) bool {
	return slices.Contains(strings.Split(os.Getenv("GLOVEBOX_REQUIRE"), ","), component)
}

// cmdStatus runs a command and checks its exit status: status 3 glovebox …
func cmdStatus(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 2 {
		ts.Fatalf("usage: status N command [args...]")
	}
	want, err := strconv.Atoi(args[0])
	ts.Check(err)
	got := 0
	if err := ts.Exec(args[1], args[2:]...); err != nil {
		var exit *exec.ExitError
		if !errors.As(err, &exit) {
			ts.Fatalf("%v", err)
		}
		got = exit.ExitCode()
	}
	if got != want {
		ts.Fatalf("exit status %d, want %d", got, want)
	}
}

// scriptPatience bounds what scripts wait for.
const scriptPatience = time.Minute

// cmdRetry runs a command until it succeeds and its standard output matches:
// retry PATTERN command… A bounded wait for what another process does.
func cmdRetry(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 2 {
		ts.Fatalf("usage: retry text command [args...]")
	}
	for deadline := time.Now().Add(scriptPatience); ; time.Sleep(20 * time.Millisecond) {
		err := ts.Exec(args[1], args[2:]...)
		if err == nil && strings.Contains(ts.ReadFile("stdout"), args[0]) {
			return
		}
		if time.Now().After(deadline) {
			ts.Fatalf("%q did not come; the last error: %v", args[0], err)
		}
	}
}

// cmdFindFirst sets a variable to the first name with a prefix in the last
// standard output, or in a file: findfirst SANDBOX sbx_ [file]
func cmdFindFirst(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 2 || len(args) > 3 {
		ts.Fatalf("usage: findfirst VARIABLE prefix [file]")
	}
	file := "stdout"
	if len(args) == 3 {
		file = args[2]
	}
	name := regexp.MustCompile(regexp.QuoteMeta(args[1]) + `[A-Za-z0-9_-]{20,}`).FindString(ts.ReadFile(file))
	if name == "" {
		ts.Fatalf("there is no name that begins with %q", args[1])
	}
	ts.Setenv(args[0], name)
}

// cmdFreePort sets a variable to a port that nobody listens on.
func cmdFreePort(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 1 {
		ts.Fatalf("usage: freeport VARIABLE")
	}
	port, err := freePort()
	ts.Check(err)
	ts.Setenv(args[0], port)
}

// freePort returns a port that nobody listens on. It is below those that the
// system gives to whoever asks for any, and to connections: one of these would
// soon be another's, at the latest while a server that had it is started again.
func freePort() (string, error) {
	const first = 10_000
	end := 32_768
	if text, err := os.ReadFile("/proc/sys/net/ipv4/ip_local_port_range"); err == nil {
		if _, err := fmt.Sscan(string(text), &end); err != nil {
			return "", err
		}
	}
	if end <= first {
		end = 1 << 16 // all are given away here
	}
	for {
		port := strconv.Itoa(first + rand.IntN(end-first))
		l, err := net.Listen("tcp", ":"+port)
		if errors.Is(err, syscall.EADDRINUSE) {
			continue
		}
		if err != nil {
			return "", err
		}
		return port, l.Close()
	}
}

func lookPath(ts *testscript.TestScript, name string) (string, error) {
	for _, dir := range filepath.SplitList(ts.Getenv("PATH")) {
		path := filepath.Join(dir, name)
		if fi, err := os.Stat(path); err == nil && fi.Mode()&0o111 != 0 {
			return path, nil
		}
	}
	return "", fmt.Errorf("%s: %w", name, exec.ErrNotFound)
}
