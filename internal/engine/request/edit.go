package request

import (
	"errors"
	"path"
	"unicode/utf8"

	"github.com/glovebox-dev/glovebox/internal/engine/excerpt"
	"github.com/glovebox-dev/glovebox/internal/sandbox"
)

// CheckEdits checks the edits of one call.
func CheckEdits(edits []sandbox.Edit) error {
	switch {
	case len(edits) == 0:
		return Invalid("edits: there are none")
	case len(edits) > sandbox.MaxEdits:
		return sandbox.WithHint(Invalid("edits: %d are more than %d in one call", len(edits), sandbox.MaxEdits), "make them in several calls")
	}
	size := 0
	for i, e := range edits {
		switch {
		case e.Old == "":
			return sandbox.WithHint(Invalid("edits[%d]: old_string: is empty", i), "write the whole file instead")
		case e.Old == e.New:
			return Invalid("edits[%d]: new_string: is the same as old_string", i)
		case !utf8.ValidString(e.Old) || !utf8.ValidString(e.New):
			return Invalid("edits[%d]: old_string or new_string is not UTF-8", i)
		}
		size += len(e.Old) + len(e.New)
	}
	if size > sandbox.MaxEditText {
		return sandbox.WithHint(Invalid("edits: their texts have %d bytes, more than %d in one call", size, sandbox.MaxEditText), "make them in several calls")
	}
	return nil
}

// CheckSearch checks a search, and makes its path absolute. The sandbox checks the
// pattern and the glob.
func CheckSearch(r *sandbox.SearchRequest) error {
	if r.Path == "" {
		r.Path = sandbox.WorkDir
	}
	if err := CheckPath("path", r.Path); err != nil {
		return err
	}
	r.Path = path.Clean(Absolute(r.Path))
	switch {
	case r.Pattern == "":
		return Invalid("pattern: is empty")
	case len(r.Pattern) > sandbox.MaxPattern:
		return Invalid("pattern: %d bytes are more than %d", len(r.Pattern), sandbox.MaxPattern)
	case !utf8.ValidString(r.Pattern) || !utf8.ValidString(r.Path):
		return Invalid("pattern or path: is not UTF-8")
	case r.Context < 0 || r.Context > sandbox.MaxContext:
		return Invalid("context_lines: %d is not between 0 and %d", r.Context, sandbox.MaxContext)
	case r.Max < 0 || r.Max > sandbox.MaxMatches:
		return Invalid("max_results: %d is not between 1 and %d", r.Max, sandbox.MaxMatches)
	case r.Glob == "":
		return nil
	}
	return CheckGlob(r.Glob, 0)
}

// CheckGlob checks a glob and a depth of a list.
func CheckGlob(glob string, depth int) error {
	switch {
	case glob == "":
		return Invalid("glob: is empty")
	case len(glob) > maxGlob || !utf8.ValidString(glob):
		return Invalid("glob: %s is not UTF-8, or more than %d bytes", excerpt.Quote(glob), maxGlob)
	case depth < 0 || depth > MaxDepth:
		return Invalid("depth: %d is not between 0 and %d", depth, MaxDepth)
	}
	return nil
}

// maxGlob bounds a glob, in bytes.
const maxGlob = 1024

// CheckDiff checks a request for changes. The sandbox checks the path.
func CheckDiff(r *sandbox.DiffRequest) error {
	if r.MaxText < 0 || r.MaxText > sandbox.MaxDiffText {
		return Invalid("show changes: max_text: %d is not between 0 and %d", r.MaxText, sandbox.MaxDiffText)
	}
	if r.MaxText == 0 {
		r.MaxText = sandbox.MaxDiffText
	}
	if r.Since != "" && !sandbox.ValidRunID(r.Since) {
		return ExplainDiff(r, Invalid("show changes: since: %s is not the ID of a run", excerpt.Quote(r.Since)))
	}
	return nil
}

// ExplainDiff adds a hint to an error about the run of a request for changes.
func ExplainDiff(r *sandbox.DiffRequest, err error) error {
	if r.Since != "" && errors.Is(err, sandbox.Invalid) {
		return sandbox.WithHint(err, "leave since out for all changes")
	}
	return err
}
