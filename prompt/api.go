package prompt

import (
	"strings"

	"github.com/warmroute/router/internal/jsonscan"
)

// An api is one API that engines serve. Each has a file of its own with all that is known of it: its paths,
// the members of a request's body that are a part of the prompt, the roles and block types that it adds, and the
// form of its replies. A new one is a file and a line in apis, and one in names if it adds words.
type api interface {
	// name is in snake case.
	name() string
	// serves reports whether path, without its query, is one of the API's.
	serves(path string) bool
	// member reads the value of the member k of a request's body and returns the section of the text that it is,
	// noSection if it is none. It passes a value that it does not know.
	member(p *parse, k []byte) section
	// done is called when the body has been read whole.
	done(p *parse)

	// claims reports whether a JSON reply, or an event of a stream, is this API's.
	claims(m *members) bool
	// answer writes the text of a JSON reply of this API.
	answer(p *parse, m *members)
	// event takes an event of this API and reports whether more may be added to the text after it.
	event(s *stream, m *members) bool
	// text returns the text of the events so far.
	text(s *stream) []byte
	// usage adds the counts of tokens of a JSON reply or an event.
	usage(m *members, u *counts)
}

// apis are all of them, in the order in which they are asked.
var apis = [...]api{chat{}, completions{}, responses{}, messages{}, embeddings{}, rerank{}, vllmGenerate{},
	sglangGenerate{}, llamaCompletion{}}

// names are the words for roles and types of blocks that the APIs add. They are understood in every API, for
// gateways translate from one to the other and do not translate all.
var names = join(chatWords, responsesWords, messagesWords)

// words are the names of roles and of types of blocks.
type words struct {
	roles  map[string]byte // to the kind of mark that opens a turn
	blocks map[string]BlockKind
}

func join(all ...words) words {
	sum := words{map[string]byte{}, map[string]BlockKind{"": BlockNone}}
	for _, w := range all {
		for k, v := range w.roles {
			sum.roles[k] = v
		}
		for k, v := range w.blocks {
			sum.blocks[k] = v
		}
	}
	return sum
}

// roleKind returns the kind of mark that opens a turn of role, kindOther for one that no API has.
func roleKind(role []byte) byte {
	if k, ok := names.roles[string(role)]; ok {
		return k
	}
	return kindOther
}

// BlockKindOf returns the kind of a block by its "type", as any of the APIs has it.
func BlockKindOf(typ string) BlockKind { return names.blocks[typ] }

// IsUser reports whether a message of this role is a user's. One of a role that no API has may be one.
func IsUser(role string) bool {
	k, ok := names.roles[role]
	return !ok || k == kindUser
}

// APIOf returns the name of the API that a request's path is of, as FromRequest reads it, "" for none:
// "chat_completions", "completions", "responses", "messages", "embeddings", "rerank", "vllm_generate",
// "sglang_generate" and "llamacpp_completion". It fits a metric label.
func APIOf(path string) string {
	a := apiOf(path)
	if a == nil {
		return ""
	}
	return a.name()
}

// apiOf returns the API of a request's path, nil for none.
func apiOf(path string) api {
	if i := strings.IndexAny(path, "?#"); i >= 0 {
		path = path[:i]
	}
	path = strings.TrimRight(path, "/")
	for _, a := range apis {
		if a.serves(path) {
			return a
		}
	}
	return nil
}

// noReply is embedded by an API with replies that add nothing to a conversation.
type noReply struct{}

func (noReply) claims(*members) bool         { return false }
func (noReply) answer(*parse, *members)      {}
func (noReply) event(*stream, *members) bool { return true }
func (noReply) text(*stream) []byte          { return nil }
func (noReply) usage(*members, *counts)      {}

// simple is embedded by an API with a body that is read when its members are.
type simple struct{}

func (simple) done(*parse) {}

// maxMembers bounds the members of a reply, or of an event, that are looked at.
const maxMembers = 256

// members are the members of the object that is a JSON reply or an event of a stream.
type members struct {
	list []member
	in   jsonscan.Scanner // inside of the object
	end  jsonscan.Scanner // behind it
	work int              // bytes that scan has read so far
	read bool             // the choices were read when they were passed
}

type member struct {
	name []byte
	at   int
}

// scan reads the object that b begins with. If into is not nil, its choices are read into it as they are passed: most
// events are little else.
func (m *members) scan(b []byte, into *stream) {
	m.list, m.read = m.list[:0], false
	s := jsonscan.Scanner{B: b}
	if s.Peek() != '{' {
		m.end = s
		return
	}
	for k, ok := s.FirstKey(); ok; k, ok = s.NextKey() {
		s.Peek()
		if len(m.list) == 0 {
			m.in = s
		}
		if len(m.list) < maxMembers {
			m.list = append(m.list, member{k, s.I})
		}
		if into != nil && string(k) == "choices" && s.Fault == 0 {
			m.read = true
			into.choices(&s)
		} else {
			s.Skip()
		}
	}
	m.end = s
	m.work += s.I
}

// get returns a Scanner at the value of the member of this name that came last, one that reads nothing if there
// is none.
func (m *members) get(name string) jsonscan.Scanner {
	for i := len(m.list) - 1; i >= 0; i-- {
		if string(m.list[i].name) == name {
			s := m.in
			s.I = m.list[i].at
			return s
		}
	}
	return jsonscan.Scanner{}
}

// has reports whether there is a member of this name with a value that begins with
// first.
func (m *members) has(name string, first byte) bool {
	b := m.at(name)
	return len(b) > 0 && b[0] == first
}

// at returns the text from the value of a member on, nil if there is none.
func (m *members) at(name string) []byte {
	for i := len(m.list) - 1; i >= 0; i-- {
		if string(m.list[i].name) == name {
			return m.in.B[m.list[i].at:]
		}
	}
	return nil
}

// str returns the value of a member that is a string without escapes, nil otherwise.
func (m *members) str(name string) []byte {
	s := m.get(name)
	if s.Peek() != '"' {
		return nil
	}
	v, _ := s.Raw()
	return v
}

// int returns the value of a member that is a number of at most 31 bits, 0 otherwise.
func (m *members) int(name string) int {
	s := m.get(name)
	return s.Int()
}
