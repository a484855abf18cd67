package engine

import (
	"strconv"
	"testing"

	"github.com/glovebox-dev/glovebox/internal/sandbox"
)

func TestSharedReceipts(t *testing.T) {
	var s sharedReceipts
	receipt := func(n int) sandbox.Receipt {
		return sandbox.Receipt{{Name: sandbox.ControlCPU, Value: strconv.Itoa(n)}, {Name: sandbox.ControlDisk}}
	}
	first := s.of(receipt(0))
	for n := range 100 {
		if got := s.of(receipt(n)); got[0].Value != strconv.Itoa(n) {
			t.Errorf("a receipt of %d has %s", n, got[0].Value)
		}
		if n < len(s.recent) {
			if got := s.of(receipt(0)); &got[0] != &first[0] {
				t.Errorf("after %d others, an equal receipt is another one", n)
			}
		}
	}
	if got := s.of(nil); len(got) > 0 {
		t.Errorf("no receipt became %v", got)
	}
}
