package main

import (
	"net"
	"net/http"
	"net/textproto"
	"slices"
	"strconv"
	"strings"

	"github.com/warmroute/router"
	"github.com/warmroute/router/config/file"
)

// Response headers that the gateway adds.
const (
	headerTarget   = "X-Warmroute-Target"   // the target's ID
	headerReason   = "X-Warmroute-Reason"   // why it was chosen, as router.Reason
	headerCached   = "X-Warmroute-Cached"   // share of the prompt believed cached there, 0 to 1
	headerAttempts = "X-Warmroute-Attempts" // how many targets the request was sent to
	// Tokens believed cached there; only if the prompt's tokens are known.
	headerCachedTokens = "X-Warmroute-Cached-Tokens"
)

// hop has the headers of one connection (RFC 9110, section 7.6.1), which are not
// passed on, by canonical name. Expect is among them because the
// gateway has read the body, and answered the expectation, before it sends.
var hop = map[string]bool{
	"Connection":          true,
	"Expect":              true,
	"Keep-Alive":          true,
	"Proxy-Authenticate":  true,
	"Proxy-Authorization": true,
	"Proxy-Connection":    true,
	"Te":                  true,
	"Trailer":             true,
	"Transfer-Encoding":   true,
	"Upgrade":             true,
}

// copyHeaders adds src to dst, which then shares its slices, but for those of
// this connection.
func copyHeaders(dst, src http.Header) {
	var named []string // by Connection
	for _, line := range src["Connection"] {
		for token := range strings.SplitSeq(line, ",") {
			named = append(named, textproto.CanonicalMIMEHeaderKey(textproto.TrimString(token)))
		}
	}
	for k, v := range src {
		if !hop[k] && !(named != nil && slices.Contains(named, k)) {
			dst[k] = v
		}
	}
}

// upstreamHeader returns the headers that are sent to a target for r.
func upstreamHeader(r *http.Request) http.Header {
	h := make(http.Header, len(r.Header)+4)
	copyHeaders(h, r.Header)
	h.Del(file.RankHeader) // the gateway chooses the rank
	if _, ok := h["User-Agent"]; !ok {
		h["User-Agent"] = nil // keeps the transport from adding its own
	}
	if ip, _, err := net.SplitHostPort(r.RemoteAddr); err == nil {
		if before := h["X-Forwarded-For"]; len(before) > 0 {
			ip = strings.Join(before, ", ") + ", " + ip
		}
		h["X-Forwarded-For"] = []string{ip}
	}
	if _, ok := h["X-Forwarded-Host"]; !ok {
		h["X-Forwarded-Host"] = []string{r.Host}
	}
	if _, ok := h["X-Forwarded-Proto"]; !ok {
		proto := "http"
		if r.TLS != nil {
			proto = "https"
		}
		h["X-Forwarded-Proto"] = []string{proto}
	}
	return h
}

// tellChoice adds the headers that say which target answers and why. If silent, it
// removes all of them, also a target's own.
func tellChoice(h http.Header, l *router.Lease, silent bool) {
	if silent {
		for _, k := range [...]string{headerTarget, headerReason, headerCached, headerAttempts, headerCachedTokens} {
			delete(h, k)
		}
		return
	}
	d := l.Decision()
	cached := "0"
	if d.Length > 0 {
		cached = strconv.FormatFloat(float64(d.Cached)/float64(d.Length), 'f', 3, 64)
	}
	v := [...]string{d.Target.ID, string(d.Reason), cached, strconv.Itoa(l.Attempt())}
	for i, k := range [...]string{headerTarget, headerReason, headerCached, headerAttempts} {
		h[k] = v[i : i+1 : i+1]
	}
	delete(h, headerCachedTokens) // a target's own says nothing about this choice
	if d.Unit == router.Tokens {
		h.Set(headerCachedTokens, strconv.Itoa(d.Cached))
	}
}

// wantsWebSocket reports whether r asks to change to the WebSocket protocol.
func wantsWebSocket(r *http.Request) bool {
	for _, v := range r.Header["Upgrade"] {
		for token := range strings.SplitSeq(v, ",") {
			if strings.EqualFold(textproto.TrimString(token), "websocket") {
				return true
			}
		}
	}
	return false
}
