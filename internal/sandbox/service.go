package sandbox

import (
	"strconv"
	"strings"
	"time"
)

// A ServiceRequest makes a run a service: a program that lives as long as its
// sandbox. It has no input and no timeout, and its log is rotated.
type ServiceRequest struct {
	// Name names the service among those of its sandbox. Restart says when the
	// program is started again after its end; "" is RestartNever. Ready, if not
	// nil, says when the service is ready. Wake says when its sandbox rests.
	Name    string
	Restart RestartPolicy
	Ready   *ReadyCheck
	Wake    WakePolicy
}

// A WakePolicy says whether the sandbox of a service rests.
type WakePolicy string

// The wake policies. With WakeNever, which is the default, the sandbox does not rest.
// With WakeRequest it rests while nothing but such services uses it, and a connection
// to one of its ports wakes it.
const (
	WakeNever   WakePolicy = ""
	WakeRequest WakePolicy = "request"
)

// A RestartPolicy says after which ends a service is started again.
type RestartPolicy string

// The restart policies.
const (
	RestartNever     RestartPolicy = "never"
	RestartOnFailure RestartPolicy = "on-failure"
	RestartAlways    RestartPolicy = "always"
)

// A ReadyCheck tells when a service is ready. Exactly one of Port, Output and
// Command is set.
type ReadyCheck struct {
	// Port is ready when a program listens on it, at a loopback address of the
	// sandbox. Output is a regular expression (RE2) for a line of the output.
	// Command is a shell command that succeeds.
	Port    int    `json:"port,omitempty"`
	Output  string `json:"output,omitempty"`
	Command string `json:"command,omitempty"`
	// Timeout is how long the service has to become ready. Zero is a minute.
	Timeout time.Duration `json:"timeout,omitempty"`
}

// ParseReady returns the check that a text describes: port:8000, output:PATTERN or
// command:TEXT. For an empty text it returns nil. The error is of kind Invalid.
func ParseReady(text string, timeout time.Duration) (*ReadyCheck, error) {
	if text == "" {
		return nil, nil
	}
	kind, value, _ := strings.Cut(text, ":")
	r := &ReadyCheck{Timeout: timeout}
	switch kind {
	case "port":
		n, err := strconv.ParseUint(strings.TrimSpace(value), 10, 16)
		if err != nil {
			return nil, Errorf(Invalid, "ready: %.40q is not a port", value)
		}
		r.Port = int(n)
	case "output":
		r.Output = value
	case "command":
		r.Command = value
	default:
		return nil, WithHint(Errorf(Invalid, "ready: %.40q is no check", text), "write port:8000, output:PATTERN or command:TEXT")
	}
	return r, nil
}

// A ServiceState says where a service is in its life.
type ServiceState string

// The states of a service.
const (
	ServiceStarting   ServiceState = "starting"   // it is not ready yet
	ServiceRunning    ServiceState = "running"    // its program runs
	ServiceRestarting ServiceState = "restarting" // its program ended, and is started again soon
	ServiceEnded      ServiceState = "ended"      // its run has finished
)

// A Service describes the service that a run is.
type Service struct {
	Name    string        `json:"name"`
	State   ServiceState  `json:"state"`
	Restart RestartPolicy `json:"restart"`
	Wake    WakePolicy    `json:"wake,omitempty"`
	// Restarts counts the starts after the first. LastExit is the exit code of
	// the program's last end; nil if it has not ended, or did not exit by itself.
	Restarts int  `json:"restarts"`
	LastExit *int `json:"last_exit_code,omitempty"`
	// Ports are the TCP ports on which a process of the service was last found to
	// listen, in order.
	Ports []int `json:"ports,omitempty"`
}
