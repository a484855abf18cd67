package sandbox

// NewShell returns a request for an interactive shell on a terminal: the image's best
// one. Its script is constant. The variable TERM is terminal.
func NewShell(terminal string, size TerminalSize) RunRequest {
	return RunRequest{
		Argv:      []string{"/bin/sh", "-c", "command -v bash >/dev/null && exec bash -i; exec sh -i"},
		Env:       map[string]string{"TERM": terminal},
		KeepStdin: true,
		PTY:       &size,
	}
}
