package signin

import (
	"crypto/rand"
	"math/big"
	"net/http"
	"strings"
	"time"

	"github.com/glovebox-dev/glovebox/internal/auth"
	"github.com/glovebox-dev/glovebox/internal/fair"
	"github.com/glovebox-dev/glovebox/internal/sandbox"
)

// A device is a client without a browser that waits for a person to type its user
// code (RFC 8628).
type device struct {
	client  string // ID
	name    string // of the client
	user    string // user code, without the dash
	scopes  []auth.Scope
	expires time.Time

	polled   time.Time     // of the last request
	interval time.Duration // between two requests

	decided bool
	token   string   // ID of the person's token; "" if the person refused
	granted []string // scopes
}

func (d *device) ends() time.Time { return d.expires }

const (
	// userLetters are letters that people do not mistake for others, and that form
	// no words (RFC 8628).
	userLetters = "BCDFGHJKLMNPQRSTVWXZ"
	userLength  = 8
	// pollEvery is how long a client waits between two requests.
	pollEvery = 5 * time.Second
)

func newUserCode() (string, error) {
	b := make([]byte, userLength)
	for i := range b {
		n, err := rand.Int(rand.Reader, big.NewInt(int64(len(userLetters))))
		if err != nil {
			return "", err
		}
		b[i] = userLetters[n.Int64()]
	}
	return string(b), nil
}

// normalise returns a user code as people may type it, without dash and space.
func normalise(code string) string {
	return strings.ToUpper(strings.NewReplacer("-", "", " ", "").Replace(code))
}

// beginDevice serves the device authorization endpoint.
func (s *Server) beginDevice(w http.ResponseWriter, r *http.Request, base string) {
	if !readForm(w, r) {
		return
	}
	if !s.admit(w, r) {
		return
	}
	c, err := s.client(r, r.PostForm.Get("client_id"))
	if err != nil {
		refuse(w, http.StatusBadRequest, "invalid_client", s.personal(err))
		return
	}
	scopes := wanted(r.PostForm.Get("scope"))
	if len(scopes) == 0 {
		refuse(w, http.StatusBadRequest, "invalid_scope", "the scopes of this server are run and files")
		return
	}
	user, err := newUserCode()
	if err != nil {
		s.fail(w, err)
		return
	}
	secret, now := newSecret(), s.opts.Now()
	s.devices.put(secret, string(fair.AddressOf(r.RemoteAddr)), &device{
		client: c.ID, name: c.Name, user: user, scopes: scopes, expires: now.Add(deviceTTL), interval: pollEvery,
	}, now)
	shown := user[:userLength/2] + "-" + user[userLength/2:]
	writeJSON(w, http.StatusOK, map[string]any{
		"device_code":               secret,
		"user_code":                 shown,
		"verification_uri":          base + devicePath,
		"verification_uri_complete": base + devicePath + "?user_code=" + shown,
		"expires_in":                int(deviceTTL.Seconds()),
		"interval":                  int(pollEvery.Seconds()),
	})
}

// pollDevice answers the token request of a device.
func (s *Server) pollDevice(w http.ResponseWriter, r *http.Request) {
	var (
		failure = "expired_token"
		text    = "the device code is not valid any more; begin again"
		grant   *sandbox.Grant
	)
	now := s.opts.Now()
	s.devices.use(r.PostForm.Get("device_code"), now, func(d *device) bool {
		switch {
		case d.client != r.PostForm.Get("client_id"):
			failure, text = "invalid_grant", "the device code is another client's"
			return true
		case d.decided && d.token == "":
			failure, text = "access_denied", "the person refused"
			return false
		case d.decided:
			grant = &sandbox.Grant{ID: sandbox.NewGrantID(), TokenID: d.token, ClientID: d.client, ClientName: d.name, Scopes: d.granted}
			return false
		case now.Sub(d.polled) < d.interval-time.Second: // the network delays requests differently
			d.interval += pollEvery
			failure, text = "slow_down", "ask less often"
		default:
			failure, text = "authorization_pending", "the person has not decided yet"
		}
		d.polled = now
		return true
	})
	if grant == nil {
		refuse(w, http.StatusBadRequest, failure, text)
		return
	}
	s.grant(w, r, *grant, func() bool { return false })
}

// devicePage serves the page on which a person types a user code.
func (s *Server) devicePage(w http.ResponseWriter, r *http.Request, base string) {
	if r.Method != http.MethodGet && r.Method != http.MethodPost {
		wrongMethod(w, "GET, POST")
		return
	}
	if err := r.ParseForm(); err != nil {
		showError(w, http.StatusBadRequest, "The request cannot be read.")
		return
	}
	// A person with a token is no stranger.
	id, _, failed := s.signIn(r.Context(), r.PostForm.Get("token"), offered)
	if failed != nil && !s.admit(w, r) {
		return
	}
	user := normalise(r.Form.Get("user_code"))
	now := s.opts.Now()
	var found *device
	s.devices.find(now, func(d *device) bool {
		if d.user == user && !d.decided {
			copied := *d
			found = &copied
		}
		return found != nil
	})
	switch {
	case user == "":
		page{Action: base + devicePath, AskCode: true}.show(w, http.StatusOK, "")
		return
	case found == nil:
		page{Action: base + devicePath, AskCode: true, Wrong: "No device waits with this code. Codes end after ten minutes."}.show(w, http.StatusNotFound, "")
		return
	}
	p := page{
		Action: base + devicePath, Client: found.name, Code: user[:userLength/2] + "-" + user[userLength/2:], Rights: rights(found.scopes),
		Hidden: []hidden{{"user_code", user}},
	}
	if r.Method == http.MethodGet || r.PostForm.Get("decision") == "" {
		p.show(w, http.StatusOK, "")
		return
	}
	var (
		token   string
		granted []string
	)
	if r.PostForm.Get("decision") == "allow" {
		if failed == nil {
			id, granted, failed = s.signIn(r.Context(), r.PostForm.Get("token"), found.scopes)
		}
		if failed != nil {
			p.Wrong = s.personal(failed)
			p.show(w, sandbox.KindOf(failed).HTTPStatus(), "")
			return
		}
		token = id.Token
		s.opts.Log.Info("sign-in allowed", "principal", id.Principal, "client", found.name, "device", true)
	}
	decided := false
	s.devices.find(now, func(d *device) bool {
		if d.user == user && !d.decided {
			d.decided, d.token, d.granted = true, token, granted
			decided = true
		}
		return decided
	})
	switch {
	case !decided:
		showError(w, http.StatusConflict, "The code was used meanwhile.")
	case token == "":
		showDone(w, "The program was refused. You can close this page.")
	default:
		showDone(w, "The program is signed in. You can close this page.")
	}
}
