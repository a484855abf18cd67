package approval

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"
)

// answerTime is how long a client may take to repeat a call with an answer.
const answerTime = 10 * time.Minute

// askByResult takes the answer out of a call, or returns the question as [*Needed]. The
// client repeats the state that comes with the question. The state shows that this
// server asked this principal this question, not long ago.
func (a *Approvals) askByResult(c Call, q question) error {
	p := c.Request.Params
	if r, ok := p.InputResponses[inputName].(*mcp.ElicitResult); ok && a.asked(c, q, p.RequestState) {
		return q.decide(r)
	}
	return &Needed{&mcp.CallToolResult{
		InputRequests: mcp.InputRequestMap{inputName: q.params()},
		RequestState:  a.state(c, q, time.Now().Add(answerTime)),
	}}
}

// state returns the state of a question: when it expires, and a code.
func (a *Approvals) state(c Call, q question, expires time.Time) string {
	at := binary.BigEndian.AppendUint64(nil, uint64(expires.Unix()))
	return base64.RawURLEncoding.EncodeToString(a.code(at, c, q))
}

// code returns at and a code of at, the caller, the tool and the question.
func (a *Approvals) code(at []byte, c Call, q question) []byte {
	mac := hmac.New(sha256.New, a.key[:])
	mac.Write(at) // never fails
	for _, text := range []string{string(c.Principal), c.Request.Params.Name, q.text()} {
		mac.Write(binary.BigEndian.AppendUint64(nil, uint64(len(text))))
		mac.Write([]byte(text))
	}
	return mac.Sum(append([]byte(nil), at...))
}

// asked reports whether a state is of this question and has not expired.
func (a *Approvals) asked(c Call, q question, state string) bool {
	b, err := base64.RawURLEncoding.DecodeString(state)
	if err != nil || len(b) < 8 || time.Now().Unix() > int64(binary.BigEndian.Uint64(b[:8])) {
		return false
	}
	return hmac.Equal(b, a.code(b[:8], c, q))
}
