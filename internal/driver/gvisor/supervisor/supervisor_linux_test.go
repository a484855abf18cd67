package supervisor

import (
	"errors"
	"testing"
)

func TestOnceMade(t *testing.T) {
	calls := 0
	it := new(int)
	made := onceMade(func() (*int, error) {
		if calls++; calls == 1 {
			return nil, errors.New("not yet")
		}
		return it, nil
	})
	if _, err := made(); err == nil {
		t.Error("the error was lost")
	}
	for range 2 {
		if got, err := made(); got != it || err != nil {
			t.Errorf("made() = %v, %v after it can be made", got, err)
		}
	}
	if calls != 2 {
		t.Errorf("made %d times", calls)
	}
}
