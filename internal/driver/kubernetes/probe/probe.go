// Package probe is the program of the two Pods with which the doctor tries whether a
// cluster denies traffic: one listens, and the other dials it.
//
// Packages app and doctor import it. It has no state.
package probe

import (
	"context"
	"net"
	"strconv"
	"sync"
	"time"
)

// Command is the command of the program glovebox that runs [Main].
const Command = "probe-network"

// Port is where the Pod that listens does so. It is the port at which guests listen with
// the transport "direct": package direct has the same number.
const Port = 7353

// A Result is the exit status of the Pod that dials: [Tried], and one bit for each
// target. Other programs and failures have lower ones.
type Result int

// The bits of a result.
const (
	ReachedPod       Result = 1 << iota // the Pod that listens
	ReachedAPIServer                    // the API server's address in the cluster
	NoAPIServer                         // that address is not known
	Tried            Result = 64
)

// Valid reports whether a status is a result.
func (r Result) Valid() bool { return r&^(ReachedPod|ReachedAPIServer|NoAPIServer) == Tried }

// ListenArgs returns the arguments of the Pod that listens.
func ListenArgs() []string { return []string{Command} }

// DialArgs returns the arguments of the Pod that dials the Pod with an address.
func DialArgs(ip string) []string {
	return []string{Command, net.JoinHostPort(ip, strconv.Itoa(Port))}
}

// dialTime bounds an attempt to connect. The kernel repeats its first packet in it.
const dialTime = 5 * time.Second

// Main listens until ctx ends, or dials the Pod at address if it is not "". The kubelet
// gives each Pod the address of the API server in the environment. It returns the exit
// status.
func Main(ctx context.Context, address string, getenv func(string) string) (int, error) {
	if address == "" {
		l, err := (&net.ListenConfig{}).Listen(ctx, "tcp", net.JoinHostPort("", strconv.Itoa(Port)))
		if err != nil {
			return 1, err
		}
		return 0, listen(ctx, l)
	}
	server := ""
	if host := getenv("KUBERNETES_SERVICE_HOST"); host != "" {
		server = net.JoinHostPort(host, getenv("KUBERNETES_SERVICE_PORT"))
	}
	return int(dial(ctx, address, server)), nil
}

// listen closes each connection at once, until ctx ends.
func listen(ctx context.Context, l net.Listener) error {
	stop := context.AfterFunc(ctx, func() { _ = l.Close() })
	defer stop()
	for {
		conn, err := l.Accept()
		if ctx.Err() != nil {
			return nil
		}
		if err != nil {
			return err
		}
		_ = conn.Close()
	}
}

// dial connects to the Pod and to the API server, at the same time.
func dial(ctx context.Context, pod, server string) Result {
	var toPod, toServer bool
	var both sync.WaitGroup
	both.Go(func() { toPod = reaches(ctx, pod) })
	both.Go(func() { toServer = server != "" && reaches(ctx, server) })
	both.Wait()
	result := Tried
	if toPod {
		result |= ReachedPod
	}
	if toServer {
		result |= ReachedAPIServer
	}
	if server == "" {
		result |= NoAPIServer
	}
	return result
}

func reaches(ctx context.Context, address string) bool {
	ctx, cancel := context.WithTimeout(ctx, dialTime)
	defer cancel()
	conn, err := (&net.Dialer{}).DialContext(ctx, "tcp", address)
	if err != nil {
		return false
	}
	_ = conn.Close()
	return true
}
