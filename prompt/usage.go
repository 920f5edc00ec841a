package prompt

import (
	"bytes"
	"encoding/json"
)

// Usage is an engine's own count of a request's tokens; 0 where it did not tell.
type Usage struct {
	Prompt int // of the whole prompt
	Cached int // of them that were in the KV cache
	Output int
}

// lookBack is how many of a reply's bytes a usage object may take, with what
// stands before it in the same event.
const lookBack = 2 << 10

// A usageFinder looks for usage objects in a reply as it passes by. It does not
// parse the reply: in the text of one the quotes are escaped, so that it cannot
// pretend to be a usage.
type usageFinder struct {
	seen  []byte // what passed by last
	found usageObject
}

// usageObject is the object of that name of all the APIs.
type usageObject struct {
	// OpenAI's chat completions and completions.
	Prompt        int          `json:"prompt_tokens"`
	Completion    int          `json:"completion_tokens"`
	PromptDetails usageDetails `json:"prompt_tokens_details"`
	// OpenAI's responses and Anthropic's messages, where Input leaves out what was
	// cached, which the last two tell.
	Input         int          `json:"input_tokens"`
	Output        int          `json:"output_tokens"`
	InputDetails  usageDetails `json:"input_tokens_details"`
	CacheRead     int          `json:"cache_read_input_tokens"`
	CacheCreation int          `json:"cache_creation_input_tokens"`
}

type usageDetails struct {
	Cached int `json:"cached_tokens"`
}

func (f *usageFinder) write(b []byte) {
	if f.seen == nil {
		f.seen = make([]byte, 0, 2*lookBack)
	}
	for len(b) > 0 {
		if len(f.seen) == cap(f.seen) {
			f.search()
			f.seen = f.seen[:copy(f.seen, f.seen[len(f.seen)-lookBack:])]
		}
		n := copy(f.seen[len(f.seen):cap(f.seen)], b)
		f.seen = f.seen[:len(f.seen)+n]
		b = b[n:]
	}
}

// search merges what the first and the last object in seen say into what was
// found, the greatest number of each field: they only grow while a reply goes on.
func (f *usageFinder) search() {
	i := f.next(0)
	if i < 0 {
		return
	}
	f.merge(f.seen[i:])
	last := i
	for {
		j := f.next(last)
		if j < 0 {
			break
		}
		if f.whole(f.seen[j:]) {
			i = j
		}
		last = j
	}
	f.merge(f.seen[i:])
}

var usageKey = []byte(`"usage":`)

// next returns where the next usage object behind i begins, -1 where there is none.
func (f *usageFinder) next(i int) int {
	for {
		n := bytes.Index(f.seen[i:], usageKey)
		if n < 0 {
			return -1
		}
		at := i + n
		i = at + len(usageKey)
		for i < len(f.seen) && f.seen[i] == ' ' {
			i++
		}
		if i < len(f.seen) && f.seen[i] == '{' && (at == 0 || f.seen[at-1] != '\\') {
			return i
		}
	}
}

// whole reports whether the object that b begins with may have come to its end:
// one that has not will be found again.
func (f *usageFinder) whole(b []byte) bool {
	depth := 0
	for _, c := range b {
		switch c {
		case '{':
			depth++
		case '}':
			if depth--; depth == 0 {
				return true
			}
		}
	}
	return false
}

func (f *usageFinder) merge(b []byte) {
	var v usageObject
	if json.NewDecoder(bytes.NewReader(b)).Decode(&v) != nil {
		return
	}
	u := &f.found
	u.Prompt, u.Completion = max(u.Prompt, v.Prompt), max(u.Completion, v.Completion)
	u.Input, u.Output = max(u.Input, v.Input), max(u.Output, v.Output)
	u.CacheRead, u.CacheCreation = max(u.CacheRead, v.CacheRead), max(u.CacheCreation, v.CacheCreation)
	u.PromptDetails.Cached = max(u.PromptDetails.Cached, v.PromptDetails.Cached)
	u.InputDetails.Cached = max(u.InputDetails.Cached, v.InputDetails.Cached)
}

// Usage returns the engine's own count of tokens as far as it has come, of any API
// of this package: at the end of a JSON reply, and of a stream where the client
// asked for it (stream_options.include_usage).
func (r *Reply) Usage() Usage {
	r.usage.search()
	u := r.usage.found
	return Usage{
		Prompt: max(u.Prompt, u.Input+u.CacheRead+u.CacheCreation), // a sum beyond int is no count
		Cached: max(u.PromptDetails.Cached, u.InputDetails.Cached, u.CacheRead),
		Output: max(u.Completion, u.Output),
	}
}
