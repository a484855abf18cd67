package guestlink

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"

	"github.com/glovebox-dev/glovebox/internal/guestapi"
	"github.com/glovebox-dev/glovebox/internal/sandbox"
)

// envFile is where a detached sandbox keeps its environment. Another process
// that takes the sandbox over needs it, and it may hold secrets, so it is not
// stored on the host. The file belongs to root. Every program in the box gets
// the same environment, so the box may hold it.
func envFile(id string) string { return "/tmp/.glovebox-env/" + id + ".json" }

// KeepEnv writes the environment of a sandbox into the sandbox.
func KeepEnv(ctx context.Context, g Guest, id string, env map[string]string) error {
	text, err := json.Marshal(env)
	if err != nil {
		return err
	}
	_, err = g.Write(ctx, envFile(id), bytes.NewReader(text), guestapi.WriteOptions{User: sandbox.Root})
	return sandbox.Wrap(err, "keep environment", "")
}

// LoadEnv reads what KeepEnv wrote, at most that many bytes, and checks it.
func LoadEnv(ctx context.Context, g Guest, id string, most int64, check func(map[string]string) error) (map[string]string, error) {
	r, size, err := g.Read(ctx, envFile(id), 0, -1, guestapi.FileOptions{User: sandbox.Root})
	if err != nil {
		return nil, sandbox.Wrap(err, "read environment", "")
	}
	defer r.Close()
	if size > most {
		return nil, sandbox.Errorf(sandbox.Internal, "read environment: %d bytes are too many", size)
	}
	text, err := io.ReadAll(io.LimitReader(r, most))
	if err != nil {
		return nil, sandbox.Wrap(err, "read environment", "")
	}
	env := map[string]string{}
	if err := json.Unmarshal(text, &env); err != nil {
		return nil, fmt.Errorf("read environment: the file has changed")
	}
	return env, sandbox.Wrap(check(env), "read environment", "")
}
