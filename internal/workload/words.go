package workload

import (
	"math/rand/v2"
	"strings"
)

// vocabularySize is the number of distinct words. With the skew of writer.word
// it gives text about as repetitive as English: the commonest word is about
// every fifteenth.
const vocabularySize = 4096

// vocabulary returns distinct made-up words, most of them of one to four
// syllables, in an order of their own.
func vocabulary(r *rand.Rand) []string {
	const consonants, vowels = "bcdfghklmnprstvw", "aeiou"
	words := make([]string, 0, vocabularySize)
	seen := make(map[string]bool, vocabularySize)
	var b []byte
	for len(words) < vocabularySize {
		b = b[:0]
		// Common words are short: the length grows with the rank.
		syllables := 1 + r.IntN(1+min(3, len(words)/64))
		for range syllables {
			b = append(b, consonants[r.IntN(len(consonants))], vowels[r.IntN(len(vowels))])
		}
		if r.IntN(2) == 0 {
			b = append(b, consonants[r.IntN(len(consonants))])
		}
		if w := string(b); !seen[w] {
			seen[w] = true
			words = append(words, w)
		}
	}
	return words
}

// writer makes text of sentences and paragraphs.
type writer struct {
	r     *rand.Rand
	words []string
}

// word draws a word; low ranks are common.
func (w *writer) word() string {
	u := w.r.Float64()
	return w.words[int(u*u*u*float64(len(w.words)))]
}

// text returns exactly n bytes of printable ASCII with line breaks and double
// quotes in it, as chats have them: JSON has to escape both.
func (w *writer) text(n int) string {
	var b strings.Builder
	b.Grow(n + 64)
	for sentences := 1; b.Len() < n; sentences++ {
		first := w.word()
		b.WriteByte(first[0] - 'a' + 'A')
		b.WriteString(first[1:])
		for range 5 + w.r.IntN(14) {
			switch w.r.IntN(24) {
			case 0:
				b.WriteString(", ")
				b.WriteString(w.word())
			case 1:
				b.WriteString(` "`)
				b.WriteString(w.word())
				b.WriteByte('"')
			default:
				b.WriteByte(' ')
				b.WriteString(w.word())
			}
		}
		if sentences%6 == 0 {
			b.WriteString(".\n")
		} else {
			b.WriteString(". ")
		}
	}
	return b.String()[:n]
}
