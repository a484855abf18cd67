package network

import (
	"context"
	"encoding/binary"
	"io"
	"net"
	"net/netip"
	"strings"
	"time"

	"golang.org/x/net/dns/dnsmessage"

	"github.com/glovebox-dev/glovebox/internal/sandbox"
)

// maxQuestion bounds a DNS message from a sandbox, in bytes. It is enough for one
// question and its usual additional records.
const maxQuestion = 1024

// A question is a DNS question of a sandbox.
type question struct {
	header dnsmessage.Header
	q      dnsmessage.Question
	name   string // in lower case, without a trailing dot
}

// parseQuestion parses a message. It returns false for a message that a server
// should not answer at all.
func parseQuestion(msg []byte) (question, bool) {
	if len(msg) > maxQuestion {
		return question{}, false
	}
	var p dnsmessage.Parser
	h, err := p.Start(msg)
	if err != nil || h.Response || h.OpCode != 0 {
		return question{}, false
	}
	q, err := p.Question()
	if err != nil {
		return question{}, false
	}
	if _, err := p.Question(); err != dnsmessage.ErrSectionDone {
		return question{}, false
	}
	name := strings.TrimSuffix(strings.ToLower(q.Name.String()), ".")
	return question{header: h, q: q, name: name}, true
}

// answer returns the message that answers q with a code and with addresses, which
// have q's type.
func (q question) answer(code dnsmessage.RCode, resources ...dnsmessage.ResourceBody) ([]byte, error) {
	b := dnsmessage.NewBuilder(make([]byte, 0, 512), dnsmessage.Header{
		ID: q.header.ID, Response: true, RCode: code,
		RecursionDesired: q.header.RecursionDesired, RecursionAvailable: true,
	})
	b.EnableCompression()
	if err := b.StartQuestions(); err != nil {
		return nil, err
	}
	if err := b.Question(q.q); err != nil {
		return nil, err
	}
	if err := b.StartAnswers(); err != nil {
		return nil, err
	}
	h := dnsmessage.ResourceHeader{Name: q.q.Name, Class: dnsmessage.ClassINET, TTL: answerSeconds}
	for _, r := range resources {
		var err error
		switch r := r.(type) {
		case *dnsmessage.AResource:
			err = b.AResource(h, *r)
		case *dnsmessage.AAAAResource:
			err = b.AAAAResource(h, *r)
		}
		if err != nil {
			return nil, err
		}
	}
	return b.Finish()
}

// Common types of questions, besides the types of addresses, which get an empty
// answer here. All other types are blocked, because their answers can carry data.
const (
	typeSVCB  = dnsmessage.Type(64)
	typeHTTPS = dnsmessage.Type(65)
)

// respond returns the answer to one message of the sandbox, or nil for a message
// that gets no answer.
func (g *Gateway) respond(ctx context.Context, msg []byte) []byte {
	q, ok := parseQuestion(msg)
	if !ok {
		return nil
	}
	code, resources := g.resolve(ctx, q)
	reply, err := q.answer(code, resources...)
	if err != nil {
		return nil
	}
	return reply
}

func (g *Gateway) resolve(ctx context.Context, q question) (dnsmessage.RCode, []dnsmessage.ResourceBody) {
	if q.q.Class != dnsmessage.ClassINET {
		return dnsmessage.RCodeRefused, nil
	}
	p := g.policy.Load()
	blocked := p.allowsName(q.name)
	if blocked == "" && !sandbox.ValidHost(q.name) {
		blocked = sandbox.BlockedPolicy
	}
	if blocked != "" {
		g.log.block(sandbox.Connection{Protocol: sandbox.ProtocolDNS, Host: printable(q.name), Blocked: blocked})
		return dnsmessage.RCodeNameError, nil
	}
	switch q.q.Type {
	case dnsmessage.TypeA, dnsmessage.TypeAAAA:
	case typeSVCB, typeHTTPS:
		return dnsmessage.RCodeSuccess, nil
	default:
		g.log.block(sandbox.Connection{Protocol: sandbox.ProtocolDNS, Host: printable(q.name), Blocked: sandbox.BlockedQuestion})
		return dnsmessage.RCodeRefused, nil
	}
	if q.name == sandbox.ThisMachine {
		return g.thisMachineAnswer(p, q)
	}
	m := g.host()
	addrs, left, err := g.names.lookup(ctx, q.name, func(a netip.Addr) sandbox.BlockReason { return p.allowsAddress(a, m) })
	if err == errTooManyQuestions {
		g.log.block(sandbox.Connection{Protocol: sandbox.ProtocolDNS, Host: printable(q.name), Blocked: sandbox.BlockedLimit})
		return dnsmessage.RCodeRefused, nil
	}
	if left == "" && len(addrs) == 0 {
		left = sandbox.BlockedUnresolved
	}
	if left != "" {
		g.log.block(sandbox.Connection{Protocol: sandbox.ProtocolDNS, Host: printable(q.name), Blocked: left})
	}
	if err != nil {
		return dnsmessage.RCodeServerFailure, nil
	}
	if len(addrs) == 0 {
		return dnsmessage.RCodeNameError, nil
	}
	var resources []dnsmessage.ResourceBody
	for _, a := range addrs {
		switch {
		case a.Is4() && q.q.Type == dnsmessage.TypeA:
			resources = append(resources, &dnsmessage.AResource{A: a.As4()})
		case a.Is6() && q.q.Type == dnsmessage.TypeAAAA:
			resources = append(resources, &dnsmessage.AAAAResource{AAAA: a.As16()})
		}
	}
	return dnsmessage.RCodeSuccess, resources
}

// thisMachineAnswer answers a question for the address of [sandbox.ThisMachine],
// which is for IPv4 only.
func (g *Gateway) thisMachineAnswer(p *policy, q question) (dnsmessage.RCode, []dnsmessage.ResourceBody) {
	switch {
	case !p.allowsThisMachine(0):
		g.log.block(sandbox.Connection{Protocol: sandbox.ProtocolDNS, Host: sandbox.ThisMachine, Blocked: sandbox.BlockedHost})
		return dnsmessage.RCodeNameError, nil
	case q.q.Type != dnsmessage.TypeA:
		return dnsmessage.RCodeSuccess, nil
	}
	return dnsmessage.RCodeSuccess, []dnsmessage.ResourceBody{&dnsmessage.AResource{A: thisMachine4.As4()}}
}

// printable replaces the characters of a sandbox's name that are not fit for a
// log record.
func printable(name string) string {
	return strings.Map(func(r rune) rune {
		if r <= ' ' || r >= 0x7f {
			return '?'
		}
		return r
	}, name)
}

// Bounds on the DNS server's work.
const (
	maxQuestions = 64 // at one time
	maxDNSConns  = 16
	dnsIdle      = 10 * time.Second
)

// serveDNS answers the packets of conn until it is closed.
func (g *Gateway) serveDNS(ctx context.Context, conn net.PacketConn) {
	slots := make(chan struct{}, maxQuestions)
	for {
		buf := make([]byte, maxQuestion+1)
		n, from, err := conn.ReadFrom(buf)
		if err != nil {
			return
		}
		select {
		case slots <- struct{}{}:
		default:
			continue // drop the packet: the client retries
		}
		go func() {
			defer func() { <-slots }()
			if reply := g.respond(ctx, buf[:n]); reply != nil {
				_, _ = conn.WriteTo(reply, from)
			}
		}()
	}
}

// serveDNSConns does the same for connections over TCP.
func (g *Gateway) serveDNSConns(ctx context.Context, l net.Listener) {
	slots := make(chan struct{}, maxDNSConns)
	for {
		conn, err := l.Accept()
		if err != nil {
			return
		}
		select {
		case slots <- struct{}{}:
		default:
			conn.Close()
			continue
		}
		go func() {
			defer func() { <-slots }()
			defer conn.Close()
			g.serveDNSConn(ctx, conn)
		}()
	}
}

func (g *Gateway) serveDNSConn(ctx context.Context, conn net.Conn) {
	for {
		if err := conn.SetDeadline(time.Now().Add(dnsIdle)); err != nil {
			return
		}
		var size [2]byte
		if _, err := io.ReadFull(conn, size[:]); err != nil {
			return
		}
		msg := make([]byte, binary.BigEndian.Uint16(size[:]))
		if len(msg) > maxQuestion {
			return
		}
		if _, err := io.ReadFull(conn, msg); err != nil {
			return
		}
		reply := g.respond(ctx, msg)
		if reply == nil {
			return
		}
		if _, err := conn.Write(append(binary.BigEndian.AppendUint16(nil, uint16(len(reply))), reply...)); err != nil {
			return
		}
	}
}
