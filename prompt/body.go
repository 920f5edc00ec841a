package prompt

import (
	"slices"
	"strconv"

	"github.com/warmroute/router/internal/jsonscan"
)

// section is a part of the text by its place in the engine's order.
type section int8

const (
	noSection  section = iota - 1
	secSetting         // a chat template of the request's own
	secTools
	secFunctions
	secTemplate // OpenAI's stored prompt, by its id and its variables
	secSystem
	secBefore // turns of earlier requests
	secTurns
	sections
)

// parse is one body being read. Parts are written to out as they come and put in
// order at the end.
type parse struct {
	jsonscan.Scanner
	out, tmp []byte
	in       []byte // a body that was written by FromValue
	sections [sections]span

	model, adapter, salt string
	extraKey             string // separates caches like salt
	tokens               []uint32
	signals              signals
	held                 heldIDs
	name                 []byte // of the medium that is being read

	hard  *Error // why reading ended
	soft  *Error // the first wrong type; reading went on after it
	field string // the field that is being read, for errors
	index int    // in an array of that name; -1: not in one

	// Of the message being read: its start, and its role if that came before
	// the member that needs it.
	at   int
	kind byte

	reply bool // a reply is read: reasoning is left out
}

// wrong notes that the value that is next has a wrong type and passes it.
func (p *parse) wrong() {
	p.Peek()
	at := p.I
	p.Skip()
	if p.Fault != 0 || p.soft != nil {
		return
	}
	p.soft = &Error{Kind: ErrType, Field: p.where(), Offset: at}
}

func (p *parse) where() string {
	if p.field == "" || p.index < 0 {
		return p.field
	}
	return p.field + "[" + strconv.Itoa(p.index) + "]"
}

// body reads a whole body of kind a.
func (p *parse) body(a api) {
	p.index = -1
	if p.Peek() == '{' {
		p.object(a)
	} else if a != nil {
		p.wrong()
	} else {
		return
	}
	if p.Fault == 0 {
		p.field, p.index = "", -1
		p.End()
	}
	if p.Fault != 0 {
		p.hard = &Error{Kind: kindOf(p.Fault), Field: p.where(), Offset: p.At}
	} else if a != nil {
		a.done(p)
	}
}

// object reads the members of a body.
func (p *parse) object(a api) {
	for k, ok := p.FirstKey(); ok; k, ok = p.NextKey() {
		p.field, p.index = "", -1
		lo := len(p.out)
		sec := noSection
		switch string(k) {
		case "model":
			p.field = "model"
			p.model = p.str()
		case "cache_salt":
			p.field = "cache_salt"
			p.salt = p.firstStr()
		case "extra_key": // SGLang's
			p.field = "extra_key"
			p.extraKey = p.firstStr()
		case "lora_path": // SGLang's
			p.field = "lora_path"
			p.adapter = p.firstStr()
		case "lora_request": // TensorRT-LLM's: tensorrt_llm/executor/request.py at 08c33130
			p.field = "lora_request"
			p.adapter = p.strOr("lora_name")
		case "prompt_cache_key":
			p.field = "prompt_cache_key"
			p.signals.cacheKey = p.str()
		case "conversation":
			p.field = "conversation"
			p.signals.conversation = p.strOr("id")
			if _, ok := a.(responses); ok { // elsewhere it is a name that no engine knows
				p.held.conversation = p.signals.conversation
			}
		case "previous_response_id":
			p.field = "previous_response_id"
			p.held.previous = p.str()
		case "conversation_id":
			p.field = "conversation_id"
			p.signals.conversationID = p.str()
		case "metadata":
			p.field = "metadata"
			p.metadata()
		default:
			if a != nil {
				sec = a.member(p, k)
			} else {
				p.Skip()
			}
		}
		if sec >= 0 {
			p.sections[sec] = span{lo, len(p.out)}
		}
	}
}

// array calls elem for each element of the array that is next.
func (p *parse) array(elem func()) {
	switch p.Peek() {
	case '[':
		if rest := len(p.B) - p.I; rest > maxKept {
			// Growing by steps would allocate several times as much.
			p.out = slices.Grow(p.out, rest+rest/8)
		}
		p.index = 0
		for ok := p.FirstElem(); ok; ok = p.NextElem() {
			if elem(); p.Fault != 0 {
				return
			}
			p.index++
		}
		p.index = -1
	case 'n':
		p.Null()
	default:
		p.wrong()
	}
}

// str reads a string; null is "".
func (p *parse) str() string {
	switch p.Peek() {
	case '"':
		p.tmp = p.AppendString(p.tmp[:0])
		if p.Fault == 0 {
			return string(p.tmp)
		}
	case 'n':
		p.Null()
	default:
		p.wrong()
	}
	return ""
}

// strOr reads a string, or the string that an object has under key.
func (p *parse) strOr(key string) (s string) {
	if p.Peek() != '{' {
		return p.str()
	}
	for k, ok := p.FirstKey(); ok; k, ok = p.NextKey() {
		if string(k) == key {
			s = p.str()
		} else {
			p.Skip()
		}
	}
	return s
}

// firstStr reads a string, or the first one of an array.
func (p *parse) firstStr() (s string) {
	if p.Peek() != '[' {
		return p.str()
	}
	first := true
	for ok := p.FirstElem(); ok; ok = p.NextElem() {
		if first {
			s = p.str()
		} else {
			p.Skip()
		}
		first = false
	}
	return s
}

func (p *parse) metadata() {
	if p.Peek() != '{' {
		p.Skip()
		return
	}
	for k, ok := p.FirstKey(); ok; k, ok = p.NextKey() {
		if string(k) == "user_id" && p.Peek() == '"' {
			p.signals.userID = p.str()
		} else {
			p.Skip()
		}
	}
}

// tools reads the definitions of tools.
func (p *parse) tools() {
	p.array(func() {
		if p.Peek() != '{' {
			p.wrong()
			return
		}
		p.out = append(p.out, mark, kindTool)
		p.out = canon(&p.Scanner, p.out, ownedMarkers)
	})
}

// template reads a chat template of the request's own, as a digest: it decides how all that follows is written.
func (p *parse) template() section {
	p.field = "chat_template"
	if p.Null() {
		return noSection
	}
	p.media()
	return secSetting
}

// system reads a system prompt that is a field of its own. An empty one is none.
func (p *parse) system() {
	lo := len(p.out)
	p.out = append(p.out, mark, kindSystem)
	p.kind = kindSystem
	p.content(lo + 2)
	if len(p.out) == lo+2 {
		p.out = p.out[:lo]
	}
}
