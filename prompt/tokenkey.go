package prompt

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"hash"
	"slices"
	"strings"
)

// maxKeyTurns bounds the messages of a request that has a TokenKey; its key takes
// 32 bytes for each.
const maxKeyTurns = 1 << 14

// TokenKey is all of a request that decides about the ids of its prompt's tokens,
// as digests: the messages, up to each of them, and every member of the body
// that may change how they are rendered. Requests of equal keys have equal ids,
// as long as the engine's tokenizer and chat template stay the same. It is made
// by [NewTokenKey] and not changed afterwards.
//
// It is not made of the canonical text, which leaves out what may well be a token:
// ids of calls, the order of members, whether content is a string or a block. So
// a client that writes a message in another way has another key, never another's
// ids.
type TokenKey struct {
	setting digest256   // the body but for its messages, or its prompt
	turns   []digest256 // up to the end of each message; of a completion one
	// steady is the number of leading messages whose tokens cannot depend on those
	// that follow, as far as that can be seen from outside.
	steady int
	// lastUser is the number of messages up to the last one of a user.
	lastUser int

	// Chat says that the body has messages; else it has one prompt.
	Chat bool
	// Plain says that the engine's /tokenize can be asked for the same prompt: no
	// member changes the prompt that is not known there, and none is unknown.
	Plain bool
	// ReturnsIDs says that the client asked for the ids (return_token_ids).
	ReturnsIDs bool

	// open says that the output may go on behind an end-of-turn token.
	open bool
}

type digest256 [sha256.Size]byte

// effect is what a member of a body does to its prompt.
type effect uint8

const (
	unknownEffect effect = iota
	noEffect
	knownEffect // one that /tokenize knows too
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
		"prompt_cache_retention", "safety_identifier", "session_id", "request_id", "rid", "priority", "cache_salt",
		"service_tier":
		return noEffect
	}
	return unknownEffect
}

// NewTokenKey returns the key of a request with a path as [FromRequest] has them.
// ok is false where the ids cannot be told from the body, or not with certainty:
// the path is neither chat completions nor completions, the body is not
// understood or has a member twice, there are images, audio or files, several
// prompts, or more than 16,384 messages.
func NewTokenKey(path string, body []byte) (k TokenKey, ok bool) {
	a := apiOf(path)
	if a != apiChat && a != apiCompletion || len(body) > DefaultMaxBody {
		return k, false
	}
	k.Chat, k.Plain = a == apiChat, true
	r := keyReader{scanner: scanner{b: body}, k: &k, sum: sha256.New()}
	return k, r.read()
}

// keyReader makes a TokenKey.
type keyReader struct {
	scanner
	k     *TokenKey
	sum   hash.Hash
	parts []keyPart
	// Where the value is that the turns are made of.
	text    span
	tools   bool
	noTools bool // "tool_choice" is "none"
}

type keyPart struct {
	name  string
	value []byte
}

func (r *keyReader) read() bool {
	if r.peek() != '{' {
		return false
	}
	own := "prompt"
	if r.k.Chat {
		own = "messages"
	}
	seen := false
	for name, ok := r.firstKey(); ok; name, ok = r.nextKey() {
		n := string(name)
		r.peek()
		lo := r.i
		if n == own {
			if seen {
				return false
			}
			seen = true
			r.skip()
			r.text = span{lo, r.i}
			continue
		}
		r.skip()
		if r.err != nil {
			return false
		}
		r.other(n, r.b[lo:r.i])
	}
	if r.end(); r.err != nil || !seen {
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
	r.scanner = scanner{b: r.b[:r.text.hi], i: r.text.lo}
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
		// All it changes otherwise is what may be generated.
		r.noTools = string(value) == `"none"`
		r.parts = append(r.parts, keyPart{name, value})
		return
	case "response_format", "structured_outputs", "guided_json", "guided_regex", "guided_choice", "guided_grammar":
		// Some chat formats put it into the prompt, most do not.
		r.parts = append(r.parts, keyPart{name, value})
		return
	}
	switch e := effectOf(name); {
	case e == noEffect:
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

// prompt reads a completion's prompt: one text. Where it is ids already, nobody
// needs a key.
func (r *keyReader) prompt() bool {
	if r.peek() != '"' {
		return false
	}
	r.turn(r.b[r.text.lo:r.text.hi])
	return true
}

func (r *keyReader) messages() bool {
	if r.peek() != '[' {
		return false
	}
	steady := true
	for ok := r.firstElem(); ok; ok = r.nextElem() {
		if r.peek() != '{' || len(r.k.turns) == maxKeyTurns {
			return false
		}
		lo := r.i
		textOnly, reasons, user := r.message()
		if !textOnly || r.err != nil {
			return false
		}
		raw := r.b[lo:r.i]
		r.turn(raw)
		if user {
			r.k.lastUser = len(r.k.turns)
		}
		// Templates cut what a past turn thought, be it a member or in the text.
		reasons = reasons || bytes.Contains(raw, []byte("think>")) || bytes.Contains(raw, []byte(`think\u003`))
		if steady = steady && !reasons; steady {
			r.k.steady++
		}
	}
	return r.err == nil && len(r.k.turns) > 0
}

// message reads a message and reports whether all of its content is text, whether
// it holds reasoning, and whether it may be a user's.
func (r *keyReader) message() (textOnly, reasons, user bool) {
	textOnly, user = true, true
	for name, ok := r.firstKey(); ok; name, ok = r.nextKey() {
		switch string(name) {
		case "content":
			t, s := r.content()
			textOnly, reasons = textOnly && t, reasons || s
		case "role":
			if r.peek() != '"' {
				r.skip()
				continue
			}
			role, plain := r.raw()
			if !plain {
				r.skip()
			}
			switch roleKind(role) {
			case kindAssistant, kindResult, kindFunction, kindSystem, kindDeveloper:
				user = false
			default:
				user = true
			}
		case "audio":
			textOnly = textOnly && r.null()
			if !textOnly {
				r.skip()
			}
		case "reasoning", "reasoning_content", "thinking", "thinking_blocks":
			if !r.null() {
				reasons = true
				r.skip()
			}
		default:
			r.skip()
		}
	}
	return textOnly, reasons, user
}

func (r *keyReader) content() (textOnly, reasons bool) {
	switch r.peek() {
	case '"', 'n':
		r.skip()
		return true, false
	case '[':
	default:
		r.skip()
		return false, false
	}
	textOnly = true
	for ok := r.firstElem(); ok; ok = r.nextElem() {
		if r.peek() != '{' {
			textOnly = textOnly && r.peek() == '"'
			r.skip()
			continue
		}
		types := 0
		for name, ok := r.firstKey(); ok; name, ok = r.nextKey() {
			if string(name) != "type" || r.peek() != '"' {
				r.skip()
				continue
			}
			types++
			typ, _ := r.raw()
			switch blockKindOf(typ) {
			case blockText, blockRefusal:
			case blockThinking, blockRedacted:
				reasons = true
			default:
				textOnly = false
				if typ == nil {
					r.skip()
				}
			}
		}
		textOnly = textOnly && types == 1
	}
	return textOnly, reasons
}

// whole returns the digest of the whole prompt.
func (k *TokenKey) whole() digest256 { return k.turns[len(k.turns)-1] }
