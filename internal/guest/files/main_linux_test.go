package files_test

import (
	"testing"

	"github.com/glovebox-dev/glovebox/internal/guest/guesttest"
)

func TestMain(m *testing.M) { guesttest.Main(m) }

// A host is a guest of a test.
type host struct{ guesttest.Host }

func newHost(t testing.TB) *host { return &host{*guesttest.New(t)} }
