package prompt

import (
	"strings"

	"github.com/warmroute/router/internal/jsonscan"
)

// maxMessage bounds the bytes of an error's message that are looked at.
const maxMessage = 1024

// unknownModel reports whether the reply is an error that says that the model or the adapter is not there: by its
// code, or by its message. SGLang 0.5 answers so with status 400 ("The following requested LoRA adapters are not
// loaded", "Got LoRA adapter that has never been loaded", "Model '...' does not exist").
func (r *Reply) unknownModel() bool {
	if r.form != formObject {
		return false
	}
	r.members.scan(r.object(), nil)
	var message []byte
	code := r.members.str("code")
	switch in := r.members.get("error"); in.Peek() {
	case '{':
		look := in
		code = look.Member("code")
		message = textOf(in)
	case '"':
		message = in.AppendString(nil)
	default:
		m := r.members.get("message")
		if m.Peek() == '"' {
			message = m.AppendString(nil)
		}
	}
	if string(code) == "model_not_found" {
		return true
	}
	return saysUnknown(strings.ToLower(string(message[:min(len(message), maxMessage)])))
}

// textOf returns the message of the object that is next.
func textOf(s jsonscan.Scanner) []byte {
	for k, ok := s.FirstKey(); ok; k, ok = s.NextKey() {
		if found := string(k) == "message"; s.Peek() == '"' && found {
			return s.AppendString(nil)
		}
		s.Skip()
	}
	return nil
}

// saysUnknown reports whether a message, in lower case, is about a model or an adapter that is not there.
func saysUnknown(m string) bool {
	absent := func(s string) bool {
		for _, p := range [...]string{
			"does not exist", "not found", "not loaded", "never been loaded", "not been loaded", "not registered", "unknown",
		} {
			if strings.Contains(s, p) {
				return true
			}
		}
		return false
	}
	for _, subject := range [...]string{"lora", "adapter"} {
		if strings.Contains(m, subject) && absent(m) || strings.Contains(m, "no "+subject) {
			return true
		}
	}
	if strings.Contains(m, "unknown model") {
		return true
	}
	// Messages about other things name the model too: only what directly follows its name counts.
	if i := strings.Index(m, "model "); i >= 0 {
		rest := m[i+len("model "):]
		if q := strings.IndexAny(rest, "`'\""); q >= 0 && q <= len("named ") {
			rest = rest[q+1:]
			if end := strings.IndexAny(rest, "`'\""); end >= 0 {
				rest = strings.TrimSpace(rest[end+1:])
				return strings.HasPrefix(rest, "does not exist") || strings.HasPrefix(rest, "not found") ||
					strings.HasPrefix(rest, "is not found") || strings.HasPrefix(rest, "was not found")
			}
		}
	}
	return false
}
