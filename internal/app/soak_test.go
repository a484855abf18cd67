package app

import (
	"bytes"
	"context"
	"crypto/sha256"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/glovebox-dev/glovebox/internal/auth"
	"github.com/glovebox-dev/glovebox/internal/config"
	"github.com/glovebox-dev/glovebox/internal/workspace"
)

// soakEnv makes the test binary a server of files, over the state directory
// that it names; soakListen is where it listens.
const (
	soakEnv    = "GLOVEBOX_APP_SOAK"
	soakListen = "GLOVEBOX_APP_SOAK_LISTEN"
)

// soakServer is the server that the soak kills.
func soakServer() int {
	c := config.Default(func(string) string { return "" })
	c.Driver, c.StateDir, c.Server.Listen = "fake", os.Getenv(soakEnv), os.Getenv(soakListen)
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	sys, err := Open(ctx, Options{Config: c, TestDrivers: fakeDrivers(), Detached: true})
	if err == nil {
		defer sys.Close(context.Background())
		var lns Listeners
		if lns, err = sys.Listen(ctx); err == nil {
			err = sys.ServeHTTP(ctx, lns, func() error { return nil })
		}
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return 0
}

// Sizes of the soak.
const (
	soakClients = 20
	soakOps     = 1000 // of all clients together
	soakKills   = 10
)

// TestSoak has twenty clients upload and download by URLs, at random, while the
// server is killed again and again. What was acknowledged is there, byte by
// byte; what was not is there as a whole, or not at all.
func TestSoak(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("the fake driver needs Linux")
	}
	dir := t.TempDir()
	server := startSoak(t, dir, freeAddress(t))
	defer server.kill()
	id, signer := makeSoaked(t, server)

	var acked, unknown, checked int
	var mu sync.Mutex
	ops := make(chan int)
	var clients sync.WaitGroup
	for n := range soakClients {
		clients.Go(func() {
			random := rand.New(rand.NewPCG(uint64(n), 1))
			// What each file may be: one thing, or several if the server died
			// before it said which.
			model := map[string][][]byte{}
			for range ops {
				name := fmt.Sprintf("c%d/%d/f%d", n, random.IntN(3), random.IntN(4))
				may := model[name]
				if random.IntN(3) > 0 {
					size := random.IntN(1 << random.IntN(20))
					content := make([]byte, size)
					for i := range content {
						content[i] = byte(random.Uint32())
					}
					u := server.url + "/files/" + id.Handle() + "/" + name + "?" + signer.Sign("PUT", id.Handle(), name, time.Now().Add(time.Hour))
					status, _ := attempt(t.Context(), "PUT", u, content)
					mu.Lock()
					if status == http.StatusCreated {
						model[name] = [][]byte{content}
						acked++
					} else {
						if len(may) == 0 {
							may = [][]byte{nil}
						}
						model[name] = append(may, content)
						unknown++
					}
					mu.Unlock()
					continue
				}
				status, got := attempt(t.Context(), "GET", server.url+"/files/"+string(id)+"/"+name, nil)
				if status == 0 {
					continue // it died
				}
				if status == http.StatusNotFound {
					got = nil
				}
				if len(may) == 0 {
					may = [][]byte{nil}
				}
				if !slices.ContainsFunc(may, func(b []byte) bool { return bytes.Equal(b, got) && (b == nil) == (got == nil) }) {
					t.Errorf("%s: status %d, %d bytes (%x), which are none of the %d that may be", name, status, len(got), sha256.Sum256(got), len(may))
				} else {
					model[name] = [][]byte{got}
				}
				mu.Lock()
				checked++
				mu.Unlock()
			}
			// In the end all of it, from the disk.
			for name, may := range model {
				got, err := os.ReadFile(filepath.Join(dir, "workspaces", string(id), name))
				if err != nil {
					got = nil
				}
				if !slices.ContainsFunc(may, func(b []byte) bool { return bytes.Equal(b, got) && (b == nil) == (got == nil) }) {
					t.Errorf("in the end %s has %d bytes, which are none of the %d that may be", name, len(got), len(may))
				}
			}
		})
	}
	for i := range soakOps {
		ops <- i
		if every := soakOps / soakKills; i%every == every-1 {
			server.kill()
			server.start(t)
		}
	}
	close(ops)
	clients.Wait()
	t.Logf("%d uploads acknowledged, %d that nobody knows of, %d downloads checked, %d kills", acked, unknown, checked, soakKills)
	if acked < 100 || checked < 50 {
		t.Error("too little got through to have been a test")
	}
	// The next process removes what the killed ones had begun.
	last, err := workspace.Open(filepath.Join(dir, "workspaces"))
	if err != nil {
		t.Fatal(err)
	}
	defer last.Close()
	server.kill()
	another, err := workspace.Open(filepath.Join(dir, "workspaces"))
	if err != nil {
		t.Fatal(err)
	}
	defer another.Close()
	if left, _ := filepath.Glob(filepath.Join(dir, "workspaces/tmp/*/new-*")); len(left) > 0 {
		t.Errorf("left in staging: %v", left)
	}
}

// attempt makes a request; status is 0 if there was no whole answer.
func attempt(ctx context.Context, method, url string, body []byte) (status int, got []byte) {
	req, err := http.NewRequestWithContext(ctx, method, url, bytes.NewReader(body))
	if err != nil {
		return 0, nil
	}
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		return 0, nil
	}
	defer res.Body.Close()
	got, err = io.ReadAll(res.Body)
	if err != nil {
		return 0, nil
	}
	return res.StatusCode, append([]byte{}, got...)
}

// A soaked server is one that is killed and started again.
type soaked struct {
	config config.Config
	url    string
	cmd    *exec.Cmd
}

// makeSoaked makes a workspace, and returns what URLs of its files are made of.
func makeSoaked(t testing.TB, server *soaked) (workspace.ID, *auth.Signer) {
	t.Helper()
	set, err := workspace.Open(filepath.Join(server.config.StateDir, "workspaces"))
	if err != nil {
		t.Fatal(err)
	}
	defer set.Close()
	tokens, err := OpenTokens(t.Context(), server.config)
	if err != nil {
		t.Fatal(err)
	}
	defer tokens.Close()
	token, info, err := tokens.Create(t.Context(), "soak", []string{"files"})
	if err != nil {
		t.Fatal(err)
	}
	body := bytes.NewReader(tarOf(t, map[string]string{"begin": ""}))
	req, err := http.NewRequestWithContext(t.Context(), "PUT", server.url+"/workspaces/w/archive", body)
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Authorization", "Bearer "+token)
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	if res.StatusCode != http.StatusCreated {
		t.Fatalf("make workspace: status %d", res.StatusCode)
	}
	rec, err := tokens.store.NamedWorkspace(t.Context(), info.Principal, "w")
	if err != nil {
		t.Fatal(err)
	}
	return workspace.ID(rec.ID), &auth.Signer{Key: set.Key("signed URLs")}
}

func startSoak(t testing.TB, dir, addr string) *soaked {
	t.Helper()
	o := testOptions(t, dir)
	s := &soaked{config: o.Config, url: "http://" + addr}
	s.start(t)
	return s
}

// start starts the server and returns when it answers.
func (s *soaked) start(t testing.TB) {
	t.Helper()
	s.awaitPort(t)
	s.cmd = exec.Command(os.Args[0], "-test.run=^$")
	s.cmd.Env = append(os.Environ(), soakEnv+"="+s.config.StateDir, soakListen+"="+strings.TrimPrefix(s.url, "http://"))
	s.cmd.Stderr = os.Stderr
	if err := s.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	for deadline := time.Now().Add(time.Minute); time.Now().Before(deadline); time.Sleep(10 * time.Millisecond) {
		if status, _ := attempt(t.Context(), "GET", s.url+"/healthz", nil); status == 200 {
			return
		}
	}
	t.Fatal("the server does not answer")
}

// awaitPort waits until the port of the server that was killed is free. If that server
// was about to start a program, its child has the socket until it executes the program.
func (s *soaked) awaitPort(t testing.TB) {
	t.Helper()
	for deadline := time.Now().Add(time.Minute); ; time.Sleep(10 * time.Millisecond) {
		ln, err := new(net.ListenConfig).Listen(t.Context(), "tcp", strings.TrimPrefix(s.url, "http://"))
		if err == nil {
			ln.Close()
			return
		}
		if time.Now().After(deadline) {
			t.Fatal(err)
		}
	}
}

// kill kills the server with SIGKILL.
func (s *soaked) kill() {
	s.cmd.Process.Kill()
	s.cmd.Wait()
}

// freeAddress returns an address that nothing listens at. Its port is below those
// that Linux gives to whoever asks for any, and to connections, even those of
// clients that try it while the server is dead: it is there for the next one.
func freeAddress(t testing.TB) string {
	t.Helper()
	for range 100 {
		ln, err := new(net.ListenConfig).Listen(t.Context(), "tcp", fmt.Sprintf("127.0.0.1:%d", 10_000+rand.IntN(20_000)))
		if err != nil {
			continue
		}
		defer ln.Close()
		return ln.Addr().String()
	}
	t.Fatal("no port is free")
	return ""
}
