package docker_test

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/moby/moby/api/types/container"
	"github.com/moby/moby/client"

	"github.com/glovebox-dev/glovebox/internal/driver"
	"github.com/glovebox-dev/glovebox/internal/driver/docker"
	"github.com/glovebox-dev/glovebox/internal/driver/drivertest"
	"github.com/glovebox-dev/glovebox/internal/sandbox"
)

// What test/docker.sh says of the engines that it started, and the image that
// it made.
const (
	dockerEnv = "GLOVEBOX_TEST_DOCKER"
	podmanEnv = "GLOVEBOX_TEST_PODMAN"
	testImage = "localhost/glovebox-test:python3"
	guestEnv  = "GLOVEBOX_TEST_GUEST"
)

// testHold is short, so that tests need not wait long for a box without a holder.
// It is long enough for a busy machine: a box with a short lease that is held must
// not end.
const testHold = 10 * time.Second

var (
	dockerHarness = harness(docker.Docker, dockerEnv)
	podmanHarness = harness(docker.Podman, podmanEnv)
)

func TestMain(m *testing.M) {
	carryNetwork()
	if os.Getenv(guestEnv) == "" && os.Getenv(dockerEnv)+os.Getenv(podmanEnv) != "" {
		os.Setenv(guestEnv, build("glovebox-guest"))
	}
	drivertest.Main(m, dockerHarness, podmanHarness)
}

// build builds one of our commands, static, in the checkout's cache.
func build(name string) string {
	path, err := filepath.Abs(filepath.Join("../../../.cache/dockertest", name))
	if err != nil {
		panic(err)
	}
	cmd := exec.Command("go", "build", "-trimpath", "-ldflags", "-s -w", "-o", path, "github.com/glovebox-dev/glovebox/cmd/"+name)
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		panic(fmt.Sprintf("build %s: %v\n%s", name, err, out))
	}
	return path
}

// need skips a test for which an engine is not there, unless it is required.
func need(t testing.TB, engine, variable string) {
	t.Helper()
	if os.Getenv(variable) != "" {
		return
	}
	if slices.Contains(strings.Split(os.Getenv("GLOVEBOX_REQUIRE"), ","), engine) {
		t.Fatalf("%s is required, and %s is not set: run this by test/docker.sh", engine, variable)
	}
	t.Skipf("%s is not set: run this by test/docker.sh", variable)
}

func TestDocker(t *testing.T) {
	need(t, docker.Docker, dockerEnv)
	drivertest.Run(t, dockerHarness)
}

func TestPodman(t *testing.T) {
	need(t, docker.Podman, podmanEnv)
	drivertest.Run(t, podmanHarness)
}

func BenchmarkDocker(b *testing.B) {
	need(b, docker.Docker, dockerEnv)
	drivertest.Benchmark(b, dockerHarness)
}

// harness describes the driver over the engine whose address a variable has.
func harness(engine, variable string) drivertest.Harness {
	f := &finder{host: os.Getenv(variable), engine: engine}
	program, err := os.Executable()
	if err != nil {
		panic(err)
	}
	return drivertest.Harness{
		Name: engine,
		Open: func(dir string) (driver.Driver, error) {
			return docker.New(docker.Options{
				Engine: engine, Host: os.Getenv(variable), StateDir: dir, Guest: os.Getenv(guestEnv), Network: program,
				Hold: testHold,
			})
		},
		Spec: func() *driver.Spec {
			limits := sandbox.DefaultLimits()
			limits.MemoryBytes = 5 << 29 // which files count among, of which the suite writes a large one
			return &driver.Spec{
				ID:       sandbox.NewID(),
				Image:    testImage,
				Hostname: "sandbox",
				Limits:   limits,
				Network:  sandbox.NetworkNone,
			}
		},
		Refused: map[string]func(*driver.Spec){
			"the image host": func(s *driver.Spec) { s.Image = sandbox.ImageHost },
		},
		Leftovers: f.leftovers,
		Processes: f.processes,
		Stops:     true,
		Python:    "/usr/bin/python3",
	}
}

// A finder finds what is on this machine of an engine's boxes.
type finder struct {
	engine, host string

	mu  sync.Mutex
	ids map[string]string // the engine's identifiers of boxes
}

// client returns a client of the engine.
func (f *finder) client(t testing.TB) *client.Client {
	c, err := client.New(client.WithHost(f.host))
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// id returns the engine's identifier of a box, also after its end if it was
// asked for before; empty if it never was seen.
func (f *finder) id(t testing.TB, ref string) string {
	f.mu.Lock()
	defer f.mu.Unlock()
	if id, ok := f.ids[ref]; ok {
		return id
	}
	c := f.client(t)
	defer c.Close()
	in, err := c.ContainerInspect(context.Background(), ref, client.ContainerInspectOptions{})
	if err != nil {
		return ""
	}
	if f.ids == nil {
		f.ids = map[string]string{}
	}
	f.ids[ref] = in.Container.ID
	return in.Container.ID
}

// processes finds a box's processes by their control group.
func (f *finder) processes(t testing.TB, _, ref string) []int {
	id := f.id(t, ref)
	if id == "" {
		return nil
	}
	return drivertest.ContainerProcesses(t, id, ref)
}

// leftovers lists what the engine has of boxes in dir, and what this machine
// has of those that were looked at.
func (f *finder) leftovers(t testing.TB, dir string) []string {
	state, err := os.ReadFile(filepath.Join(dir, f.engine, "id"))
	if err != nil {
		return nil // nothing was made yet
	}
	c := f.client(t)
	defer c.Close()
	filters := make(client.Filters).Add("label", "glovebox.state="+string(state))
	list, err := c.ContainerList(context.Background(), client.ContainerListOptions{All: true, Filters: filters})
	if err != nil {
		t.Fatal(err)
	}
	var left []string
	for _, item := range list.Items {
		left = append(left, fmt.Sprintf("container %v, %s", item.Names, item.Status))
	}
	volumes, err := c.VolumeList(context.Background(), client.VolumeListOptions{Filters: filters})
	if err != nil {
		t.Fatal(err)
	}
	for _, v := range volumes.Items {
		left = append(left, "volume "+v.Name)
	}
	images, err := c.ImageList(context.Background(), client.ImageListOptions{All: true, Filters: filters})
	if err != nil {
		t.Fatal(err)
	}
	for _, i := range images.Items {
		left = append(left, fmt.Sprintf("image %s, %v", i.ID, i.RepoTags))
	}
	dirs, err := filepath.Glob(filepath.Join(dir, f.engine, "networks", "*"))
	if err != nil {
		t.Fatal(err)
	}
	left = append(left, dirs...)
	mounts, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		t.Fatal(err)
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	for ref, id := range f.ids {
		live := slices.ContainsFunc(list.Items, func(s container.Summary) bool { return s.ID == id })
		if live {
			continue
		}
		for _, pid := range drivertest.ContainerProcesses(t, id, ref) {
			left = append(left, fmt.Sprintf("process %d of %s", pid, ref))
		}
		if strings.Contains(string(mounts), id) {
			left = append(left, "a mount of "+ref)
		}
	}
	return left
}
