package sandbox

// Bounds of a difference.
const (
	// MaxTracked bounds the files whose changes a sandbox finds.
	MaxTracked = 50_000
	// MaxPatchFile bounds a file whose change a patch has, in bytes. MaxDiffFile
	// bounds one whose change is shown as lines.
	MaxPatchFile = 8 << 20
	MaxDiffFile  = 512 << 10
	// MaxDiffText bounds the text of one answer, so that the largest file fits.
	MaxDiffText = 11 << 20
	// DefaultDiffText is the text of an answer for a model.
	DefaultDiffText = 32 << 10
	// MaxDiffNames bounds the named files of an answer.
	MaxDiffNames = 500
	// MaxDiffRuns is how many of its last runs a sandbox knows for Since.
	MaxDiffRuns = 100
)

// A DiffRequest asks for the changes of a sandbox's files.
type DiffRequest struct {
	// Path is a directory or a file; "" is [WorkDir]. Names in the answer are
	// relative to it.
	Path string
	// Since is the run since whose start changes count. "" is the start of the
	// sandbox, or for files that were copied in since, their last copy.
	Since string
	// Patch asks for a text that git apply accepts, also for files that are not
	// text. Otherwise the text is for readers.
	Patch bool
	// MaxText bounds the text in bytes; zero is MaxDiffText. After, from an earlier
	// answer's Next, continues that answer.
	MaxText int
	After   string
}

// A CopiedFile is a file that came into a sandbox from elsewhere.
type CopiedFile struct {
	Path       string `json:"path"`
	Executable bool   `json:"executable,omitempty"`
}

// A Diff is the changes of a sandbox's files. Removed files and new ones are not
// matched: a renamed file is one of each. Files that .gitignore names do not count,
// nor does .git.
type Diff struct {
	// Changes has the changed files in the order of their paths.
	Changes
	// Path is the directory that the names are relative to.
	Path string `json:"path"`
	// Text is the changes in the form of git diff, of whole files only.
	Text string `json:"diff"`
	// LeftOut are changed files whose change cannot be in Text, and NotShown counts
	// those that come after its end.
	LeftOut  []LeftOut `json:"left_out,omitempty"`
	NotShown int       `json:"not_shown,omitempty"`
	// Next is set if a further request can have the files of NotShown.
	Next string `json:"-"`
	// A walk that ended early found the changes of the files before its end only.
	Cut
}

// LeftOut is a changed file whose change is not in a text, and the reason.
type LeftOut struct {
	Path   string `json:"path"`
	Reason string `json:"reason"`
}
