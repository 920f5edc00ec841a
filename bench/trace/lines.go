package trace

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
)

// maxLine bounds one line of a trace; a prompt's text may be in it.
const maxLine = 64 << 20

// lines calls do with each line of r that is not blank. name and the line's
// number come before its error.
func lines(name string, r io.Reader, do func(line []byte) error) error {
	s := bufio.NewScanner(r)
	s.Buffer(make([]byte, 64<<10), maxLine)
	n := 0
	for s.Scan() {
		n++
		line := bytes.TrimSpace(s.Bytes())
		if len(line) == 0 {
			continue
		}
		if err := do(line); err != nil {
			return fmt.Errorf("%s:%d: %w", name, n, err)
		}
	}
	if err := s.Err(); err != nil {
		return fmt.Errorf("%s:%d: %w", name, n+1, err)
	}
	if n == 0 {
		return fmt.Errorf("%s: is empty", name)
	}
	return nil
}

// decode reads one JSON object and nothing behind it. Fields that v does not have
// are let pass.
func decode(line []byte, v any) error {
	d := json.NewDecoder(bytes.NewReader(line))
	if err := d.Decode(v); err != nil {
		if errors.Is(err, io.ErrUnexpectedEOF) {
			return errors.New("the object is cut short")
		}
		return err
	}
	if _, err := d.Token(); err != io.EOF {
		return errors.New("there is more than one object in the line")
	}
	return nil
}

// lengths checks the token counts of a request.
func lengths(in, out int) error {
	if in < 1 || in > maxTokens {
		return fmt.Errorf("a prompt of %d tokens; it must have 1 to %d", in, maxTokens)
	}
	if out < 0 || out > maxTokens {
		return fmt.Errorf("an output of %d tokens; it must have 0 to %d", out, maxTokens)
	}
	return nil
}

const maxTokens = 16 << 20
