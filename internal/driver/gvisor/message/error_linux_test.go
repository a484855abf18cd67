package message

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"testing"

	"github.com/glovebox-dev/glovebox/internal/driver"
	"github.com/glovebox-dev/glovebox/internal/sandbox"
)

func TestWireError(t *testing.T) {
	err := sandbox.WithHint(fmt.Errorf("dial: %w", driver.ErrGone), "make another")
	var buf bytes.Buffer
	if err := json.NewEncoder(&buf).Encode(NewError(err)); err != nil {
		t.Fatal(err)
	}
	var w Error
	if err := json.NewDecoder(&buf).Decode(&w); err != nil {
		t.Fatal(err)
	}
	got := w.Err()
	if !driver.IsGone(got) || errors.Is(got, driver.ErrUnavailable) {
		t.Errorf("%v: gone %t, unavailable %t; want gone only", got, driver.IsGone(got), errors.Is(got, driver.ErrUnavailable))
	}
	if sandbox.KindOf(got) != sandbox.NotFound || sandbox.HintOf(got) != "make another" || got.Error() != err.Error() {
		t.Errorf("%v of kind %s with hint %q is not what was sent", got, sandbox.KindOf(got), sandbox.HintOf(got))
	}
	if NewError(nil).Err() != nil {
		t.Error("no error became one")
	}
}
