package main

import (
	"bytes"
	"encoding/json"
	"errors"
)

// maxValues bounds the values of a list or an object of a request, each of which takes many times the bytes that it has
// in JSON.
const maxValues = 1024

var errValues = errors.New("a list or an object has more than 1024 values")

// headers are those of a request, by their names.
type headers map[string]string

// UnmarshalJSON is json.Unmarshaler's.
func (h *headers) UnmarshalJSON(b []byte) error {
	if err := few(b, 2*maxValues); err != nil {
		return err
	}
	return json.Unmarshal(b, (*map[string]string)(h))
}

// names are IDs of targets or of state.
type names []string

// UnmarshalJSON is json.Unmarshaler's.
func (n *names) UnmarshalJSON(b []byte) error {
	if err := few(b, maxValues); err != nil {
		return err
	}
	return json.Unmarshal(b, (*[]string)(n))
}

// few returns an error if the value b has more than most strings and other values in it.
func few(b []byte, most int) error {
	dec := json.NewDecoder(bytes.NewReader(b))
	for n := -2; n <= most; n++ { // the value's own delimiters come too
		if _, err := dec.Token(); err != nil {
			return nil // its end, or a mistake that Unmarshal reports
		}
	}
	return errValues
}
