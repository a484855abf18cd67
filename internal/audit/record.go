package audit

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/glovebox-dev/glovebox/internal/sandbox"
)

// An Action names an action of a record.
type Action string

// The actions.
const (
	TokenCreate     Action = "token.create"
	TokenRevoke     Action = "token.revoke"
	TokenRotate     Action = "token.rotate"
	TokenUse        Action = "token.use"    // the first use in an hour from one address
	TokenRefuse     Action = "token.refuse" // counted per address and minute
	SandboxCreate   Action = "sandbox.create"
	SandboxStop     Action = "sandbox.stop"
	SandboxEnd      Action = "sandbox.set_end"
	SandboxFork     Action = "sandbox.fork"
	SandboxRollback Action = "sandbox.rollback"
	SandboxRestart  Action = "sandbox.restart"
	SnapshotTake    Action = "snapshot.take"
	SnapshotDelete  Action = "snapshot.delete"
	RunStart        Action = "run.start"
	RunStop         Action = "run.stop"
	RunInput        Action = "run.input"
	PackageInstall  Action = "package.install"
	FileRead        Action = "file.read"
	FileSearch      Action = "file.search"
	FileWrite       Action = "file.write"
	WorkspaceExport Action = "workspace.export"
	WorkspaceImport Action = "workspace.import"
	WorkspaceDelete Action = "workspace.delete"
	NetworkSet      Action = "network.set"
	NetworkRefuse   Action = "network.refuse"
	SecretUse       Action = "secret.use"
	PortOpen        Action = "port.open"
	GuestRequest    Action = "guest.request" // of E2B's protocol, passed on to the guest
	LimitSet        Action = "limit.set"
	LimitRemove     Action = "limit.remove"
	GroupAdd        Action = "group.add"
	GroupRemove     Action = "group.remove"
	PrincipalForget Action = "principal.forget"
	LogOpen         Action = "audit.open"
	LogPrune        Action = "audit.prune"
	LogGap          Action = "audit.gap"
)

// Actions returns all actions.
func Actions() []Action {
	return []Action{
		TokenCreate, TokenRevoke, TokenRotate, TokenUse, TokenRefuse,
		SandboxCreate, SandboxStop, SandboxEnd, SandboxFork, SandboxRollback, SandboxRestart, SnapshotTake, SnapshotDelete,
		RunStart, RunStop, RunInput, PackageInstall, FileRead, FileSearch, FileWrite, WorkspaceExport, WorkspaceImport, WorkspaceDelete,
		NetworkSet, NetworkRefuse, SecretUse, PortOpen, GuestRequest,
		LimitSet, LimitRemove, GroupAdd, GroupRemove, PrincipalForget, LogOpen, LogPrune, LogGap,
	}
}

// The outcomes of a record. Any other outcome is the kind of an error.
const (
	// OK is the outcome of an action that was done.
	OK = "ok"
	// Begun is the outcome of an action that may have been done. It is written before
	// the action where records are required. A second record has the outcome.
	Begun = "begun"
)

// A Record is one line of a Log. [Log.Append] sets Seq, Time and Prev.
type Record struct {
	// Seq counts the records of a Log from 1.
	Seq  int64     `json:"seq"`
	Time time.Time `json:"time"`

	Action Action `json:"action"`
	// Principal did the action. It is "" if the request had no verified credential.
	Principal sandbox.Principal `json:"principal,omitempty"`
	// Token is the ID of the token that proved the principal, or "".
	Token string `json:"token,omitempty"`
	// From is the address of the client's connection, or "" on this machine.
	From    string `json:"from,omitempty"`
	Sandbox string `json:"sandbox,omitempty"`
	Run     string `json:"run,omitempty"`
	Outcome string `json:"outcome"`
	// Detail says more about the action. Each value has at most 300 bytes.
	Detail map[string]string `json:"detail,omitempty"`

	// Prev is the SHA-256 of the line before, in hexadecimal and without its newline.
	Prev string `json:"prev"`
}

// Bounds of a line, so that a reader needs no more memory.
const (
	maxValue   = 300
	maxDetails = 10
	maxLine    = 16 << 10
)

// bounded returns a record whose line has at most maxLine bytes. Its texts are valid
// UTF-8 and may come from a client.
func (r Record) bounded() Record {
	r.Principal = sandbox.Principal(short(string(r.Principal)))
	for _, text := range []*string{&r.Token, &r.From, &r.Sandbox, &r.Run, &r.Outcome} {
		*text = short(*text)
	}
	detail := make(map[string]string, len(r.Detail))
	for k, v := range r.Detail {
		if len(detail) < maxDetails && v != "" {
			detail[short(k)] = short(v)
		}
	}
	r.Detail = detail
	return r
}

// short returns a text of at most maxValue bytes.
func short(text string) string {
	text = strings.Map(func(r rune) rune {
		if unicode.IsControl(r) {
			return unicode.ReplacementChar
		}
		return r
	}, strings.ToValidUTF8(text, "\uFFFD"))
	if len(text) <= maxValue {
		return text
	}
	end := maxValue - len("…")
	for !utf8.RuneStart(text[end]) {
		end--
	}
	return text[:end] + "…"
}

// line returns the record as a line without its newline. JSON at most doubles the
// length of a bounded text.
func (r Record) line() ([]byte, error) {
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	err := enc.Encode(r)
	return bytes.TrimSuffix(b.Bytes(), []byte("\n")), err
}

// A hash is the SHA-256 of a line. Before the first line, it is zero.
type hash [sha256.Size]byte

func (h hash) String() string { return hex.EncodeToString(h[:]) }

// parseHash is the inverse of String.
func parseHash(text string) (h hash, ok bool) {
	b, err := hex.DecodeString(text)
	if err != nil || len(b) != len(h) {
		return hash{}, false
	}
	return hash(b), true
}
