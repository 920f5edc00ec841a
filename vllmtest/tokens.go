package vllmtest

import "strings"

// The ids of tokens that are no text. Ids of text begin at 1<<24, so no text
// can forge them.
const (
	tokBOS       uint32 = iota + 1
	tokEnd              // ends a turn, and a reply that ends by itself
	tokSystem           // the rest of the first group opens a turn
	tokUser             //
	tokAssistant        //
	tokTool             //
	tokOtherRole        // followed by the role's name
	tokTools            // opens the tool definitions
	tokCall             // opens a tool call: name, tokSep, arguments
	tokResult           // opens a tool's result inside a turn
	tokMedia            // an image, audio or file: its name follows
	tokSep
)

const pieceBytes = 4

// appendTokens appends the tokens of text to dst. Text is cut before every
// newline, and each part into pieces of 4 bytes if these are ASCII, of at most 3
// otherwise: so the bytes of a piece and their number fit in 29 bits, and
// different pieces have different ids.
func appendTokens(dst []uint32, text string) []uint32 {
	for len(text) > 0 {
		end := len(text)
		if i := strings.IndexByte(text[1:], '\n'); i >= 0 {
			end = i + 1
		}
		run := text[:end]
		text = text[end:]
		for len(run) > 0 {
			n := min(pieceBytes, len(run))
			if n == pieceBytes && (run[0]|run[1]|run[2]|run[3]) >= 0x80 {
				n = 3
			}
			dst = append(dst, pieceID(run[:n]))
			run = run[n:]
		}
	}
	return dst
}

func pieceID(p string) uint32 {
	if len(p) == pieceBytes {
		return 1<<28 | uint32(p[0])<<21 | uint32(p[1])<<14 | uint32(p[2])<<7 | uint32(p[3])
	}
	id := uint32(len(p)) << 24
	for i := range len(p) {
		id |= uint32(p[i]) << (8 * i)
	}
	return id
}

// replyWords are the words of replies. With the blank or the full stop that
// belongs to it a word is exactly one token.
var replyWords = strings.Fields(`
ace act add age air all and ant any arm art ash bag bar bay bed bee big bit box
boy bus buy can cap car cat cow cry cup cut day dew dog dot dry ear eat egg elm
end eye fan far fig fin fir fit fly fog fox fun gap gem get gum hat hay hen her
hip hot ice ink ivy jam jar jet joy key kit lap law leg let lid log low man map
mat mix mud net new nut oak oar off oil old one orb our owl own pan paw pea pen
pie pin pit pod pot ray red rib rim row run rye sea set sky son sun tea ten the`)

// reply is the reply to one prompt: a function of the prompt's tokens and of
// its length alone.
type reply struct {
	seed  uint64
	words int  // tokens that are words
	end   bool // an end token follows them
	line  bool // it continues a text: it begins with a newline, and blanks stand before words
}

// newReply returns the reply to prompt. natural is its length if max allows it,
// the end token included; ignoreEnd makes it max words long.
func newReply(prompt []uint32, natural, max int, ignoreEnd, line bool) reply {
	h := uint64(14695981039346656037) // FNV-1a
	for _, t := range prompt {
		h = (h ^ uint64(t)) * 1099511628211
	}
	r := reply{seed: h, words: max, line: line}
	if !ignoreEnd && natural <= max {
		r.words, r.end = natural-1, true
	}
	return r
}

// tokens returns the number of tokens in r.
func (r *reply) tokens() int {
	if r.end {
		return r.words + 1
	}
	return r.words
}

// appendText appends the text of tokens i..j-1.
func (r *reply) appendText(dst []byte, i, j int) []byte {
	for ; i < min(j, r.words); i++ {
		w := replyWords[mix(r.seed+uint64(i)*0x9E3779B97F4A7C15)%uint64(len(replyWords))]
		switch {
		case r.line && i == 0:
			dst = append(append(dst, '\n'), w...)
		case r.line:
			dst = append(append(dst, ' '), w...)
		case i == r.words-1:
			dst = append(append(dst, w...), '.')
		default:
			dst = append(append(dst, w...), ' ')
		}
	}
	return dst
}

// mix is the finalizer of splitmix64.
func mix(x uint64) uint64 {
	x = (x ^ x>>30) * 0xBF58476D1CE4E5B9
	x = (x ^ x>>27) * 0x94D049BB133111EB
	return x ^ x>>31
}

// token returns token i.
func (r *reply) token(i int) uint32 {
	if i >= r.words {
		return tokEnd
	}
	var b [pieceBytes]byte
	return pieceID(string(r.appendText(b[:0], i, i+1)))
}

// finishReason returns why r ends, in OpenAI's words.
func (r *reply) finishReason() string {
	if r.end {
		return "stop"
	}
	return "length"
}
