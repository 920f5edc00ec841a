package main

import (
	"bytes"
	"errors"
	"io"
	"net/http"

	"github.com/warmroute/router/contentcoding"
)

// decoded returns a handler that decodes compressed bodies before next: engines do not read them, and their prompts
// decide about the replica.
func decoded(next http.Handler) http.Handler {
	d, err := contentcoding.New(contentcoding.Config{MaxBytes: maxBody})
	if err != nil {
		panic(err) // maxBody is not negative
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		coding := r.Header.Values("Content-Encoding")
		if !contentcoding.Encoded(coding) {
			r.Header.Del("Content-Encoding") // identity means none
			next.ServeHTTP(w, r)
			return
		}
		body, err := []byte(nil), contentcoding.Check(coding) // an unknown coding is refused unread
		if err == nil {
			body, err = io.ReadAll(r.Body)
		}
		if err == nil {
			body, err = d.Decode(r.Context(), coding, body)
		}
		var large *http.MaxBytesError
		switch {
		case err == nil:
			contentcoding.Remove(r.Header)
			r.Body, r.ContentLength = io.NopCloser(bytes.NewReader(body)), int64(len(body))
			next.ServeHTTP(w, r)
		case errors.Is(err, contentcoding.ErrUnsupported):
			w.Header().Set("Accept-Encoding", contentcoding.Supported())
			http.Error(w, err.Error(), http.StatusUnsupportedMediaType)
		case errors.Is(err, contentcoding.ErrTooLarge), errors.As(err, &large):
			http.Error(w, err.Error(), http.StatusRequestEntityTooLarge)
		default:
			http.Error(w, err.Error(), http.StatusBadRequest)
		}
	})
}
