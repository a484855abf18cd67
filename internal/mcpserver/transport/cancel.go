package transport

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"
)

// The SDK cancels a call at notifications/cancelled, and drops the reason. So the
// transports read these notifications before the SDK does, and end the call's context
// with the reason as its cause.

// A Cancelled is the cause with which the context of a call ends if its client sent
// notifications/cancelled. It is not the cause if the client closed the request of the
// call, or cancelled the call in a batch.
type Cancelled struct {
	Reason string // of the client, or ""
}

func (c *Cancelled) Error() string {
	if c.Reason == "" {
		return "the client cancelled the call"
	}
	return "the client cancelled the call: " + c.Reason
}

// callHeader is a header with the name of a call, which notifications/cancelled of the
// same session gives. The SDK passes only the header of a request on to handlers. A
// header that the client sent is overwritten.
const callHeader = "Glovebox-Call"

// callName returns the name of a call. scope names its session.
func callName(scope string, id jsonrpc.ID) string {
	return fmt.Sprintf("%s %T %v", scope, id.Raw(), id.Raw())
}

// A cancellation is what notifications/cancelled says.
type cancellation struct {
	id     jsonrpc.ID
	reason string
}

// cancellationOf returns the cancellation in a notification, if it is one.
func cancellationOf(req *jsonrpc.Request) (cancellation, bool) {
	var p struct {
		RequestID any    `json:"requestId"`
		Reason    string `json:"reason"`
	}
	if req.IsCall() || req.Method != "notifications/cancelled" || json.Unmarshal(req.Params, &p) != nil {
		return cancellation{}, false
	}
	id, err := jsonrpc.MakeID(p.RequestID)
	return cancellation{id, p.Reason}, err == nil && id.IsValid()
}

// cancel ends a call in progress with a [Cancelled] as its cause. It does nothing if
// there is no such call.
func (c *calls) cancel(scope string, what cancellation) {
	name := callName(scope, what.id)
	c.mu.Lock()
	defer c.mu.Unlock()
	for call := range c.active {
		if call.name == name {
			call.cancel(&Cancelled{what.reason})
		}
	}
}

// nameCall sets or removes the header with the name of a call.
func nameCall(h http.Header, scope string, id jsonrpc.ID) {
	h.Del(callHeader)
	if id.IsValid() {
		h.Set(callHeader, callName(scope, id))
	}
}

// A namedTransport is a transport of one session whose calls have names.
type namedTransport struct {
	mcp.Transport
	calls *calls
	scope string // names the session
}

// Connect implements [mcp.Transport].
func (t namedTransport) Connect(ctx context.Context) (mcp.Connection, error) {
	c, err := t.Transport.Connect(ctx)
	if err != nil {
		return nil, err
	}
	return namedConn{c, t.calls, t.scope}, nil
}

type namedConn struct {
	mcp.Connection
	calls *calls
	scope string
}

// Read implements [mcp.Connection].
func (c namedConn) Read(ctx context.Context) (jsonrpc.Message, error) {
	m, err := c.Connection.Read(ctx)
	if req, ok := m.(*jsonrpc.Request); ok {
		extra, _ := req.Extra.(*mcp.RequestExtra)
		if extra == nil {
			extra = &mcp.RequestExtra{}
			req.Extra = extra
		}
		if extra.Header == nil {
			extra.Header = http.Header{}
		}
		nameCall(extra.Header, c.scope, req.ID)
		if what, ok := cancellationOf(req); ok {
			c.calls.cancel(c.scope, what)
		}
	}
	return m, err
}
