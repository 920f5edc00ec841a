package prompt_test

import (
	"bufio"
	"bytes"
	"encoding/json"
	"net/http"
	"os"
	"strings"
	"testing"

	"github.com/warmroute/router/prompt"
)

// TestClients reads the requests that real clients sent, which bench/clients recorded: each is understood, and the
// turns of a conversation extend each other's text, so that they stay at one replica.
func TestClients(t *testing.T) {
	data, err := os.ReadFile("testdata/clients.jsonl")
	if err != nil {
		t.Fatal(err)
	}
	last := map[string]string{} // text of a client's turn
	turns := map[string]int{}
	s := bufio.NewScanner(bytes.NewReader(data))
	s.Buffer(nil, 1<<20)
	for s.Scan() {
		var r struct {
			Client, Path string
			Header       http.Header
			Body         json.RawMessage
		}
		if err := json.Unmarshal(s.Bytes(), &r); err != nil {
			t.Fatal(err)
		}
		p, err := prompt.FromRequest(r.Path, r.Header, r.Body)
		if err != nil || p.Text == "" || p.Model != "m" {
			t.Errorf("%s: %s %s: %q, model %q, %v", r.Client, r.Path, r.Body, p.Text, p.Model, err)
		}
		if !strings.Contains(p.Text, "careful") {
			continue
		}
		if was := last[r.Client]; was != "" && !strings.HasPrefix(p.Text, was) {
			t.Errorf("%s: a turn does not go on from the one before:\n%q\n%q", r.Client, was, p.Text)
		}
		last[r.Client] = p.Text
		turns[r.Client]++
	}
	if err := s.Err(); err != nil {
		t.Fatal(err)
	}
	if len(turns) < 8 {
		t.Errorf("conversations of %d clients", len(turns))
	}
	for c, n := range turns {
		if n != 3 {
			t.Errorf("%s: %d turns", c, n)
		}
	}
}
