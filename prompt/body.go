package prompt

import "strconv"

// section is a part of the text by its place in the engine's order.
const (
	secTools = iota
	secFunctions
	secSystem
	secTurns
	sections
)

// parse is one body being read. Parts are written to out as they come and put in
// order at the end.
type parse struct {
	scanner
	out, tmp []byte
	sections [sections]span

	model, adapter, salt string
	tokens               []uint32
	signals              signals

	soft  *Error // the first wrong type; reading went on after it
	field string // where we are, for errors
	index int    // in an array of that name; -1: not in one

	// Of the message being read: where it begins, and its role where that came
	// before what asks for it.
	at   int
	kind byte

	reply bool // a reply is read: reasoning is left out
}

// wrong notes that the value that is next has a wrong type and passes it.
func (p *parse) wrong() {
	p.peek()
	at := p.i
	p.skip()
	if p.err != nil || p.soft != nil {
		return
	}
	p.soft = &Error{Kind: Type, Field: p.where(), Offset: at}
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
	if p.peek() != '{' {
		if a != apiOther {
			p.wrong()
			p.end()
		}
		return
	}
	for k, ok := p.firstKey(); ok; k, ok = p.nextKey() {
		p.field, p.index = "", -1
		lo := len(p.out)
		sec := -1
		switch string(k) {
		case "model":
			p.field = "model"
			p.model = p.str()
		case "cache_salt":
			p.field = "cache_salt"
			p.salt = p.str()
		case "lora_path":
			p.field = "lora_path"
			p.adapter = p.firstStr()
		case "prompt_cache_key":
			p.field = "prompt_cache_key"
			p.signals.cacheKey = p.str()
		case "conversation":
			p.field = "conversation"
			p.signals.conversation = p.strOr("id")
		case "conversation_id":
			p.field = "conversation_id"
			p.signals.conversationID = p.str()
		case "metadata":
			p.field = "metadata"
			p.metadata()
		default:
			sec = p.section(a, string(k))
		}
		if sec >= 0 {
			p.sections[sec] = span{lo, len(p.out)}
		}
	}
	if p.err == nil {
		p.field, p.index = "", -1
		p.end()
	}
	if p.err != nil && p.err.Field == "" {
		p.err.Field = p.where()
	}
}

// section reads the value of top-level field k where it is a part of the text,
// and passes it otherwise.
func (p *parse) section(a api, k string) int {
	turns := a == apiChat || a == apiMessages || a == apiResponses
	switch {
	case k == "tools" && turns:
		p.field = "tools"
		p.tools()
		return secTools
	case k == "functions" && a == apiChat:
		p.field = "functions"
		p.tools()
		return secFunctions
	case k == "system" && a == apiMessages:
		p.field = "system"
		p.system()
		return secSystem
	case k == "instructions" && a == apiResponses:
		p.field = "instructions"
		p.system()
		return secSystem
	case k == "messages" && (a == apiChat || a == apiMessages || a == apiEmbeddings):
		p.field = "messages"
		p.array(p.message)
		return secTurns
	case k == "input" && a == apiResponses:
		p.field = "input"
		p.input()
		return secTurns
	case k == "prompt" && a == apiCompletion, k == "input" && a == apiEmbeddings:
		p.field = "input"
		if a == apiCompletion {
			p.field = "prompt"
		}
		p.batch()
		return secTurns
	}
	p.skip()
	return -1
}

// array calls elem for each element of the array that is next.
func (p *parse) array(elem func()) {
	switch p.peek() {
	case '[':
		p.index = 0
		for ok := p.firstElem(); ok; ok = p.nextElem() {
			if elem(); p.err != nil {
				return
			}
			p.index++
		}
		p.index = -1
	case 'n':
		p.null()
	default:
		p.wrong()
	}
}

// str reads a string; null is "".
func (p *parse) str() string {
	switch p.peek() {
	case '"':
		p.tmp = p.appendString(p.tmp[:0])
		if p.err == nil {
			return string(p.tmp)
		}
	case 'n':
		p.null()
	default:
		p.wrong()
	}
	return ""
}

// strOr reads a string, or the string that an object has under key.
func (p *parse) strOr(key string) (s string) {
	if p.peek() != '{' {
		return p.str()
	}
	for k, ok := p.firstKey(); ok; k, ok = p.nextKey() {
		if string(k) == key {
			s = p.str()
		} else {
			p.skip()
		}
	}
	return s
}

// firstStr reads a string, or the first one of an array.
func (p *parse) firstStr() (s string) {
	if p.peek() != '[' {
		return p.str()
	}
	first := true
	for ok := p.firstElem(); ok; ok = p.nextElem() {
		if first {
			s = p.str()
		} else {
			p.skip()
		}
		first = false
	}
	return s
}

func (p *parse) metadata() {
	if p.peek() != '{' {
		p.skip()
		return
	}
	for k, ok := p.firstKey(); ok; k, ok = p.nextKey() {
		if string(k) == "user_id" && p.peek() == '"' {
			p.signals.userID = p.str()
		} else {
			p.skip()
		}
	}
}

// tools reads the definitions of tools.
func (p *parse) tools() {
	p.array(func() {
		if p.peek() != '{' {
			p.wrong()
			return
		}
		p.out = append(p.out, mark, kindTool)
		p.out = p.canon(p.out, ownedMarkers)
	})
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

// batch reads a completion's prompt or an embedding's input: a text, token ids,
// or an array of either, of which the first counts.
func (p *parse) batch() {
	p.tokens = nil
	switch p.peek() {
	case '"':
		p.out = p.copyString(p.out)
	case '[':
		first := true
		for ok := p.firstElem(); ok; ok = p.nextElem() {
			c := p.peek()
			switch {
			case first && c == '"':
				p.out = p.copyString(p.out)
			case first && c == '[':
				p.tokenArray()
			case first && (c == '-' || c >= '0' && c <= '9'):
				p.tokenElems()
				return
			case first:
				p.wrong()
			default:
				p.skip()
			}
			first = false
		}
	case 'n':
		p.null()
	default:
		p.wrong()
	}
}

func (p *parse) tokenArray() {
	if p.firstElem() {
		p.tokenElems()
	}
}

// tokenElems reads the ids of an array whose first element is next, to its end.
// One that is no id makes them all unknown.
func (p *parse) tokenElems() {
	// An id and its comma are at least two bytes, mostly about five.
	ids := make([]uint32, 0, min((len(p.b)-p.i)/5+1, 1<<16))
	good := true
	for ok := true; ok; ok = p.nextElem() {
		c := p.peek()
		if c < '0' || c > '9' {
			good = false
			p.wrong()
			continue
		}
		at := p.i
		id, ok := parseID(p.scalar(c))
		if !ok && p.err == nil {
			good = false
			if p.soft == nil {
				p.soft = &Error{Kind: Type, Field: p.where(), Offset: at}
			}
		}
		ids = append(ids, id)
	}
	if good && p.err == nil {
		p.tokens = ids
	}
}
