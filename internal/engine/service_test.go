package engine

import (
	"context"
	"errors"
	"io"
	"testing"
	"testing/synctest"
	"time"

	"github.com/glovebox-dev/glovebox/internal/sandbox"
)

// TestServiceKeepsItsSandbox: a service keeps its sandbox awake and alive beyond the
// idle limit, and its port answers after an hour. The sandbox lists it until it is
// stopped, has no second one of its name, and rests afterwards.
func TestServiceKeepsItsSandbox(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, dir := newWorld(), t.TempDir()
		e := openWorld(t, w, dir, func(o *Options) { o.MaxRunTimeout = sandbox.Forever })
		s := e.mustCreate(t, sandbox.CreateRequest{Limits: sandbox.Limits{Idle: time.Minute}})
		req := sandbox.RunRequest{
			SandboxID: s.ID, Argv: []string{"sleep", "100h"},
			Service: &sandbox.ServiceRequest{Name: "web", Ready: &sandbox.ReadyCheck{Port: 8000}},
		}
		r := e.mustStart(t, req)
		ready, err := e.WaitReady(t.Context(), alice, r.ID)
		if err != nil || ready.Service.State != sandbox.ServiceRunning {
			t.Fatalf("%+v, %v", ready.Service, err)
		}
		time.Sleep(time.Hour)
		if w.only(t).isPaused() {
			t.Error("the sandbox rests")
		}
		other := openWorld(t, w, dir, nil)
		if got, err := other.Get(t.Context(), alice, s.ID); err != nil || got.Expires.Before(time.Now().Add(time.Second)) {
			t.Errorf("in another process, the sandbox expires in %v: %v", time.Until(got.Expires), err)
		}
		c := e.mustDial(t, s.ID)
		go io.WriteString(c, "echo")
		got := make([]byte, 4)
		if _, err := io.ReadFull(c, got); err != nil || string(got) != "echo" {
			t.Errorf("after an hour: %q, %v", got, err)
		}
		c.Close()
		list, err := e.Services(t.Context(), alice, s.ID)
		if err != nil || len(list) != 1 || list[0].ID != r.ID || list[0].Service.Ports[0] != 8000 {
			t.Errorf("services: %+v, %v", list, err)
		}
		if _, err := e.Services(t.Context(), "bob", s.ID); !errors.Is(err, sandbox.NotFound) {
			t.Errorf("services of another principal's sandbox: %v", err)
		}
		if _, err := e.Start(t.Context(), alice, req); !errors.Is(err, sandbox.Conflict) {
			t.Errorf("a second service of the name: %v", err)
		}
		end, err := e.StopRun(t.Context(), alice, r.ID)
		if err != nil || end.Verdict.Code != sandbox.Cancelled || end.Service.State != sandbox.ServiceEnded {
			t.Errorf("stopped: %+v, %v", end, err)
		}
		if list, err := e.Services(t.Context(), alice, s.ID); err != nil || len(list) != 0 {
			t.Errorf("services afterwards: %+v, %v", list, err)
		}
		time.Sleep(time.Second)
		if !w.only(t).isPaused() {
			t.Error("the sandbox does not rest")
		}
	})
}

// TestServiceOutlivesItsServer has two servers, one after the other.
func TestServiceOutlivesItsServer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, dir := newWorld(), t.TempDir()
		detached := func(o *Options) { o.Detached, o.MaxRunTimeout = true, sandbox.Forever }
		e := openWorld(t, w, dir, detached)
		r := e.mustStart(t, sandbox.RunRequest{Argv: []string{"sleep", "100h"}, Service: &sandbox.ServiceRequest{Name: "web"}})
		if _, err := e.WaitReady(t.Context(), alice, r.ID); err != nil {
			t.Fatal(err)
		}
		if err := e.Close(context.Background()); err != nil {
			t.Fatal(err)
		}
		e = openWorld(t, w, dir, detached)
		time.Sleep(time.Hour)
		e.mustSweep(t)
		time.Sleep(time.Hour)
		list, err := e.Services(t.Context(), alice, r.SandboxID)
		if err != nil || len(list) != 1 || list[0].ID != r.ID || list[0].Service.State != sandbox.ServiceRunning || list[0].Service.Restarts != 0 {
			t.Errorf("services: %+v, %v", list, err)
		}
		if end, err := e.StopRun(t.Context(), alice, r.ID); err != nil || end.Verdict.Code != sandbox.Cancelled {
			t.Errorf("stopped: %+v, %v", end.Verdict, err)
		}
	})
}

// TestServiceWakes: a service with wake "request" lets its sandbox rest, for longer
// than the idle limit, and each connection to its port wakes it. Its end, which needs
// the guest, wakes it too.
func TestServiceWakes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld()
		e := openWorld(t, w, t.TempDir(), func(o *Options) { o.MaxRunTimeout = sandbox.Forever })
		s := e.mustCreate(t, sandbox.CreateRequest{Limits: sandbox.Limits{Idle: time.Minute}})
		r := e.mustStart(t, sandbox.RunRequest{
			SandboxID: s.ID, Argv: []string{"sleep", "100h"}, Service: &sandbox.ServiceRequest{Wake: sandbox.WakeRequest},
		})
		if _, err := e.WaitReady(t.Context(), alice, r.ID); err != nil {
			t.Fatal(err)
		}
		for range 3 {
			time.Sleep(time.Hour)
			if !w.only(t).isPaused() {
				t.Fatal("the sandbox does not rest")
			}
			c := e.mustDial(t, s.ID)
			if w.only(t).isPaused() {
				t.Fatal("a connection does not wake the sandbox")
			}
			time.Sleep(time.Hour)
			if w.only(t).isPaused() {
				t.Fatal("the sandbox rests under an open connection")
			}
			c.Close()
			time.Sleep(dozeAfter / 2)
			if w.only(t).isPaused() {
				t.Error("the sandbox rests right after a request")
			}
		}
		// Another service keeps it awake.
		other := e.mustStart(t, sandbox.RunRequest{SandboxID: s.ID, Argv: []string{"sleep", "100h"}, Service: &sandbox.ServiceRequest{Name: "other"}})
		time.Sleep(time.Hour)
		if w.only(t).isPaused() {
			t.Error("the sandbox rests beside a service that does not")
		}
		if _, err := e.StopRun(t.Context(), alice, other.ID); err != nil {
			t.Error(err)
		}
		time.Sleep(time.Hour)
		if !w.only(t).isPaused() {
			t.Error("the sandbox does not rest again")
		}
		end, err := e.StopRun(t.Context(), alice, r.ID)
		if err != nil || end.Verdict.Code != sandbox.Cancelled {
			t.Errorf("stopped: %+v, %v", end.Verdict, err)
		}
		time.Sleep(time.Hour)
		if got, err := e.Get(t.Context(), alice, s.ID); err == nil && got.State != sandbox.Stopped {
			t.Errorf("the idle limit does not end the sandbox: %+v, %v", got, err)
		}
	})
}

// TestServiceWakesAtNextServer: a resting sandbox is taken over, and its service goes
// on resting and waking.
func TestServiceWakesAtNextServer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, dir := newWorld(), t.TempDir()
		detached := func(o *Options) { o.Detached, o.MaxRunTimeout = true, sandbox.Forever }
		e := openWorld(t, w, dir, detached)
		r := e.mustStart(t, sandbox.RunRequest{Argv: []string{"sleep", "100h"}, Service: &sandbox.ServiceRequest{Wake: sandbox.WakeRequest}})
		if _, err := e.WaitReady(t.Context(), alice, r.ID); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Hour)
		if !w.only(t).isPaused() {
			t.Fatal("the sandbox does not rest")
		}
		if err := e.Close(context.Background()); err != nil {
			t.Fatal(err)
		}
		e = openWorld(t, w, dir, detached)
		e.mustSweep(t)
		time.Sleep(time.Hour)
		if !w.only(t).isPaused() {
			t.Error("the sandbox does not rest at the next server")
		}
		e.mustDial(t, r.SandboxID).Close()
		if end, err := e.StopRun(t.Context(), alice, r.ID); err != nil || end.Verdict.Code != sandbox.Cancelled || end.Service.Restarts != 0 {
			t.Errorf("stopped: %+v, %v", end, err)
		}
	})
}

// TestNoServices: an operator who limits runs allows no services.
func TestNoServices(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := openWorld(t, newWorld(), t.TempDir(), func(o *Options) { o.MaxRunTimeout = time.Hour })
		_, err := e.Start(t.Context(), alice, sandbox.RunRequest{Argv: []string{"sleep", "1h"}, Service: &sandbox.ServiceRequest{}})
		if !errors.Is(err, sandbox.Invalid) || sandbox.HintOf(err) == "" {
			t.Errorf("%v, %q", err, sandbox.HintOf(err))
		}
	})
}
