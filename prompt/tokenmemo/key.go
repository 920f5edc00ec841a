package tokenmemo

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"hash"
	"slices"
	"strings"

	"github.com/warmroute/router/internal/jsonscan"
	"github.com/warmroute/router/prompt"
)

// maxMembers bounds the members of a body that has a Key: a request has some tens.
const maxMembers = 256

// maxKeyTurns bounds the messages of a request that has a Key; its key takes
// 32 bytes for each.
const maxKeyTurns = 1 << 14

// Key is all of a request that decides about the ids of its prompt's tokens,
// as digests: the messages, up to each of them, and every member of the body
// that may change how they are rendered, or that separates the request from others: its cache salt and the rest of
// its scope, so that the ids that are known say nothing about requests under another salt. Requests of
// equal keys have equal ids, as long as the engine's tokenizer and chat template stay the same. It is made by [NewKey]
// and not changed afterwards.
//
// It is not made of the canonical text, which leaves out parts that may well be tokens:
// ids of calls, the order of members, whether content is a string or a block. So
// a client that writes a message in another way has another key, never another's
// ids.
type Key struct {
	setting digest256   // the body but for its messages, or its prompt
	turns   []digest256 // up to the end of each message; of a completion one
	// steady is the number of leading messages with tokens that cannot depend on
	// those that follow, as far as that can be seen from outside.
	steady int
	// firstUser and lastUser are the number of messages up to the first and the last one of a user.
	firstUser, lastUser int
	source              string // see Of

	// Chat means that the body has messages; else it has one prompt.
	Chat bool
	// Plain means that the engine's /tokenize can be asked for the same prompt: no
	// member changes the prompt that is not known there, and none is unknown.
	Plain bool
	// ReturnsIDs means that the client asked for the ids (return_token_ids).
	ReturnsIDs bool

	// open means that the output may go on behind an end-of-turn token.
	open bool
}

type digest256 [sha256.Size]byte

// effect is the effect of a member of a body on its prompt.
type effect uint8

const (
	unknownEffect effect = iota
	noEffect
	knownEffect // one that /tokenize knows too
	scopeEffect // none, but it separates the request from others
)

// effectOf knows the members of vLLM's and SGLang's requests that decide about
// sampling and the reply alone, and those of /tokenize.
func effectOf(member string) effect {
	switch member {
	case "model", "tools", "chat_template", "chat_template_kwargs", "add_generation_prompt", "continue_final_message",
		"add_special_tokens":
		return knownEffect
	case "stream", "stream_options", "temperature", "top_p", "top_k", "min_p", "typical_p", "max_tokens",
		"max_completion_tokens", "min_tokens", "n", "best_of", "seed", "stop", "stop_token_ids", "frequency_penalty",
		"presence_penalty", "repetition_penalty", "length_penalty", "logit_bias", "logprobs", "top_logprobs",
		"prompt_logprobs", "allowed_token_ids", "bad_words", "ignore_eos", "skip_special_tokens",
		"spaces_between_special_tokens", "include_stop_str_in_output", "return_token_ids", "return_tokens_as_token_ids",
		"include_reasoning", "parallel_tool_calls", "user", "metadata", "store", "prompt_cache_key",
		"prompt_cache_retention", "safety_identifier", "session_id", "request_id", "rid", "priority", "service_tier":
		return noEffect
	case "cache_salt", "extra_key":
		return scopeEffect
	}
	return unknownEffect
}

// NewKey returns the key of a request with a path as [prompt.FromRequest] has them.
// ok is false if the ids do not depend on the body alone, or not with certainty:
// the path is neither chat completions nor completions, the body is longer than [prompt.DefaultMaxBody], is not
// understood, has a member twice or more than 256 of them, there are images, audio or files, several
// prompts, or more than 16,384 messages.
func NewKey(path string, body []byte) (k Key, ok bool) {
	if len(body) > prompt.DefaultMaxBody {
		return k, false
	}
	switch prompt.APIOf(path) {
	case "chat_completions":
		k.Chat = true
	case "completions":
	default:
		return k, false
	}
	k.Plain = true
	r := keyReader{Scanner: jsonscan.Start(body), k: &k, sum: sha256.New()}
	return k, r.read()
}

// Of returns k as the key of the ids that one source reports, such as an engine by its address: a [Memo] keeps the
// ids of each source apart, and does not believe one because of another. The zero source, of a new key, is one of
// them for [Memo.Learn]; for [Memo.Tokens] it stands for all.
func (k Key) Of(source string) Key {
	k.source = source
	return k
}

// Conversation returns a number that stays the same while a conversation goes on, such as to ask the same engine for
// the ids of all its prompts. It is the same in every process. The zero Key has 0.
func (k Key) Conversation() uint64 {
	if len(k.turns) == 0 {
		return 0
	}
	return binary.LittleEndian.Uint64(k.turns[max(k.firstUser, 1)-1][:])
}

// keyReader makes a Key.
type keyReader struct {
	jsonscan.Scanner
	k     *Key
	sum   hash.Hash
	parts []keyPart
	// The value that the turns are made of.
	text    struct{ lo, hi int }
	tools   bool
	noTools bool // "tool_choice" is "none"
}

type keyPart struct {
	name  string
	value []byte
}

func (r *keyReader) read() bool {
	if r.Peek() != '{' {
		return false
	}
	own := "prompt"
	if r.k.Chat {
		own = "messages"
	}
	seen := false
	count := 0
	for name, ok := r.FirstKey(); ok; name, ok = r.NextKey() {
		if count++; count > maxMembers {
			return false
		}
		n := string(name)
		r.Peek()
		lo := r.I
		if n == own {
			if seen {
				return false
			}
			seen = true
			r.Skip()
			r.text.lo, r.text.hi = lo, r.I
			continue
		}
		r.Skip()
		if r.Fault != 0 {
			return false
		}
		r.other(n, r.B[lo:r.I])
	}
	if r.End(); r.Fault != 0 || !seen {
		return false
	}
	slices.SortFunc(r.parts, func(a, b keyPart) int { return strings.Compare(a.name, b.name) })
	for i := range r.parts {
		if i > 0 && r.parts[i].name == r.parts[i-1].name {
			return false // nobody knows which of them counts
		}
	}
	if r.tools && r.noTools {
		r.k.Plain = false // it depends on the engine's flags whether the tools are in the prompt
	}
	r.setting()
	r.Scanner = jsonscan.Scanner{B: r.B[:r.text.hi], I: r.text.lo}
	if r.k.Chat {
		return r.messages()
	}
	return r.prompt()
}

// other notes one member that is not the text.
func (r *keyReader) other(name string, value []byte) {
	null := string(value) == "null"
	switch name {
	case "return_token_ids":
		r.k.ReturnsIDs = string(value) == "true"
	case "ignore_eos":
		r.k.open = r.k.open || string(value) != "false" && !null
	case "n", "best_of":
		r.k.open = r.k.open || string(value) != "1" && !null
	case "tools":
		r.tools = !null && string(value) != "[]"
	case "tool_choice":
		// Otherwise it changes the output alone.
		r.noTools = string(value) == `"none"`
		r.parts = append(r.parts, keyPart{name, value})
		return
	case "response_format", "structured_outputs", "guided_json", "guided_regex", "guided_choice", "guided_grammar":
		// Some chat formats put it into the prompt, most do not.
		r.parts = append(r.parts, keyPart{name, value})
		return
	}
	switch e := effectOf(name); {
	case e == noEffect, e == scopeEffect && null:
		return
	case e == unknownEffect && !null:
		r.k.Plain = false
	}
	r.parts = append(r.parts, keyPart{name, value})
}

func (r *keyReader) write(b []byte) {
	var n [8]byte
	binary.LittleEndian.PutUint64(n[:], uint64(len(b)))
	r.sum.Write(n[:])
	r.sum.Write(b)
}

func (r *keyReader) setting() {
	if r.k.Chat {
		r.sum.Write([]byte{1})
	} else {
		r.sum.Write([]byte{2})
	}
	for _, p := range r.parts {
		r.write([]byte(p.name))
		r.write(p.value)
	}
	r.sum.Sum(r.k.setting[:0])
}

// turn adds the digest of all up to the turn that value is.
func (r *keyReader) turn(value []byte) {
	r.sum.Reset()
	before := &r.k.setting
	if n := len(r.k.turns); n > 0 {
		before = &r.k.turns[n-1]
	}
	r.sum.Write(before[:])
	r.sum.Write(value)
	var d digest256
	r.sum.Sum(d[:0])
	r.k.turns = append(r.k.turns, d)
}

// prompt reads a completion's prompt: one text. If it is ids already, nobody
// needs a key.
func (r *keyReader) prompt() bool {
	if r.Peek() != '"' {
		return false
	}
	r.turn(r.B[r.text.lo:r.text.hi])
	return true
}

func (r *keyReader) messages() bool {
	if r.Peek() != '[' {
		return false
	}
	steady := true
	for ok := r.FirstElem(); ok; ok = r.NextElem() {
		if r.Peek() != '{' || len(r.k.turns) == maxKeyTurns {
			return false
		}
		lo := r.I
		textOnly, reasons, user := r.message()
		if !textOnly || r.Fault != 0 {
			return false
		}
		raw := r.B[lo:r.I]
		r.turn(raw)
		if user {
			r.k.lastUser = len(r.k.turns)
			if r.k.firstUser == 0 {
				r.k.firstUser = len(r.k.turns)
			}
		}
		// Templates cut the reasoning of a past turn, whether it is a member or in the
		// text.
		reasons = reasons || bytes.Contains(raw, []byte("think>")) || bytes.Contains(raw, []byte(`think\u003`))
		if steady = steady && !reasons; steady {
			r.k.steady++
		}
	}
	return r.Fault == 0 && len(r.k.turns) > 0
}

// message reads a message and reports whether all of its content is text, whether
// it holds reasoning, and whether it may be a user's.
func (r *keyReader) message() (textOnly, reasons, user bool) {
	textOnly, user = true, true
	for name, ok := r.FirstKey(); ok; name, ok = r.NextKey() {
		switch string(name) {
		case "content":
			t, s := r.content()
			textOnly, reasons = textOnly && t, reasons || s
		case "role":
			if r.Peek() != '"' {
				r.Skip()
				continue
			}
			role, plain := r.Raw()
			if !plain {
				r.Skip()
			}
			user = prompt.IsUser(string(role))
		case "audio":
			textOnly = textOnly && r.Null()
			if !textOnly {
				r.Skip()
			}
		case "reasoning", "reasoning_content", "thinking", "thinking_blocks":
			if !r.Null() {
				reasons = true
				r.Skip()
			}
		default:
			r.Skip()
		}
	}
	return textOnly, reasons, user
}

func (r *keyReader) content() (textOnly, reasons bool) {
	switch r.Peek() {
	case '"', 'n':
		r.Skip()
		return true, false
	case '[':
	default:
		r.Skip()
		return false, false
	}
	textOnly = true
	for ok := r.FirstElem(); ok; ok = r.NextElem() {
		if r.Peek() != '{' {
			textOnly = textOnly && r.Peek() == '"'
			r.Skip()
			continue
		}
		types := 0
		for name, ok := r.FirstKey(); ok; name, ok = r.NextKey() {
			if string(name) != "type" || r.Peek() != '"' {
				r.Skip()
				continue
			}
			types++
			typ, _ := r.Raw()
			switch prompt.BlockKindOf(string(typ)) {
			case prompt.BlockText, prompt.BlockRefusal:
			case prompt.BlockThinking, prompt.BlockRedacted:
				reasons = true
			default:
				textOnly = false
				if typ == nil {
					r.Skip()
				}
			}
		}
		textOnly = textOnly && types == 1
	}
	return textOnly, reasons
}

// whole returns the digest of the whole prompt.
func (k *Key) whole() digest256 { return k.turns[len(k.turns)-1] }
