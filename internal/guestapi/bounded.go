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

// splitObject returns the fields of an object, which must be valid JSON. There
// are at most maxResultKeys. A decoder would read large values several times.
func splitObject(object []byte) (map[string]json.RawMessage, error) {
	i := skipSpace(object, 0)
	if i >= len(object) || object[i] != '{' {
		return nil, errors.New("not an object")
	}
	fields := make(map[string]json.RawMessage)
	for n := 0; ; n++ {
		key := skipSpace(object, i+1) // after the brace or the comma
		if key >= len(object) || object[key] != '"' {
			return fields, nil
		}
		if n == maxResultKeys {
			return nil, fmt.Errorf("more than %d keys", maxResultKeys)
		}
		colon := skipValue(object, key)
		var name string
		if err := json.Unmarshal(object[key:colon], &name); err != nil {
			return nil, err
		}
		value := skipSpace(object, skipSpace(object, colon)+1)
		end := skipValue(object, value)
		if value >= end {
			return nil, errors.New("a key without a value")
		}
		fields[name] = bytes.Clone(object[value:end])
		i = skipSpace(object, end)
	}
}

func skipSpace(b []byte, i int) int {
	for i < len(b) && (b[i] == ' ' || b[i] == '\t' || b[i] == '\n' || b[i] == '\r') {
		i++
	}
	return i
}

// skipValue returns the end of the value of valid JSON that begins at i.
func skipValue(b []byte, i int) int {
	for depth := 0; i < len(b); i++ {
		switch b[i] {
		case '"':
			for i++; i < len(b) && b[i] != '"'; i++ {
				if b[i] == '\\' {
					i++
				}
			}
			if depth == 0 {
				return min(i+1, len(b))
			}
		case '{', '[':
			depth++
		case '}', ']':
			if depth--; depth <= 0 {
				return i + 1 + depth // a brace after a number is not a part of it
			}
		case ',', ' ', '\t', '\n', '\r':
			if depth == 0 {
				return i
			}
		}
	}
	return len(b)
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
