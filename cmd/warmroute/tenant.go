package main

import (
	"crypto/sha256"
	"encoding/hex"
	"net/http"
)

// tenant keeps the sessions of different API keys apart, without keeping a key.
func tenant(h http.Header) string {
	for _, k := range [...]string{"Authorization", "X-Api-Key", "Api-Key", "X-Goog-Api-Key"} {
		if key := h.Get(k); key != "" {
			sum := sha256.Sum256([]byte(key))
			return hex.EncodeToString(sum[:12])
		}
	}
	return ""
}
