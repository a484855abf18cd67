package sandbox

import (
	"strconv"
	"strings"
	"testing"
)

// shardOf reads the number back as docs/guides/scale.md describes it.
func shardOf(id string) int {
	_, text, _ := strings.Cut(id, "_")
	const alphabet = "abcdefghijklmnopqrstuvwxyz234567"
	return strings.IndexByte(alphabet, text[0])*32 + strings.IndexByte(alphabet, text[1])
}

// TestShard makes identifiers of every shard and reads the shard back.
func TestShard(t *testing.T) {
	seen := map[string]bool{}
	for n := range Shards {
		s, err := ParseShard(strconv.Itoa(n))
		if err != nil {
			t.Fatal(err)
		}
		id, run := s.NewID(), s.NewRunID()
		letters := id[len(IDPrefix):][:2]
		if seen[letters] {
			t.Errorf("shard %d has the letters %q, which are another's", n, letters)
		}
		seen[letters] = true
		if got, want := s.Mark("secret"), letters+".secret"; got != want {
			t.Errorf("shard %d: Mark = %s, want %s", n, got, want)
		}
		if !ValidID(id) || !ValidRunID(run) {
			t.Errorf("shard %d: %s or %s is not valid", n, id, run)
		}
		if id == s.NewID() {
			t.Errorf("shard %d: made %s twice", n, id)
		}
		if a, b := shardOf(id), shardOf(run); a != n || b != n {
			t.Errorf("shard %d: %s has %d, %s has %d", n, id, a, run, b)
		}
		if host := HostID(id); host[3:5] != letters || CanonicalID(host) != id {
			t.Errorf("shard %d: the host name %s does not begin with the letters %s", n, host, letters)
		}
		if got, want := s.Hex("ffffff"), strconv.FormatInt(0x1000+int64(n), 16)[1:]+"fff"; got != want {
			t.Errorf("shard %d: Hex = %s, want %s", n, got, want)
		}
	}
}

// TestNoShard makes identifiers without a shard, of which all characters are random.
func TestNoShard(t *testing.T) {
	none, err := ParseShard("")
	if err != nil || none.Mark("x") != "x" || none.Hex("abcd") != "abcd" {
		t.Errorf("no shard: %+v, %v", none, err)
	}
	shards := map[int]bool{}
	for range 64 {
		id := none.NewID()
		if !ValidID(id) {
			t.Fatalf("%s is not valid", id)
		}
		shards[shardOf(id)] = true
	}
	if len(shards) < 16 {
		t.Errorf("64 identifiers have %d shards", len(shards))
	}
	if id := "sbx_" + strings.Repeat("a2", 13); !ValidID(id) || CanonicalID(HostID(id)) != id {
		t.Errorf("%s, of a server without shards, is not valid", id)
	}
}

// TestBadShard parses texts that are no shard.
func TestBadShard(t *testing.T) {
	for _, text := range []string{"-1", "1024", "x", " ", "1.5", "99999999999999999999"} {
		if s, err := ParseShard(text); KindOf(err) != Invalid || !strings.Contains(err.Error(), "1023") {
			t.Errorf("ParseShard(%q) = %+v, %v", text, s, err)
		}
	}
}
