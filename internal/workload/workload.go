// Package workload makes the standard workloads of the benchmarks: chats over
// shared system prompts and questions about long documents. A workload is a
// function of its configuration, seed included: the same on every machine. Its
// conversations are lists of messages, from which request bodies come; package
// prompt makes the canonical text of those.
//
// It imports the standard library only.
package workload

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"slices"
)

// Message is one turn of a conversation.
type Message struct {
	Role    string `json:"role"` // "system", "user" or "assistant"
	Content string `json:"content"`
}

// Conversation is one chat from its first message to its last. It is not to be
// changed.
type Conversation struct {
	// System is the index of the system prompt, or of the document, that it
	// begins with.
	System int
	// Messages are the system prompt, then user and assistant by turns. The last
	// is the assistant's.
	Messages []Message

	encoded [][]byte // Messages as JSON
}

// Turns returns the number of requests that the conversation makes.
func (c *Conversation) Turns() int { return len(c.Messages) / 2 }

// Request is one request of a workload: a turn of a conversation.
type Request struct {
	Conversation int // index in Workload.Conversations
	Turn         int // from 0
}

// Workload is a set of conversations and the order in which their requests
// arrive. It is safe for concurrent use as long as it is not changed.
type Workload struct {
	Name          string
	Model         string // of the requests' bodies
	Conversations []*Conversation
	// Requests are in the order of arrival: the turns of one conversation come
	// in order, with those of others between them.
	Requests []Request
}

// Messages returns the messages of request r: the conversation up to and
// including the user's message of its turn. The slice belongs to the workload.
func (w *Workload) Messages(r Request) []Message {
	return w.Conversations[r.Conversation].Messages[:2*r.Turn+2]
}

// Reply returns the assistant's answer to r, which the next turn sends back.
func (w *Workload) Reply(r Request) string {
	return w.Conversations[r.Conversation].Messages[2*r.Turn+2].Content
}

// Last returns the last request of conversation c: its messages begin
// with those of all its others.
func (w *Workload) Last(c int) Request {
	return Request{Conversation: c, Turn: w.Conversations[c].Turns() - 1}
}

// AppendBody appends the body of r, an OpenAI chat completion request, to dst
// and returns it.
func (w *Workload) AppendBody(dst []byte, r Request, stream bool) []byte {
	dst = append(dst, `{"model":`...)
	dst = appendJSON(dst, w.Model)
	dst = append(dst, `,"messages":[`...)
	for i, m := range w.Conversations[r.Conversation].encoded[:2*r.Turn+2] {
		if i > 0 {
			dst = append(dst, ',')
		}
		dst = append(dst, m...)
	}
	dst = append(dst, ']')
	if stream {
		dst = append(dst, `,"stream":true`...)
	}
	return append(dst, '}')
}

// Distinct returns the bytes of content that the requests hold between them,
// counting each system prompt and each message once. Last replies are sent to
// nobody and do not count.
func (w *Workload) Distinct() int {
	n := 0
	systems := make(map[int]bool)
	for _, c := range w.Conversations {
		if !systems[c.System] {
			systems[c.System] = true
			n += len(c.Messages[0].Content)
		}
		for _, m := range c.Messages[1 : len(c.Messages)-1] {
			n += len(m.Content)
		}
	}
	return n
}

// Size returns the bytes of content that r sends.
func (w *Workload) Size(r Request) int {
	n := 0
	for _, m := range w.Messages(r) {
		n += len(m.Content)
	}
	return n
}

// newConversation completes a conversation.
func newConversation(system int, messages []Message) *Conversation {
	c := &Conversation{System: system, Messages: messages, encoded: make([][]byte, len(messages))}
	for i, m := range messages {
		c.encoded[i] = appendJSON(nil, m)
	}
	return c
}

// interleave returns the requests of all conversations in the order in which
// they would arrive if all had begun and each went on at the same rate: the next
// request is that of a conversation drawn uniformly from those with turns left.
func interleave(r *rand.Rand, conversations []*Conversation) []Request {
	var order []Request
	next := make([]Request, len(conversations))
	for i := range next {
		next[i].Conversation = i
	}
	for len(next) > 0 {
		i := r.IntN(len(next))
		order = append(order, next[i])
		next[i].Turn++
		if next[i].Turn == conversations[next[i].Conversation].Turns() {
			next[i] = next[len(next)-1]
			next = next[:len(next)-1]
		}
	}
	return order
}

// between draws from low to high, both included.
func between(r *rand.Rand, low, high int) int { return low + r.IntN(high-low+1) }

func appendJSON(dst []byte, v any) []byte {
	b, err := json.Marshal(v)
	if err != nil { // cannot be: strings and structs of strings
		panic(fmt.Sprintf("workload: %v", err))
	}
	return append(dst, b...)
}

// newRand returns a source of its own for each purpose, so that a change to one
// part of a workload leaves the others as they are.
func newRand(seed, purpose uint64) *rand.Rand { return rand.New(rand.NewPCG(seed, purpose)) }

// spread returns n numbers, as evenly spread over 1..most as can be, in an order
// of their own.
func spread(r *rand.Rand, n, most int) []int {
	out := make([]int, n)
	for i := range out {
		out[i] = 1 + i%most
	}
	r.Shuffle(n, func(i, j int) { out[i], out[j] = out[j], out[i] })
	return slices.Clip(out)
}
