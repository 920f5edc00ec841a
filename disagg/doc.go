// Package disagg has the prompt of a request computed by one target (prefill) and its
// reply by another (decode), where that pays.
//
// A [Splitter] works over a Router, or over two of them. The decode target is chosen
// first, because it has the conversation and so decides how much of the prompt is not
// cached. If that is enough, a target for prefill is chosen among those that fit, the
// engines' protocol hands the KV cache over, and both requests are counted: at the decode
// target in flight but not in Load.Prefill, at the other one until it has replied.
//
// The protocols are functions of the raw body too ([NIXLPrefill], [StoredPrefill],
// [WithParams], [Params], [WithBootstrap]), for programs that send by themselves. They
// splice bytes and keep everything else of a body as it is.
//
// A client must not set what engines hand over among each other: it names hosts that an
// engine connects to, or ends its process. [Check] refuses such a body, [CleanHeader] removes
// such headers; [Splitter.Do] does both.
package disagg
