package contexts_test

import (
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/glovebox-dev/glovebox/internal/guestapi"
)

// uid returns the user that the guest runs as, and self the same as text.
func (h *host) uid() int     { return os.Geteuid() }
func (h *host) self() string { return strconv.Itoa(os.Geteuid()) }

// environOf returns the command line of a process.
func (h *host) environOf(pid int) string {
	b, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/cmdline")
	if err != nil {
		return ""
	}
	return string(b)
}

// TestContextHostile has code that misbehaves meet a correct verdict, and the
// next run work.
func TestContextHostile(t *testing.T) {
	t.Parallel()
	h := newEvalHost(t, "python3")
	// kept says that the state survived; else the next run is told.
	after := func(t *testing.T, kept bool) {
		t.Helper()
		r := h.ends("python", "print('next')\n'kept' in globals()", guestapi.EndOK)
		same(t, "output of the next run", r.stdout, "next\n")
		same(t, "state", r.main(), map[bool]string{true: "True", false: "False"}[kept])
		if told := strings.Contains(r.notices, "state lost; started fresh"); told == kept {
			t.Errorf("notices are %q", r.notices)
		}
		h.ends("python", "kept = 1", guestapi.EndOK)
	}
	h.ends("python", "kept = 1", guestapi.EndOK)

	t.Run("closes descriptors 0 to 2", func(t *testing.T) {
		r := h.ends("python", "import os\nfor fd in (0, 1, 2): os.close(fd)\n7", guestapi.EndOK)
		same(t, "value", r.main(), "7")
		after(t, true)
	})
	t.Run("replaces sys.stdout", func(t *testing.T) {
		h.ends("python", "import sys\nsys.stdout = sys.stderr = sys.stdin = None", guestapi.EndOK)
		after(t, true)
		h.ends("python", "sys.stdout.close()", guestapi.EndOK)
		after(t, true)
	})
	t.Run("forks", func(t *testing.T) {
		r := h.ends("python", "import os\nfor i in range(3): os.fork()\n8", guestapi.EndOK)
		same(t, "results", len(r.results), 1)
		after(t, true)
		// They end by themselves, and are not to be counted below.
		h.ends("python", "try:\n  while True: os.wait()\nexcept ChildProcessError: pass", guestapi.EndOK)
	})
	t.Run("leaves processes that print", func(t *testing.T) {
		r := h.ends("python", "import subprocess\nq = subprocess.Popen(['sh', '-c', 'sleep 0.5; echo from the child']);", guestapi.EndOK)
		same(t, "children", r.end.Children, 1)
		time.Sleep(time.Second)
		r = h.ends("python", "print('mine')", guestapi.EndOK)
		same(t, "output", r.stdout, "mine\n")
		same(t, "late output", r.late, "from the child\n")
		after(t, true)
	})
	t.Run("starts threads that print after the end", func(t *testing.T) {
		h.ends("python", "import threading, time\ngo = threading.Event()\ndef late():\n  go.wait(); print('while it runs'); display(5)\nt = threading.Thread(target=late); t.start()\ndef soon():\n  time.sleep(0.3); print('between')\nthreading.Thread(target=soon).start()", guestapi.EndOK)
		time.Sleep(time.Second)
		r := h.ends("python", "go.set(); t.join(); print('mine')", guestapi.EndOK)
		same(t, "output", r.stdout, "mine\n")
		same(t, "late output", r.late, "between\nwhile it runs\n")
		same(t, "late results", r.lateResults, 1)
		after(t, true)
	})
	t.Run("floods between runs", func(t *testing.T) {
		h.ends("python", "def flood():\n  for i in range(4000): print('f' * 499)\nf = threading.Thread(target=flood); f.start()", guestapi.EndOK)
		r := h.ends("python", "f.join()", guestapi.EndOK)
		if n := len(r.late); n == 0 || n > 2_000_000 {
			t.Errorf("%d bytes of late output", n)
		}
		after(t, true)
	})
	t.Run("calls os._exit", func(t *testing.T) {
		r := h.ends("python", "import os\nprint('last words')\nos._exit(3)", guestapi.EndDied)
		same(t, "output", r.stdout, "last words\n")
		if !r.end.StateLost || r.end.ExitCode == nil || *r.end.ExitCode != 3 || r.end.Cause == "" {
			t.Errorf("end is %+v", r.end)
		}
		after(t, false)
	})
	t.Run("kills itself", func(t *testing.T) {
		r := h.ends("python", "import os, signal\nos.kill(os.getpid(), signal.SIGKILL)", guestapi.EndDied)
		same(t, "signal", r.end.Detail.Signal, 9)
		after(t, false)
	})
	t.Run("crashes", func(t *testing.T) {
		r := h.ends("python", "import ctypes\nctypes.string_at(0)", guestapi.EndDied)
		same(t, "signal", r.end.Detail.Signal, 11)
		if !strings.Contains(r.stderr, "Segmentation fault") {
			t.Errorf("stderr is %q", r.stderr)
		}
		after(t, false)
	})
	t.Run("redefines builtins", func(t *testing.T) {
		h.ends("python", "import builtins, json, os, traceback\nprint = 5\nbuiltins.len = builtins.isinstance = builtins.print = builtins.repr = None\njson.dumps = os.write = traceback.TracebackException = None", guestapi.EndOK)
		h.ends("python", "del print", guestapi.EndOK)
		after(t, true)
		h.ends("python", "1 // 0", guestapi.EndError)
	})
	t.Run("writes framing bytes to every descriptor", func(t *testing.T) {
		r := h.ends("python", `
import posix as os
junk = b'0123456789abcdef' * 2 + b'.{"ev":"end","id":1,"status":"ok","count":1}'
for fd in range(3, 2048):
    for message in (junk, b'', b'+' * 60000):
        try:
            os.set_blocking(fd, False); os.write(fd, message)
        except OSError: pass
    try: os.set_blocking(fd, True)
    except OSError: pass
9`, guestapi.EndOK)
		same(t, "value", r.main(), "9")
		after(t, true)
	})
	t.Run("closes every descriptor", func(t *testing.T) {
		r := h.ends("python", "import os\nos.closerange(0, 65536)\n9", guestapi.EndDied)
		same(t, "lost", r.end.StateLost, true)
		after(t, false)
	})
	t.Run("prints what is not UTF-8", func(t *testing.T) {
		r := h.ends("python", "import sys\nsys.stdout.buffer.write(b'a\\xffb\\xe2\\x82'); sys.stdout.flush()\nprint('\\udcff')", guestapi.EndOK)
		same(t, "output", r.stdout, "a\uFFFDb\uFFFD\\udcff\n")
		r = h.ends("python", "import os, time\nfor b in '€'.encode(): os.write(1, bytes([b])); time.sleep(0.02)\nos.write(1, b'\\xf0\\x9f');", guestapi.EndOK)
		same(t, "output in pieces", r.stdout, "€\uFFFD")
		after(t, true)
	})
	t.Run("recurses to death", func(t *testing.T) {
		r := h.ends("python", "def f(): return f()\nf()", guestapi.EndError)
		same(t, "error", r.err.Name, "RecursionError")
		after(t, true)
		r = h.ends("python", "import ctypes, sys\nsys.setrecursionlimit(10**9)\n@ctypes.CFUNCTYPE(None)\ndef g(): g()\ng()", guestapi.EndDied)
		same(t, "signal", r.end.Detail.Signal, 11)
		after(t, false)
	})
	t.Run("forges errors", func(t *testing.T) {
		r := h.ends("python", "import gc\nfor o in gc.get_objects():\n  if type(o).__name__ == 'Kernel':\n    for i in range(30): o.send({'ev': 'error', 'id': o.run, 'name': 'E%d' % i, 'value': 'v', 'traceback': 't\\n', 'line': 1, 'text': '<' * 65536})\n'still'", guestapi.EndOK)
		same(t, "value behind errors", r.main(), "'still'")
		same(t, "errors", r.errors, 1)
		same(t, "kept error", r.err.Name, "E0")
		same(t, "other errors", r.stderr, strings.Repeat("t\n", 29))
		after(t, true)
	})
	t.Run("forges its own end", func(t *testing.T) {
		r := h.ends("python", "import gc\nfor o in gc.get_objects():\n  if type(o).__name__ == 'Kernel':\n    for d in ({'text/plain': 5}, {'text': 5}, {'type': 'end'}, {'x': 1}, {'stream': 'stdout'}, {'a/b': None}): o.send({'ev': 'result', 'id': o.run, 'data': d})\n'still'", guestapi.EndOK)
		same(t, "value behind nonsense", r.main(), "'still'")
		h.ends("python", "import gc\nfor o in gc.get_objects():\n  if type(o).__name__ == 'Kernel': o.send({'ev': 'end', 'id': o.run, 'status': 'ok'}); o.send({'ev': 'end', 'id': o.run + 1, 'status': 'ok'}); o.send({'ev': 'nonsense'})", guestapi.EndOK)
		h.in("python", "1") // whose end was forged, too
		after(t, true)
	})
}

// BenchmarkContextRoundTrip is 1+1 through a live Python.
func BenchmarkContextRoundTrip(b *testing.B) {
	h := newHost(b)
	req := &guestapi.ExecuteRequest{Language: "python", Code: "1+1"}
	one := func() {
		x, err := h.Execute(b.Context(), "", req, nil)
		for err == nil {
			_, err = x.Next()
		}
	}
	one()
	for b.Loop() {
		one()
	}
}

// BenchmarkContextOutput is 10 MB of printed output, in long and short lines.
func BenchmarkContextOutput(b *testing.B) {
	for name, code := range map[string]string{
		"long":  "print('x' * 9_999_999)",
		"lines": "for i in range(100_000): print('x' * 99)",
	} {
		b.Run(name, func(b *testing.B) {
			h := newHost(b)
			b.SetBytes(10_000_000)
			for b.Loop() {
				x, err := h.Execute(b.Context(), "", &guestapi.ExecuteRequest{Language: "python", Code: code}, nil)
				n := 0
				for err == nil {
					var ev *guestapi.Event
					if ev, err = x.Next(); err == nil && ev.Data != nil {
						n += len(ev.Data.Stdout)
					}
				}
				if n != 10_000_000 {
					b.Fatalf("%d bytes, %v", n, err)
				}
			}
		})
	}
}
