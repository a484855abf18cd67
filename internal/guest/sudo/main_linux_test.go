package sudo_test

import (
	"testing"

	"github.com/glovebox-dev/glovebox/internal/guest/guesttest"
)

func TestMain(m *testing.M) { guesttest.Main(m) }
