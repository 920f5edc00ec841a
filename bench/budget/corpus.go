package main

import (
	"fmt"
	"math/rand/v2"
	"strings"

	"github.com/warmroute/router/internal/workload"
	"github.com/warmroute/router/prompt"
)

// corpus is a workload as a router sees it: the canonical text of each request.
type corpus struct {
	*workload.Workload
	systems []string // canonical text up to the end of each system prompt
	tails   []string // the part after it in each conversation's last request
	ends    [][]int  // where each turn's text ends in it (offsets)
	last    []string // the whole of it in one piece, if whole
}

// newCorpus makes the texts of w as a gateway makes them: package prompt reads
// the request's body. With whole, the texts of a conversation's turns are one
// piece of memory; otherwise each call of text makes its own.
func newCorpus(w *workload.Workload, whole bool) (*corpus, error) {
	n := len(w.Conversations)
	c := &corpus{Workload: w, tails: make([]string, n), ends: make([][]int, n)}
	var body []byte
	for i, conv := range w.Conversations {
		var turns []string
		for t := range conv.Turns() {
			body = w.AppendBody(body[:0], workload.Request{Conversation: i, Turn: t}, true)
			p, err := prompt.FromChat(body)
			if err != nil {
				return nil, fmt.Errorf("turn %d of conversation %d: %w", t, i, err)
			}
			turns = append(turns, p.Text)
		}
		last := turns[len(turns)-1]
		for t, text := range turns {
			if !strings.HasPrefix(last, text) {
				return nil, fmt.Errorf("turn %d of conversation %d is not how the last turn begins", t, i)
			}
			c.ends[i] = append(c.ends[i], len(text))
		}
		// The system prompt has no line of its own in the text's layout, so it is
		// found by its text.
		system := conv.Messages[0].Content
		at := strings.Index(last, system)
		if at < 0 {
			return nil, fmt.Errorf("conversation %d: no system prompt in its text", i)
		}
		at += len(system)
		for len(c.systems) <= conv.System {
			c.systems = append(c.systems, "")
		}
		if c.systems[conv.System] == "" {
			c.systems[conv.System] = strings.Clone(last[:at])
		}
		c.tails[i] = strings.Clone(last[at:])
		if whole {
			c.last = append(c.last, strings.Clone(last))
		}
	}
	return c, nil
}

// text returns the canonical text of r.
func (c *corpus) text(r workload.Request) string {
	end := c.ends[r.Conversation][r.Turn]
	if c.last != nil {
		return c.last[r.Conversation][:end]
	}
	system := c.systems[c.Conversations[r.Conversation].System]
	return system + c.tails[r.Conversation][:end-len(system)]
}

// texts returns the canonical texts of the first n requests.
func (c *corpus) texts(n int) []string {
	out := make([]string, n)
	for i := range out {
		out[i] = c.text(c.Requests[i])
	}
	return out
}

// place gives each conversation a target, as a router that keeps a conversation
// at its first target and spreads those of one system prompt.
func (c *corpus) place(targets int) (ids []string, at []int) {
	ids = make([]string, targets)
	for i := range ids {
		ids[i] = fmt.Sprintf("engine-%04d", i)
	}
	at = make([]int, len(c.Conversations))
	r := rand.New(rand.NewPCG(uint64(targets), 5))
	for i := range at {
		at[i] = r.IntN(targets)
	}
	return ids, at
}

// twin is a second copy of a text, elsewhere in memory.
type twin struct{ system, tail string }

// twins returns copies of the texts of the first n requests that lie in memory as
// a trie's do: each system prompt once, the rest by conversation, so that
// comparing reads no more memory than matching.
func (c *corpus) twins(n int) []twin {
	systems := make([]string, len(c.systems))
	for i, s := range c.systems {
		systems[i] = strings.Clone(s)
	}
	tails := make([]string, len(c.tails))
	for i, s := range c.tails {
		tails[i] = strings.Clone(s)
	}
	out := make([]twin, n)
	for i, r := range c.Requests[:n] {
		system := systems[c.Conversations[r.Conversation].System]
		out[i] = twin{system, tails[r.Conversation][:c.ends[r.Conversation][r.Turn]-len(system)]}
	}
	return out
}
