package engine

import (
	"os"
	"testing"

	"github.com/glovebox-dev/glovebox/internal/driver/fake"
)

func TestMain(m *testing.M) {
	fake.Hook()
	os.Exit(m.Run())
}
