package sandbox

// Bounds of an edit.
const (
	// MaxEditFile bounds a file before and after an edit, in bytes.
	MaxEditFile = 8 << 20
	// MaxEdits bounds the edits of one call, and MaxEditText the bytes of their
	// texts together.
	MaxEdits    = 100
	MaxEditText = 1 << 20
)

// An Edit replaces a text of a file by another one. Unless All is set, the text
// must occur exactly once.
type Edit struct {
	Old string `json:"old_string"`
	New string `json:"new_string"`
	All bool   `json:"replace_all,omitempty"`
}

// Edited is a file after a call that edited it.
type Edited struct {
	// Replacements counts the replaced texts, and Lines are the lines of the file
	// at which the text of each edit was, the first one if there were several.
	// Edits are applied in turn, so a line is counted in the result of the edits
	// before.
	Replacements int   `json:"replacements"`
	Lines        []int `json:"lines"`
	Size         int64 `json:"size"` // of the file, in bytes
}
