package mcpserver

import (
	"context"
	"errors"
	"net/url"
	"strings"
	"sync"
	"time"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/glovebox-dev/glovebox/internal/auth"
	"github.com/glovebox-dev/glovebox/internal/fair"
	"github.com/glovebox-dev/glovebox/internal/mcpserver/ledger"
	"github.com/glovebox-dev/glovebox/internal/mcpserver/transport"
	"github.com/glovebox-dev/glovebox/internal/sandbox"
)

const (
	// notifyEvery is the shortest interval between two notifications of a run's
	// output.
	notifyEvery = 500 * time.Millisecond
	// lookEvery is the polling interval for resources that the engine sends no
	// events for.
	lookEvery = time.Second
)

// A watcher follows the resources to which clients have subscribed. It follows
// each resource once for all sessions. It stops when the last session
// unsubscribes or the resource cannot change any more.
type watcher struct {
	server *Server

	mu      sync.Mutex
	watches map[string]*watch                     // key is the URI
	wanted  map[*mcp.ServerSession]map[string]int // number of subscriptions by session and URI
}

// A watch is one resource that the watcher follows.
type watch struct {
	sessions int
	hold     *fair.Hold
	cancel   context.CancelFunc
	done     chan struct{}
}

func newWatcher(s *Server) *watcher {
	return &watcher{
		server:  s,
		watches: map[string]*watch{},
		wanted:  map[*mcp.ServerSession]map[string]int{},
	}
}

// subscribe checks that the caller may read the resource, and follows the
// resource.
func (w *watcher) subscribe(ctx context.Context, req *mcp.SubscribeRequest) error {
	uri := req.Params.URI
	if e := w.server.opts.Extension; e != nil && e.Subscribable(uri) {
		return nil
	}
	id, ok := auth.FromContext(ctx)
	if !ok {
		return notFound(uri)
	}
	follow, err := w.follower(ctx, id, uri)
	if err != nil {
		return err
	}

	k, err := w.reserve(ctx, id, uri)
	if err != nil {
		return &jsonrpc.Error{Code: jsonrpc.CodeInternalError, Message: "too many subscriptions: " + err.Error()}
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	defer func() {
		if w.watches[uri] != k {
			k.hold.Release() // the resource has a watch already, or subscribing failed
		}
	}()
	if w.watches == nil {
		return &jsonrpc.Error{Code: jsonrpc.CodeInternalError, Message: transport.ErrShutdown.Error()}
	}
	if w.wanted[req.Session] == nil {
		w.wanted[req.Session] = map[string]int{}
		go func() {
			// The SDK does not call the unsubscribe handler when a session ends.
			req.Session.Wait()
			w.forget(req.Session)
		}()
	}
	w.wanted[req.Session][uri]++
	if w.wanted[req.Session][uri] > 1 {
		return nil
	}
	if there := w.watches[uri]; there != nil {
		there.sessions++
		there.hold.Touch()
		return nil
	}
	followCtx, cancel := context.WithCancel(w.server.transport.Closing())
	k.cancel = cancel
	w.watches[uri] = k
	go func() {
		defer close(k.done)
		follow(followCtx)
	}()
	return nil
}

// reserve takes a unit of the pool for a new watch; the resource may have a watch
// already. To make room, the pool evicts watches of resources that cannot change
// any more. It evicts other watches only of principals that exceed their share.
func (w *watcher) reserve(ctx context.Context, id auth.Identity, uri string) (*watch, error) {
	k := &watch{sessions: 1, done: make(chan struct{})}
	hold, err := ledger.Acquire(ctx, w.server.shares.Watches, fair.Request{Principal: id.Principal, Units: 1, Evict: func(forced bool) bool {
		return w.evict(uri, k, forced)
	}})
	k.hold = hold
	return k, err
}

// evict ends a watch and sends its subscribers one last notification. They may
// then read the resource and subscribe again.
func (w *watcher) evict(uri string, k *watch, forced bool) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	over := false
	select {
	case <-k.done:
		over = true
	default:
	}
	if w.watches[uri] != k || !over && !forced {
		return false
	}
	for _, uris := range w.wanted {
		delete(uris, uri)
	}
	k.cancel()
	delete(w.watches, uri)
	k.hold.Release()
	go w.notify(w.server.transport.Closing(), uri)
	return true
}

func (w *watcher) unsubscribe(_ context.Context, req *mcp.UnsubscribeRequest) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	uris := w.wanted[req.Session]
	if uris[req.Params.URI] == 0 {
		return nil // not subscribed, or a resource that never changes
	}
	uris[req.Params.URI]--
	if uris[req.Params.URI] == 0 {
		delete(uris, req.Params.URI)
		w.releaseLocked(req.Params.URI)
	}
	return nil
}

// forget drops every subscription of a session.
func (w *watcher) forget(ss *mcp.ServerSession) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for uri := range w.wanted[ss] {
		w.releaseLocked(uri)
	}
	delete(w.wanted, ss)
}

// releaseLocked ends one subscription to uri, and the watch with the last one;
// w.mu is held.
func (w *watcher) releaseLocked(uri string) {
	k := w.watches[uri]
	if k == nil {
		return
	}
	k.sessions--
	if k.sessions == 0 {
		k.cancel()
		delete(w.watches, uri)
		k.hold.Release()
	}
}

// stopAll ends every watch, waits for their ends and prevents new ones.
func (w *watcher) stopAll() {
	w.mu.Lock()
	watches := w.watches
	w.watches = nil
	w.mu.Unlock()
	for _, k := range watches {
		k.cancel()
		<-k.done
		k.hold.Release()
	}
}

// follower checks that the caller may read a resource, and returns the function
// that follows the resource. Its errors are equal to those of a read, so they
// reveal no more.
func (w *watcher) follower(ctx context.Context, id auth.Identity, uri string) (func(context.Context), error) {
	u, err := url.Parse(uri)
	if err != nil {
		return nil, notFound(uri)
	}
	p := id.Principal
	path, isFile := strings.CutPrefix(u.Path, "/files")
	isFile = isFile && u.Scheme == "sandbox" && strings.HasPrefix(path, "/")
	scope := auth.ScopeRun
	if isFile {
		scope = auth.ScopeFiles
	}
	if !id.Reads(scope) {
		return nil, notFound(uri)
	}
	var look func(context.Context) (string, bool, error)
	logsOf, isLogs := w.server.profileLogs(u)
	switch {
	case w.server.opts.Profile != nil && !isLogs:
		return nil, w.unsubscribable()
	case isLogs:
		look = func(ctx context.Context) (string, bool, error) { return w.server.logsState(ctx, p, logsOf) }
	case u.Scheme == "run" && u.Path == "/output":
		// A read of 0 bytes checks that the run belongs to the caller.
		if _, _, err := w.server.engine.ReadOutput(ctx, p, u.Host, sandbox.Stdout, 0, 0); err != nil {
			return nil, w.server.protocolError(uri, err)
		}
		return func(ctx context.Context) { w.follow(ctx, p, u.Host, uri) }, nil
	case u.Scheme == "sandbox" && u.Path == "/logs":
		look = func(ctx context.Context) (string, bool, error) { return w.server.logsState(ctx, p, u.Host) }
	case isFile:
		look = (&fileWatch{server: w.server, principal: p, id: u.Host, path: path}).look
	default:
		return nil, w.unsubscribable()
	}
	state, over, err := look(ctx)
	if err != nil {
		return nil, w.server.protocolError(uri, err)
	}
	if over {
		return func(context.Context) {}, nil
	}
	return func(ctx context.Context) { w.look(ctx, uri, state, look) }, nil
}

// unsubscribable is the error for a resource without subscriptions.
func (w *watcher) unsubscribable() error {
	return &jsonrpc.Error{
		Code:    jsonrpc.CodeInvalidParams,
		Message: "these can be subscribed to: " + strings.Join(w.server.subscribable(), ", "),
	}
}

// notify sends a resource's subscribers a notification that it has changed.
func (w *watcher) notify(ctx context.Context, uri string) {
	err := w.server.mcp.ResourceUpdated(ctx, &mcp.ResourceUpdatedNotificationParams{URI: uri})
	if err != nil && ctx.Err() == nil {
		w.server.log.Warn("notify subscribers", "uri", uri, "error", err)
	}
}

// look polls a resource and notifies its subscribers when the state differs from
// last. It returns when ctx ends or the resource is over or gone.
func (w *watcher) look(ctx context.Context, uri, last string, look func(context.Context) (state string, over bool, err error)) {
	tick := time.NewTicker(lookEvery)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		state, over, err := look(ctx)
		switch {
		case ctx.Err() != nil:
			return
		case over || errors.Is(err, sandbox.NotFound):
			w.notify(ctx, uri)
			return
		case err != nil:
			w.server.log.Warn("look at resource for subscribers", "uri", uri, "error", err)
		case state != last:
			last = state
			w.notify(ctx, uri)
		}
	}
}

// follow notifies the subscribers of a run's output when output arrives, and once
// when the run ends.
func (w *watcher) follow(ctx context.Context, p sandbox.Principal, runID, uri string) {
	more := make(chan struct{}, 1)
	ended := make(chan error, 1)
	go func() {
		ended <- w.server.engine.Follow(ctx, p, runID, func(sandbox.StreamName, []byte) error {
			select {
			case more <- struct{}{}:
			default: // a notification is pending
			}
			return nil
		})
	}()
	for {
		select {
		case <-more:
			w.notify(ctx, uri)
		case err := <-ended:
			if err != nil && ctx.Err() == nil {
				w.server.log.Warn("follow run for subscribers", "run", runID, "error", err)
			}
			if ctx.Err() == nil {
				w.notify(ctx, uri)
			}
			return
		}
		// Output that arrives during this wait leads to one more notification.
		select {
		case <-time.After(notifyEvery):
		case <-ctx.Done():
			<-ended
			return
		}
	}
}
