package dockerapi

import (
	"encoding/json"
	"errors"
	"io"
	"strings"

	"github.com/moby/moby/api/types/jsonstream"
)

// Loaded returns the names of the loaded images, as the container engine reports
// them.
func Loaded(r io.Reader) ([]string, error) {
	const maxReply = 1 << 20
	dec := json.NewDecoder(io.LimitReader(r, maxReply))
	var names []string
	for {
		var m jsonstream.Message
		err := dec.Decode(&m)
		if errors.Is(err, io.EOF) {
			return names, nil
		}
		if err == nil && m.Error != nil {
			err = m.Error
		}
		if err != nil {
			return nil, err
		}
		for line := range strings.Lines(m.Stream) {
			// Podman reports several names, separated by commas.
			_, list, ok := strings.Cut(strings.TrimSpace(line), "Loaded image")
			if !ok {
				continue
			}
			_, list, _ = strings.Cut(list, ":")
			for name := range strings.SplitSeq(list, ",") {
				if name = strings.TrimSpace(name); name != "" {
					names = append(names, name)
				}
			}
		}
	}
}
