package disagg

import (
	"bytes"
	"encoding/json"
	"errors"
	"net/http"
	"slices"
	"strconv"

	"github.com/warmroute/router/internal/jsonscan"
	"github.com/warmroute/router/internal/reqbody"
)

// The headers of llm-d: the sidecar of a decode engine has the prompt computed at the
// first one's address, and an engine pulls blocks from the second one's. Both are host:port.
// A Splitter with the protocol Sidecar sends the first one. It never sends the second one, since it
// chooses the target that has the blocks; a host that wants it adds it to Attempt.Header's copy.
const (
	HeaderPrefiller = "X-Prefiller-Host-Port"
	HeaderSource    = "X-Kv-Cache-Source-Host-Port"
)

// ErrBody is the error of a body that is not one JSON object.
var ErrBody = errors.New("disagg: the body is no JSON object")

// remote are the members within kv_transfer_params. No engine reads them at the top of a body
// today.
var remote = []string{
	"do_remote_prefill", "do_remote_decode", "remote_block_ids", "remote_engine_id", "remote_host", "remote_port",
	"remote_request_id", "bootstrap_addr", "bootstrap_rank",
}

var refused = reqbody.NewRefused(append(reqbody.KVTransfer(), remote...)...)

// Check returns an error if a client's body has a member by which engines hand over KV
// caches to each other (kv_transfer_params, bootstrap_host and others), also inside
// vllm_xargs and its like, that is not null; or if it is in UTF-16 or UTF-32, in which
// nothing is looked for.
func Check(body []byte) error { return refused.Check(body) }

// CleanHeader removes the headers by which engines hand over KV caches from a client's.
func CleanHeader(h http.Header) {
	for k := range h {
		switch http.CanonicalHeaderKey(k) {
		case HeaderPrefiller, HeaderSource:
			delete(h, k)
		}
	}
}

// member is one to be set, or to be removed if value is nil.
type member struct {
	name  string
	value []byte
}

// splice appends body to dst with members set: every one of these names at the top is
// removed, however it is escaped and as often as it is there, and those with a value are
// added at the end, where every reader takes the last. The rest stays byte for byte.
func splice(dst, body []byte, set []member) ([]byte, error) {
	s := jsonscan.Start(body)
	if s.Peek() != '{' {
		return dst, ErrBody
	}
	from, any := s.I+1, false // any: a member is in dst
	lo := from
	dst = append(dst, '{')
	keep := func(to int) {
		if part := bytes.Trim(body[from:to], ", \t\r\n"); len(part) > 0 {
			if any {
				dst = append(dst, ',')
			}
			dst, any = append(dst, part...), true
		}
	}
	key, ok := s.FirstKey()
	for ; ok; key, ok = s.NextKey() {
		drop := slices.ContainsFunc(set, func(m member) bool { return m.name == string(key) })
		s.Peek()
		at := s.I
		s.Pass()
		if s.I == at {
			return dst, ErrBody
		}
		if drop {
			keep(lo)
			from = s.I
		}
		lo = s.I
	}
	if s.Fault != 0 || body[s.I-1] != '}' {
		return dst, ErrBody
	}
	end := s.I - 1
	if s.Peek(); s.I < len(body) {
		return dst, ErrBody
	}
	keep(end)
	for _, m := range set {
		if m.value == nil {
			continue
		}
		if any {
			dst = append(dst, ',')
		}
		any = true
		dst = strconv.AppendQuote(dst, m.name) // plain ASCII
		dst = append(append(dst, ':'), m.value...)
	}
	return append(dst, '}'), nil
}

var one, no = []byte("1"), []byte("false")

// prefillOnly asks for one token, in one piece. It is not to be changed.
var prefillOnly = []member{
	{"max_tokens", one}, {"max_completion_tokens", one}, {"stream", no},
	{"stream_options", nil}, {"min_tokens", nil},
}

var nixl = append(slices.Clone(prefillOnly), member{"kv_transfer_params", []byte(`{"do_remote_decode":true,` +
	`"do_remote_prefill":false,"remote_engine_id":null,"remote_block_ids":null,"remote_host":null,"remote_port":null}`)})

// NIXLPrefill appends to dst the body for the prefill engine of vLLM with a
// NixlConnector, made of the client's: it asks for one token, not streamed. The reply has
// the parameters for the decode engine. The error is ErrBody.
func NIXLPrefill(dst, body []byte) ([]byte, error) { return splice(dst, body, nixl) }

// StoredPrefill appends to dst the body for an engine that writes the KV cache to a store
// shared with the decode engine (ExampleConnector, LMCache, Mooncake's store): it asks for
// one token, not streamed. The decode engine gets the client's body. The error is ErrBody.
func StoredPrefill(dst, body []byte) ([]byte, error) { return splice(dst, body, prefillOnly) }

// WithParams appends to dst body with the kv_transfer_params that a prefill engine has
// replied with, byte for byte. The error is ErrBody.
func WithParams(dst, body, params []byte) ([]byte, error) {
	return splice(dst, body, []member{{"kv_transfer_params", params}})
}

// Params returns the kv_transfer_params of a prefill engine's reply as they are in it;
// nil if there are none, they are null, or the reply is not JSON.
func Params(reply []byte) []byte {
	if !json.Valid(reply) { // they are passed on
		return nil
	}
	for key, at := range reqbody.Members(reply) {
		if string(key) == "kv_transfer_params" && reply[at.Lo] == '{' {
			return reply[at.Lo:at.Hi]
		}
	}
	return nil
}

// WithBootstrap appends to dst body with SGLang's three members, for both engines: the
// host and the port at which the prefill engine hands over, and a number that is new for each
// request, from 0 to 2^63-1. The error is ErrBody.
func WithBootstrap(dst, body []byte, host string, port int, room int64) ([]byte, error) {
	h, err := json.Marshal(host)
	if err != nil {
		return dst, err
	}
	return splice(dst, body, []member{
		{"bootstrap_host", h},
		{"bootstrap_port", strconv.AppendInt(nil, int64(port), 10)},
		{"bootstrap_room", strconv.AppendInt(nil, room, 10)},
	})
}

// splits reports whether a body asks for one reply to one prompt, which is what the
// protocols hand over. It reads what splice does.
func splits(body []byte) bool {
	for key, at := range reqbody.Members(body) {
		v := body[at.Lo:at.Hi]
		switch string(key) {
		case "n", "best_of":
			if s := string(v); s != "1" && s != "null" {
				return false
			}
		case "echo", "use_beam_search":
			if s := string(v); s != "false" && s != "null" {
				return false
			}
		case "prompt_logprobs":
			if string(v) != "null" {
				return false
			}
		case "prompt":
			if v[0] != '[' {
				continue
			}
			if in := bytes.TrimLeft(v[1:], " \t\r\n"); len(in) == 0 || in[0] == '"' || in[0] == '[' {
				return false
			}
		}
	}
	return true
}
