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
	Late                                // a target was reached at first, and not later
	Tried            Result = 64
)

// Valid reports whether a status is a result.
func (r Result) Valid() bool { return r&^(ReachedPod|ReachedAPIServer|NoAPIServer|Late) == Tried }

// ListenArgs returns the arguments of the Pod that listens.
func ListenArgs() []string { return []string{Command} }

// DialArgs returns the arguments of the Pod that dials the Pod with an address.
func DialArgs(ip string) []string {
	return []string{Command, net.JoinHostPort(ip, strconv.Itoa(Port))}
}

const (
	// dialTime bounds an attempt to connect. The kernel repeats its first packet in it.
	dialTime = 5 * time.Second
	// settleTime is how long a plug-in may take until a policy holds for a new Pod. Some
	// plug-ins make a Pod's rules when the API server has its address, and its program
	// may run before that.
	settleTime = 15 * time.Second
	// pause is the time between two attempts.
	pause = 250 * time.Millisecond
)

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
	return int(dial(ctx, address, server, settleTime)), nil
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

// dial connects to the Pod and to the API server, at the same time. It dials a target
// that it reached again, until it fails or settle is over.
func dial(ctx context.Context, pod, server string, settle time.Duration) Result {
	var toPod, toServer Result
	var both sync.WaitGroup
	both.Go(func() { toPod = reaches(ctx, pod, settle, ReachedPod) })
	if server != "" {
		both.Go(func() { toServer = reaches(ctx, server, settle, ReachedAPIServer) })
	} else {
		toServer = NoAPIServer
	}
	both.Wait()
	return Tried | toPod | toServer
}

// reaches returns the bit reached if an address is still reached after settle, Late if it
// was reached before, and otherwise 0.
func reaches(ctx context.Context, address string, settle time.Duration, reached Result) Result {
	end := time.Now().Add(settle)
	var result Result
	for connects(ctx, address) {
		if !time.Now().Before(end) || ctx.Err() != nil {
			return reached
		}
		result = Late
		time.Sleep(pause)
	}
	return result
}

func connects(ctx context.Context, address string) bool {
	ctx, cancel := context.WithTimeout(ctx, dialTime)
	defer cancel()
	conn, err := (&net.Dialer{}).DialContext(ctx, "tcp", address)
	if err != nil {
		return false
	}
	_ = conn.Close()
	return true
}
