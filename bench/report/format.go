package report

import (
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
)

// fixed prints v with that many decimals, "–" if v is not a number.
func fixed(v float64, digits int) string {
	switch {
	case math.IsNaN(v):
		return "–"
	case math.IsInf(v, 1):
		return "∞"
	case math.IsInf(v, -1):
		return "−∞"
	case math.Abs(v) >= 1e15:
		return strconv.FormatFloat(v, 'g', 4, 64)
	}
	return strconv.FormatFloat(v, 'f', digits, 64)
}

// digits is how many decimals a time in seconds is printed with.
func digits(v float64) int {
	switch v = math.Abs(v); {
	case v >= 100:
		return 1
	case v >= 10:
		return 2
	}
	return 3
}

func seconds(v float64) string {
	switch {
	case !finite(v):
		return fixed(v, 0)
	case math.Abs(v) < 0.9995:
		return fixed(1000*v, 0) + " ms"
	case math.Abs(v) >= 100:
		return fixed(v, 0) + " s"
	case math.Abs(v) >= 10:
		return fixed(v, 1) + " s"
	}
	return fixed(v, 2) + " s"
}

// clock prints a span of time.
func clock(v float64) string {
	if v >= 600 {
		return fixed(v/60, 0) + " min"
	}
	return fixed(v, 0) + " s"
}

func plain(v float64) string {
	if !finite(v) {
		return fixed(v, 0)
	}
	return strconv.FormatFloat(v, 'g', 6, 64)
}

// tickName prints a round number.
func tickName(v float64) string {
	switch {
	case v >= 1e9:
		return short(v/1e9) + "G"
	case v >= 1e6:
		return short(v/1e6) + "M"
	case v >= 1e4:
		return short(v/1e3) + "k"
	}
	return short(v)
}

func short(v float64) string {
	if v >= 100 && v < 1e6 {
		return strconv.FormatFloat(v, 'f', 0, 64)
	}
	return strconv.FormatFloat(v, 'g', 3, 64)
}

// amount prints a number of things.
func amount(v float64) string {
	if v < 1e6 {
		return whole(int(v))
	}
	return fixed(v/1e6, 2) + " million"
}

// whole prints n with a comma for each thousand.
func whole(n int) string {
	s := strconv.Itoa(n)
	for i := len(s) - 3; i > 0 && s[i-1] != '-'; i -= 3 {
		s = s[:i] + "," + s[i:]
	}
	return s
}

// times prints a ratio.
func times(v float64) string {
	switch {
	case !finite(v):
		return "–"
	case v >= 100:
		return fixed(v, 0) + "×"
	case v >= 10:
		return fixed(v, 1) + "×"
	}
	return fixed(v, 2) + "×"
}

func count(n int, one, many string) string {
	if n == 1 {
		return "1 " + one
	}
	return whole(n) + " " + many
}

// rateName is a load as it is named on the page.
func rateName(rate float64, unit string) string {
	if unit == "x" {
		return plain(rate) + "×"
	}
	return strings.TrimSpace(plain(rate) + " " + clip(unit, 20))
}

// seedList prints runs of seeds as from–to.
func seedList(seeds []uint64) string {
	var parts []string
	for i := 0; i < len(seeds) && len(parts) < 50; {
		k := i
		for k+1 < len(seeds) && seeds[k+1] == seeds[k]+1 {
			k++
		}
		switch {
		case k > i+1:
			parts = append(parts, fmt.Sprintf("%d to %d", seeds[i], seeds[k]))
		default:
			k = i
			parts = append(parts, strconv.FormatUint(seeds[i], 10))
		}
		i = k + 1
		if len(parts) == 50 && i < len(seeds) {
			parts = append(parts, "…")
		}
	}
	return strings.Join(parts, ", ")
}

// clip bounds a text that came from outside.
func clip(s string, n int) string {
	if r := []rune(s); len(r) > n {
		return string(r[:n-1]) + "…"
	}
	return s
}

// span is a part of a sentence; code ones are names.
type span struct {
	Code bool
	S    string
}

type sentence []span

func (s *sentence) say(format string, args ...any) *sentence {
	*s = append(*s, span{S: fmt.Sprintf(format, args...)})
	return s
}

// names lists at most four in code, and how many more.
func (s *sentence) names(list ...string) *sentence {
	n := len(list)
	if n > 5 {
		n = 4
	}
	for i, name := range list[:n] {
		switch {
		case i == 0:
		case i == n-1 && n == len(list):
			s.say(" and ")
		default:
			s.say(", ")
		}
		*s = append(*s, span{true, clip(name, maxName)})
	}
	if n < len(list) {
		s.say(" and %d more", len(list)-n)
	}
	return s
}

func joined(list []string, most int) string {
	list = slices.Clone(list)
	if len(list) > most {
		list = append(list[:most-1], fmt.Sprintf("%d more", len(list)-most+1))
	}
	switch n := len(list); n {
	case 0:
		return ""
	case 1:
		return list[0]
	default:
		return strings.Join(list[:n-1], ", ") + " and " + list[n-1]
	}
}
