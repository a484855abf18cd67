package guestapi

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"time"
)

// A guest may be hostile, and a value of a few bytes on the wire can take
// hundreds in memory. So lists in replies are counted while they are decoded: a
// bound on their bytes does not bound their memory.
const (
	maxListedProcesses = 1 << 16
	maxListedEvents    = 1 << 14
	maxListedContexts  = 1 << 10
	maxResultKeys      = 64
)

// decodeList decodes an array of at most limit elements.
func decodeList[T any](array []byte, limit int) ([]T, error) {
	if len(array) == 0 || string(array) == "null" {
		return nil, nil
	}
	dec := json.NewDecoder(bytes.NewReader(array))
	if open, err := dec.Token(); err != nil {
		return nil, err
	} else if open != json.Delim('[') {
		return nil, errors.New("not a list")
	}
	list := []T{}
	for dec.More() {
		if len(list) == limit {
			return nil, fmt.Errorf("list of more than %d", limit)
		}
		var v T
		if err := dec.Decode(&v); err != nil {
			return nil, err
		}
		list = append(list, v)
	}
	return list, nil
}

// UnmarshalJSON returns an error for more than MaxListEntries entries.
func (r *ListDirResponse) UnmarshalJSON(b []byte) error {
	var raw struct {
		Entries   json.RawMessage `json:"entries"`
		Truncated bool            `json:"truncated"`
	}
	err := json.Unmarshal(b, &raw)
	if err == nil {
		r.Truncated = raw.Truncated
		r.Entries, err = decodeList[Entry](raw.Entries, MaxListEntries)
	}
	return err
}

// UnmarshalJSON returns an error for more processes than any sandbox has.
func (r *ListProcessesResponse) UnmarshalJSON(b []byte) error {
	var raw struct {
		Processes json.RawMessage `json:"processes"`
	}
	err := json.Unmarshal(b, &raw)
	if err == nil {
		r.Processes, err = decodeList[ProcessInfo](raw.Processes, maxListedProcesses)
	}
	return err
}

// UnmarshalJSON returns an error for more events than a guest keeps.
func (r *GetWatcherEventsResponse) UnmarshalJSON(b []byte) error {
	var raw struct {
		Events json.RawMessage `json:"events"`
	}
	err := json.Unmarshal(b, &raw)
	if err == nil {
		r.Events, err = decodeList[FilesystemEvent](raw.Events, maxListedEvents)
	}
	return err
}

// contextList is the reply to a list of contexts.
type contextList []Context

func (l *contextList) UnmarshalJSON(b []byte) (err error) {
	*l, err = decodeList[Context](b, maxListedContexts)
	return err
}

// resultFields are the fields of a result's event, at most maxResultKeys.
type resultFields map[string]json.RawMessage

func (f *resultFields) UnmarshalJSON(b []byte) error {
	dec := json.NewDecoder(bytes.NewReader(b))
	if open, err := dec.Token(); err != nil {
		return err
	} else if open != json.Delim('{') {
		return errors.New("not an object")
	}
	*f = make(resultFields)
	for n := 0; dec.More(); n++ {
		if n == maxResultKeys {
			return fmt.Errorf("more than %d keys", maxResultKeys)
		}
		key, err := dec.Token()
		if err != nil {
			return err
		}
		name, ok := key.(string)
		if !ok {
			return errors.New("a key is not a string")
		}
		var value json.RawMessage
		if err := dec.Decode(&value); err != nil {
			return err
		}
		(*f)[name] = value
	}
	return nil
}

// drainTimeout bounds the wait for the end of a body whose needed part was read.
const drainTimeout = 5 * time.Second

// drain discards up to n bytes of a body and closes it. A stream that ends
// within them ends without a reset.
func drain(body io.ReadCloser, n int64) {
	defer closeLater(body)()
	io.CopyN(io.Discard, body, n)
	body.Close()
}

// closeLater closes a body after drainTimeout, unless stop is called before.
func closeLater(body io.Closer) (stop func()) {
	t := time.AfterFunc(drainTimeout, func() { body.Close() })
	return func() { t.Stop() }
}
