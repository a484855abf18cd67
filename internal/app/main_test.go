package app

import (
	"os"
	"testing"

	"github.com/glovebox-dev/glovebox/internal/driver/fake"
)

// The test binary is also the program of the drivers' helpers.
func TestMain(m *testing.M) {
	fake.Hook()
	reexec()
	if os.Getenv(soakEnv) != "" {
		os.Exit(soakServer())
	}
	os.Exit(m.Run())
}
