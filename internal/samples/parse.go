package samples

import (
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"
	"unicode/utf8"
)

// MaxLabels is the greatest number of labels of one sample. Engines use fewer
// than ten; the bound keeps the search for duplicates cheap.
const MaxLabels = 128

// Label is one label of a sample.
type Label struct{ Name, Value string }

// Sample is one sample of a page.
type Sample struct {
	Name   string
	Labels []Label // in the order of the line; no name occurs twice
	Value  float64 // NaN and infinities included
}

// Label returns the value of the label with this name, "" if there is none.
func (s *Sample) Label(name string) string {
	for i := range s.Labels {
		if s.Labels[i].Name == name {
			return s.Labels[i].Value
		}
	}
	return ""
}

var errNoName = errors.New("there is no metric name")

// Parse reads one line of the Prometheus text format or of OpenMetrics, without
// its line feed. ok is false for an empty line and a comment. Timestamps and
// exemplars are checked and dropped. Parse takes time linear in the line.
func Parse(line string) (s Sample, ok bool, err error) {
	s, rest, ok, err := Head(line)
	if ok && err == nil {
		err = checkTail(rest)
	}
	if err != nil {
		return Sample{}, false, err
	}
	return s, ok, nil
}

// Head reads a line like Parse, but only up to its value, and returns the part of
// the line after it. An error quotes nothing of the line but the metric's name: callers ask for those that they know.
func Head(line string) (s Sample, rest string, ok bool, err error) {
	c := cursor{line}
	c.blanks()
	if c.rest == "" || c.rest[0] == '#' {
		return Sample{}, "", false, nil
	}
	if c.rest[0] != '{' {
		if s.Name, err = c.name(true); err != nil {
			return Sample{}, "", false, err
		}
		if s.Name == "" {
			return Sample{}, "", false, errNoName
		}
		c.blanks()
	}
	if c.rest != "" && c.rest[0] == '{' {
		if s.Labels, err = c.labels(&s.Name); err != nil {
			return Sample{}, "", false, fmt.Errorf("%s: %w", s.Name, err)
		}
		c.blanks()
	}
	if s.Name == "" {
		return Sample{}, "", false, errNoName
	}
	if s.Value, err = number(c.word()); err != nil {
		return Sample{}, "", false, fmt.Errorf("%s: %w", s.Name, err)
	}
	return s, c.rest, true, nil
}

// checkTail checks the part after the value: [timestamp] [# {labels} value [timestamp]].
func checkTail(rest string) error {
	c := cursor{rest}
	if err := c.timestamp(); err != nil {
		return err
	}
	if c.rest == "" {
		return nil
	}
	c.rest = c.rest[1:] // the '#' of an exemplar
	c.blanks()
	if c.rest == "" || c.rest[0] != '{' {
		return errors.New("an exemplar has no labels")
	}
	if _, err := c.labels(nil); err != nil {
		return fmt.Errorf("the exemplar: %w", err)
	}
	c.blanks()
	if _, err := number(c.word()); err != nil {
		return fmt.Errorf("the exemplar: %w", err)
	}
	if err := c.timestamp(); err != nil {
		return fmt.Errorf("the exemplar: %w", err)
	}
	if c.rest != "" {
		return errors.New("something follows the exemplar")
	}
	return nil
}

// number reads a value. The formats have no hexadecimal numbers and no
// underscores, which strconv takes.
func number(word string) (float64, error) {
	if strings.ContainsAny(word, "pPxX_") {
		return 0, errors.New("a value is not a number")
	}
	v, err := strconv.ParseFloat(word, 64)
	if err != nil {
		return 0, errors.New("a value is not a number")
	}
	return v, nil
}

// cursor is the unread part of a line.
type cursor struct{ rest string }

func blank(b byte) bool { return b == ' ' || b == '\t' }

func (c *cursor) blanks() {
	i := 0
	for i < len(c.rest) && blank(c.rest[i]) {
		i++
	}
	c.rest = c.rest[i:]
}

// word reads up to the next blank.
func (c *cursor) word() string {
	i := 0
	for i < len(c.rest) && !blank(c.rest[i]) {
		i++
	}
	w := c.rest[:i]
	c.rest = c.rest[i:]
	return w
}

// timestamp skips a timestamp, if there is one, and the blanks around it. It stops
// at a '#' and at the end of the line.
func (c *cursor) timestamp() error {
	c.blanks()
	if c.rest == "" || c.rest[0] == '#' {
		return nil
	}
	word := c.word()
	if v, err := number(word); err != nil || math.IsNaN(v) || math.IsInf(v, 0) {
		return errors.New("a timestamp is not a number")
	}
	c.blanks()
	if c.rest != "" && c.rest[0] != '#' {
		return errors.New("something follows the timestamp")
	}
	return nil
}

// name reads a name, quoted or not. Only the unquoted name of a metric may have
// colons. It returns "" if no name begins here; a quoted one that is empty is an error.
func (c *cursor) name(metric bool) (string, error) {
	if c.rest == "" {
		return "", nil
	}
	if c.rest[0] == '"' {
		s, err := c.quoted()
		if err == nil && s == "" {
			err = errors.New("a quoted name is empty")
		}
		return s, err
	}
	i := 0
	for i < len(c.rest) && nameByte(c.rest[i], i == 0, metric) {
		i++
	}
	s := c.rest[:i]
	c.rest = c.rest[i:]
	return s, nil
}

func nameByte(b byte, first, metric bool) bool {
	return b >= 'a' && b <= 'z' || b >= 'A' && b <= 'Z' || b == '_' || metric && b == ':' || !first && b >= '0' && b <= '9'
}

// quoted reads a quoted string. The escapes are \\, \" and \n.
func (c *cursor) quoted() (string, error) {
	rest := c.rest[1:]
	i := strings.IndexAny(rest, `"\`)
	if i >= 0 && rest[i] == '"' {
		c.rest = rest[i+1:]
		return rest[:i], valid(rest[:i])
	}
	var b strings.Builder
	for i >= 0 {
		b.WriteString(rest[:i])
		if rest[i] == '"' {
			c.rest = rest[i+1:]
			return b.String(), valid(b.String())
		}
		if i+1 == len(rest) {
			break
		}
		switch e := rest[i+1]; e {
		case '\\', '"':
			b.WriteByte(e)
		case 'n':
			b.WriteByte('\n')
		default:
			return "", fmt.Errorf(`\%c is not an escape`, e)
		}
		rest = rest[i+2:]
		i = strings.IndexAny(rest, `"\`)
	}
	return "", errors.New("a quote is not closed")
}

func valid(s string) error {
	if !utf8.ValidString(s) {
		return errors.New("a text is not UTF-8")
	}
	return nil
}

// labels reads a set of labels, braces included. A name without a value is the
// metric's, which goes to *metric; nil, or one that is not empty: none is allowed.
func (c *cursor) labels(metric *string) ([]Label, error) {
	var ls []Label
	c.rest = c.rest[1:]
	for {
		c.blanks()
		if c.rest != "" && c.rest[0] == '}' {
			c.rest = c.rest[1:]
			return ls, nil
		}
		name, err := c.name(false)
		if err != nil {
			return nil, err
		}
		if name == "" {
			return nil, errors.New("a label has no name")
		}
		c.blanks()
		switch {
		case c.rest != "" && c.rest[0] == '=':
			c.rest = c.rest[1:]
			l := Label{Name: name}
			if l.Value, err = c.value(); err != nil {
				return nil, fmt.Errorf("a label: %w", err)
			}
			if err := fits(ls, name); err != nil {
				return nil, err
			}
			ls = append(ls, l)
		case metric == nil || *metric != "":
			return nil, errors.New("a label has no value")
		default:
			*metric = name
		}
		c.blanks()
		switch {
		case c.rest != "" && c.rest[0] == ',':
			c.rest = c.rest[1:]
		case c.rest == "" || c.rest[0] != '}':
			return nil, errors.New("the labels are not closed")
		}
	}
}

func (c *cursor) value() (string, error) {
	c.blanks()
	if c.rest == "" || c.rest[0] != '"' {
		return "", errors.New("its value is not quoted")
	}
	return c.quoted()
}

// fits reports why one more label cannot join ls.
func fits(ls []Label, name string) error {
	if name == "__name__" {
		return errors.New("the label __name__ is reserved")
	}
	if len(ls) == MaxLabels {
		return fmt.Errorf("there are more than %d labels", MaxLabels)
	}
	for i := range ls {
		if ls[i].Name == name {
			return errors.New("a label is there twice")
		}
	}
	return nil
}
