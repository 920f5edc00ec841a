// Package prompt reads the body and headers of an API request and returns the
// [router.Prompt] by which it is routed: the conversation itself as one
// canonical text, without the JSON around it, and the scope and session that the
// request names.
//
// The text is in the order in which engines build a prompt: tool definitions,
// then the system prompt, then the turns. A turn is opened by a mark that no
// text can contain, and nothing is written after its text, so a conversation
// that grows by a turn, or by a block inside its last message, extends its text
// byte for byte. Changes from request to request that do not change
// the prompt (caching hints, string or block content, ids of calls, the order
// of members, a billing line) do not change the text. Images, audio and files
// stand in it as a digest of their uuid, if they have one, or of their URL, data or file id. A completion's text is
// its prompt, without marks. A text is at most twice as long as its body, plus
// 1 KiB.
//
// [Reply] collects the text that a reply adds to the next request.
package prompt

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"

	router "github.com/warmroute/router"
	"github.com/warmroute/router/internal/jsonscan"
	"github.com/warmroute/router/membudget"
)

// DefaultMaxBody is the greatest body that the zero Parser reads, in bytes.
const DefaultMaxBody = 64 << 20

// MaxDepth is how deep a body may nest. The engines' own JSON readers give up at
// about as much (CPython's recursion limit is 1,000).
const MaxDepth = jsonscan.MaxDepth

// Parser reads requests. The zero Parser is ready to use. Its methods are safe
// for concurrent use and change nothing; its fields are set before the first
// call. None of its results refers to the caller's body, which may be reused at
// once. Reading allocates at most 4 bytes for each byte of a body, plus 64 KiB, whatever is in it, of which the prompt
// keeps its text (about the body's length) or its ids (4 bytes each).
type Parser struct {
	// Tenant returns the name of the tenant that sent a request, so that equal session keys of two
	// tenants are two sessions: for example a hash of the Authorization header.
	// Only FromRequest calls it. nil: all requests are one tenant's.
	Tenant func(http.Header) string
	// MaxText is the greatest length of Prompt.Text in bytes; a longer one is
	// cut between two characters. 0 and less: the whole text.
	MaxText int
	// MaxBody is the greatest body that is read, in bytes; a longer one gives an
	// empty prompt and an error. 0: DefaultMaxBody; less: any.
	MaxBody int
	// Adapters maps the names of LoRA adapters that requests may have in "model"
	// to the model they were made for: Prompt.Adapter is the name then, and
	// Prompt.Model that model. "model:adapter", as SGLang has it, is the same. It is
	// not copied.
	Adapters map[string]string
	// Unknown is called, if it is not nil, for every request of which FromRequest
	// did not understand all. err is an *Error, of kind ErrUnknownPath for a path
	// without a body kind, though FromRequest itself returns no error for that.
	Unknown func(path string, err error)
}

// FromChat reads a body of OpenAI's chat completions. A prompt with an error, which is
// an *Error, has the parts that could be read and can be routed.
func FromChat(body []byte) (router.Prompt, error) { return new(Parser).FromChat(body) }

// FromCompletion reads a body of OpenAI's completions. A prompt of token ids
// goes to Tokens; of a batch the first member counts.
func FromCompletion(body []byte) (router.Prompt, error) { return new(Parser).FromCompletion(body) }

// FromResponses reads a body of OpenAI's responses. The items that the server remembers
// from a previous response are not in the text.
func FromResponses(body []byte) (router.Prompt, error) { return new(Parser).FromResponses(body) }

// FromMessages reads a body of Anthropic's messages.
func FromMessages(body []byte) (router.Prompt, error) { return new(Parser).FromMessages(body) }

// FromEmbeddings reads a body of OpenAI's embeddings, also with messages as vLLM
// takes them. Of a batch the first member counts.
func FromEmbeddings(body []byte) (router.Prompt, error) { return new(Parser).FromEmbeddings(body) }

// FromRequest reads a request. It finds the API by the path. See
// [Parser.FromRequest].
func FromRequest(path string, h http.Header, body []byte) (router.Prompt, error) {
	return new(Parser).FromRequest(path, h, body)
}

// FromChat is the function of this name with r's settings.
func (r Parser) FromChat(body []byte) (router.Prompt, error) {
	return r.read(chat{}, "", nil, body, nil, nil)
}

// FromCompletion is the function of this name with r's settings.
func (r Parser) FromCompletion(body []byte) (router.Prompt, error) {
	return r.read(completions{}, "", nil, body, nil, nil)
}

// FromResponses is the function of this name with r's settings.
func (r Parser) FromResponses(body []byte) (router.Prompt, error) {
	return r.read(responses{}, "", nil, body, nil, nil)
}

// FromMessages is the function of this name with r's settings.
func (r Parser) FromMessages(body []byte) (router.Prompt, error) {
	return r.read(messages{}, "", nil, body, nil, nil)
}

// FromEmbeddings is the function of this name with r's settings.
func (r Parser) FromEmbeddings(body []byte) (router.Prompt, error) {
	return r.read(embeddings{}, "", nil, body, nil, nil)
}

// FromRequest reads a request. path may have a prefix before and a query after
// one of /v1/chat/completions, /v1/completions, /v1/responses, /v1/messages,
// /v1/embeddings, /v1/rerank (/rerank, /v2/rerank, /reranking), SGLang's /generate, vLLM's /inference/v1/generate and
// llama.cpp's /completion (/completions). With any other path the prompt has no text; its scope and
// session are read if the body is a JSON object, and there is no error.
//
// The session key is taken from the first of these that is there and usable (1
// to 512 bytes, no control characters): the headers X-Session-Id and
// X-Claude-Code-Session-Id (with X-Claude-Code-Agent-Id a sub-agent's own), the
// session in the body's metadata.user_id, the headers thread-id, thread_id, conversation_id, session-id, session_id,
// x-session-affinity, x-opencode-session and
// x-amp-thread-id, and the body's prompt_cache_key, conversation and
// conversation_id. The body alone gives the other functions their key.
//
// The header TokenIDsHeader, otherwise TokenIDsHeaderAlias, if it is not empty, goes to Tokens.
//
// Must has the ids of the state that only one engine has: in Responses previous_response_id and conversation, in any
// API the file_id of a part, and the uuid of a medium without content ("media:" before it; the uuid of one with
// content goes to Brings). With a path of /v1/responses/{id}, /v1/conversations/{id} or /v1/files/{id}, and any that
// goes on from one, it is that id, whatever the method.
func (r Parser) FromRequest(path string, h http.Header, body []byte) (router.Prompt, error) {
	return r.request(path, h, body, nil, nil)
}

// Within is FromRequest within the memory of hold. It reserves the bytes that reading body may take, and leaves in hold
// those that the prompt takes, for the caller to release when the prompt is not used any more. If there are none, the
// prompt is empty, hold has what it had, and the error is a *membudget.Error.
func (r Parser) Within(hold *membudget.Hold, path string, h http.Header, body []byte) (router.Prompt, error) {
	had := hold.Bytes()
	// The text is about as long as the body, and so is the scratch, of which one body may always have all.
	if limit := hold.Account().Limit(); hold.Account() != nil {
		if err := hold.Set(min(had+2*int64(len(body)), max(limit, had))); err != nil {
			return router.Prompt{}, err
		}
	}
	p, err := r.FromRequest(path, h, body)
	if e := hold.Set(had + Size(p)); e != nil {
		hold.Release()
		_ = hold.Set(had) // fits, unless others have taken it meanwhile
		return router.Prompt{}, e
	}
	return p, err
}

// Size returns the bytes that p keeps: its text, its ids and its names.
func Size(p router.Prompt) int64 {
	n := len(p.Text) + 4*cap(p.Tokens) + len(p.Model) + len(p.Adapter) + len(p.Salt) + len(p.Session)
	for _, s := range p.Must {
		n += len(s) + 16
	}
	for _, s := range p.Brings {
		n += len(s) + 16
	}
	return int64(n)
}

// request does the work of FromRequest and FromValue. hard and soft are the errors that the body had already.
func (r Parser) request(path string, h http.Header, body []byte, hard, soft *Error) (router.Prompt, error) {
	a := apiOf(path)
	if h == nil {
		h = http.Header{}
	}
	id := ""
	if a == nil {
		id = pathID(path)
	}
	p, err := r.read(a, id, h, body, hard, soft)
	if a == nil {
		if r.Unknown != nil && id == "" {
			r.Unknown(path, &Error{Kind: ErrUnknownPath})
		}
		if !errors.Is(err, ErrBadTokenIDs) {
			err = nil
		}
	} else if err != nil && r.Unknown != nil {
		r.Unknown(path, err)
	}
	return p, err
}

// parses keeps working buffers, so that a request's text is allocated once, in
// its size.
var parses = sync.Pool{New: func() any { return new(parse) }}

// maxKept bounds the buffers that are kept for the next request.
const maxKept = 4 << 20

func (p *parse) release() {
	*p = parse{out: kept(p.out), tmp: kept(p.tmp), in: kept(p.in), name: kept(p.name)}
	parses.Put(p)
}

func kept(b []byte) []byte {
	if cap(b) > maxKept {
		return nil
	}
	return b[:0]
}

// WithDefaults returns r with the default in place of each zero field that has one: MaxBody.
func (r Parser) WithDefaults() Parser {
	r.MaxBody = cmp.Or(r.MaxBody, DefaultMaxBody)
	return r
}

// read does the work of all the functions. path is the id in the path. h is nil if there are no headers.
func (r Parser) read(a api, path string, h http.Header, body []byte, hard, soft *Error) (router.Prompt, error) {
	p := parses.Get().(*parse)
	defer p.release()
	err := hard
	if limit := r.WithDefaults().MaxBody; err == nil && limit > 0 && len(body) > limit {
		err = &Error{Kind: ErrTooLarge, Offset: limit}
	}
	if err == nil {
		p.Scanner, p.soft = jsonscan.Start(body), soft
		p.body(a)
		if err = p.hard; err == nil {
			err = p.soft
		}
	}
	q := router.Prompt{
		Model:   bounded(p.model),
		Adapter: bounded(p.adapter),
		Salt:    bounded(joinSalt(p.salt, p.extraKey)),
		Tokens:  p.tokens,
	}
	if p.hard == nil {
		q.Text = p.text(r.MaxText)
	} else {
		q.Tokens = nil
	}
	if base, adapter, ok := strings.Cut(q.Model, ":"); ok && base != "" && r.Adapters[adapter] == base {
		q.Model, q.Adapter = base, adapter // SGLang's form
	}
	if base, ok := r.Adapters[q.Model]; ok {
		if q.Adapter == "" {
			q.Adapter = q.Model
		}
		q.Model = base
	}
	tenant := ""
	if h != nil {
		if r.Tenant != nil {
			tenant = r.Tenant(h)
		}
		field := TokenIDsHeader
		ids := header(h, field)
		if ids == "" {
			field = TokenIDsHeaderAlias
			ids = header(h, field)
		}
		if ids != "" {
			tokens, bad := parseTokenIDs(field, ids)
			if bad == nil {
				q.Tokens = tokens
			} else if err == nil {
				err = bad
			}
		}
	}
	q.Session = sessionKey(tenant, h, &p.signals)
	p.held.refer(&q, path)
	return q, asError(err)
}

// MaxScope is the greatest length of the model, the adapter and the salt of a prompt, in bytes. A longer one is
// replaced by a digest of it: strategies hash the scope of every prompt. vLLM refuses a longer salt.
const MaxScope = 1024

func bounded(s string) string {
	if len(s) <= MaxScope {
		return s
	}
	h := sha256.Sum256([]byte(s))
	return "sha256:" + hex.EncodeToString(h[:])
}

// joinSalt makes one salt of two: different pairs have different ones.
func joinSalt(salt, extra string) string {
	if extra == "" {
		return salt
	}
	return "\x00" + strconv.Itoa(len(salt)) + ":" + salt + extra
}

// text joins the sections in the engine's order and cuts them to limit.
func (p *parse) text(limit int) string {
	n, at, joined := 0, 0, true
	for _, s := range p.sections {
		if s.empty() {
			continue
		}
		joined = joined && (n == 0 || s.lo == at)
		n += s.hi - s.lo
		at = s.hi
	}
	if n == 0 {
		return ""
	}
	b := p.out[max(at-n, 0):at]
	if !joined {
		t := slices.Grow(p.tmp[:0], n)
		for _, s := range p.sections {
			if !s.empty() {
				t = append(t, p.out[s.lo:s.hi]...)
			}
		}
		p.tmp, b = t, t
	}
	if limit > 0 && len(b) > limit {
		b = b[:jsonscan.Boundary(b, limit)]
	}
	return string(b)
}
