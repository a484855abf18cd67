package engine

import (
	"os"
	"testing"

	"github.com/glovebox-dev/glovebox/internal/driver/fake"
)

func TestMain(m *testing.M) {
	fake.Hook()
	if os.Getenv(childEnv) != "" {
		os.Exit(childMain())
	}
	os.Exit(m.Run())
}
