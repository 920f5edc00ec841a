// Package httpproxy has the proxying that every HTTP gateway needs around a router.Router: it reads a request
// once, within bounds, has a target chosen for its prompt, sends it, sends it elsewhere if that fails before the
// first token, passes the reply on as it comes, and reports to the Router how it ended.
//
// A Proxy is an http.Handler, ready to serve, and an http.RoundTripper, to be the Transport of an
// httputil.ReverseProxy or an http.Client of one's own. Its targets are base URLs: of Target.Ref, a *url.URL, or
// otherwise of Target.ID.
//
// # Endings
//
// Each request that was routed ends exactly once: with the end of its reply, with the error that broke it off,
// or when the reply's Body is closed. A reply that had come as a whole has finished, even if the client
// disconnects in that moment or the end was never read. The caller of RoundTrip has to close the Body, as with
// any RoundTripper.
package httpproxy
