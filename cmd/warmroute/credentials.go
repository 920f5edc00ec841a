package main

import (
	"net/http"
	"net/url"
	"slices"
	"strings"
)

// credentials are the headers with a client's identity by names that credential does not recognise.
var credentials = map[string]bool{
	"Cookie2":                 true,
	"Openai-Organization":     true,
	"Openai-Project":          true,
	"Cf-Access-Client-Id":     true,
	"X-Amzn-Oidc-Data":        true,
	"X-Amzn-Oidc-Identity":    true,
	"X-Ms-Client-Principal":   true,
	"X-Forwarded-User":        true,
	"X-Forwarded-Email":       true,
	"X-Amzn-Oidc-Accesstoken": true,
}

// notSecret are headers with names like those of credentials.
var notSecret = map[string]bool{
	"Idempotency-Key":         true,
	"X-Idempotency-Key":       true,
	"Sec-Websocket-Key":       true,
	"X-Rolter-Vllm-Token-Ids": true,
	"X-Warmroute-Token-Ids":   true,
}

// credential reports whether a header, by its canonical name, may have a secret of a client: an API key or a token
// under any name, a cookie, or the identity that belongs to one.
func credential(name string) bool {
	if credentials[name] {
		return true
	}
	if notSecret[name] {
		return false
	}
	words := strings.FieldsFunc(strings.ToLower(name), func(r rune) bool { return r == '-' || r == '_' })
	if len(words) == 0 {
		return false
	}
	switch last := words[len(words)-1]; {
	case strings.HasSuffix(last, "key"), strings.HasSuffix(last, "token"), strings.HasSuffix(last, "secret"):
		return true
	}
	return slices.ContainsFunc(words, func(w string) bool {
		switch w {
		case "auth", "authorization", "authentication", "bearer", "cookie", "credential", "credentials", "jwt", "passwd",
			"password", "secret", "assertion", "apikey":
			return true
		}
		return false
	})
}

// hasSecret reports whether a provider has a secret of its own among its headers.
func hasSecret(own http.Header) bool {
	for k := range own {
		if credential(k) {
			return true
		}
	}
	return false
}

// withHeader returns h with the headers of set, which replace those of the same names. If there is a secret among
// these, it is the only one: those of the client are left out. h itself is not changed.
func withHeader(h, set http.Header) http.Header {
	if len(set) == 0 {
		return h
	}
	secret := hasSecret(set)
	out := make(http.Header, len(h)+len(set))
	for k, v := range h {
		if !secret || !credential(k) {
			out[k] = v
		}
	}
	for k, v := range set {
		out[k] = v
	}
	return out
}

// withoutSecrets returns u without the parameters that have a client's key.
func withoutSecrets(u *url.URL) *url.URL {
	if u.RawQuery == "" {
		return u
	}
	var keep []string
	cut := false
	for p := range strings.SplitSeq(u.RawQuery, "&") {
		raw, _, _ := strings.Cut(p, "=")
		name, err := url.QueryUnescape(raw)
		if err != nil {
			name = raw
		}
		name = strings.ToLower(name)
		header := http.CanonicalHeaderKey(strings.ReplaceAll(name, "_", "-"))
		if name == "sig" || credential(header) {
			cut = true
			continue
		}
		keep = append(keep, p)
	}
	if !cut {
		return u
	}
	out := *u
	out.RawQuery = strings.Join(keep, "&")
	return &out
}
