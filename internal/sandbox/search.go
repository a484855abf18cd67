package sandbox

// Bounds of a search.
const (
	MaxPattern       = 1000 // bytes of a pattern
	MaxMatches       = 1000 // matching lines that an answer can have
	MaxContext       = 10   // lines around a match
	DefaultMatches   = 50
	MaxSearchText    = 64 << 10 // bytes of the lines of an answer
	MaxSearchSeconds = 20       // after which a search ends with what it has
)

// A SearchRequest asks for lines in the files of a sandbox.
type SearchRequest struct {
	// Path is a directory, or one file. Pattern is a regular expression in RE2's
	// syntax, for one line.
	Path    string `json:"path"`
	Pattern string `json:"pattern"`
	// Glob, if set, restricts the files.
	Glob string `json:"glob,omitempty"`
	// Context is the number of lines before and after each match. Max bounds the
	// matches in the answer; zero is DefaultMatches.
	Context int `json:"context,omitempty"`
	Max     int `json:"max,omitempty"`
	// Ignored also searches what .gitignore files leave out.
	Ignored bool `json:"ignored,omitempty"`
}

// A FoundLine is a line of a file. A long line is cut to the part around its first
// match.
type FoundLine struct {
	Line  int    `json:"line"` // from 1
	Text  string `json:"text"`
	Match bool   `json:"match"` // false for a line of the context
}

// FoundFile are the lines of one file, in their order.
type FoundFile struct {
	Path  string      `json:"path"` // absolute
	Lines []FoundLine `json:"lines"`
}

// Found is the answer to a search. Files are in the order of their paths.
type Found struct {
	Files []FoundFile `json:"files"`
	// Matches counts all matching lines, and MatchedFiles the files that have some,
	// in all of the searched files. Omitted counts the matching lines that are not in
	// the answer.
	Matches      int `json:"matches"`
	MatchedFiles int `json:"matched_files"`
	Omitted      int `json:"omitted,omitempty"`
	// Searched counts the files that were searched. Binary counts those left out
	// because they have a NUL byte near their beginning, and Unreadable the files
	// and directories that the user may not read.
	Searched   int `json:"searched"`
	Binary     int `json:"binary,omitempty"`
	Unreadable int `json:"unreadable,omitempty"`
	Cut
}

// A Cut says that a walk of a tree ended early: after At, in the order of paths,
// nothing was looked at. It is zero after a complete walk.
type Cut struct {
	Incomplete bool   `json:"incomplete,omitempty"`
	Reason     string `json:"reason,omitempty"`
	At         string `json:"at,omitempty"`
}

// Listing are the files below a directory that match a glob, in the order of their
// paths. Omitted counts those that are not in the list.
type Listing struct {
	Files   []File `json:"files"`
	Omitted int    `json:"omitted,omitempty"`
	Cut
}
