// Package vllmtest is a vLLM-like replica in process, started as
// net/http/httptest starts a server: for tests, demos and load generators.
//
// A [Server] speaks vLLM's HTTP API on a loopback socket and has the parts that matter to a
// router: a paged KV cache with hits that are reported in the replies' usage, and a
// scheduler that makes a miss cost time and a busy replica slow. It computes no model: the
// reply is made of words of three letters, and the same prompt always gets the same reply.
//
// # API
//
// /v1/chat/completions, /v1/completions and /v1/messages, each as JSON and as
// server-sent events; with return_token_ids, as vLLM has it, the first two return
// the ids of the prompt and of the reply. Further, /tokenize, /v1/models, /health
// and /metrics (the names and labels of vLLM 0.32, or of another engine:
// [Config.Dialect]). Sampling parameters, stop strings, logprobs and n > 1 are not
// simulated: n > 1 is refused, the others are ignored.
//
// # Tokens
//
// A token is at most 4 bytes of text, and only a newline begins a token before
// the one before it is full, so text costs about 4 bytes a token. Different
// pieces have different ids. A turn is opened by a token that text cannot contain
// and closed by another, so a conversation that grows extends its tokens. A reply
// that is sent back as the assistant's turn of the next request, or after the
// prompt in a next completion, becomes the tokens that were generated, so it is
// found in the cache. (Real engines miss that now and then: generated ids need
// not be the ones that their text is split into.)
//
// # Cache
//
// As vLLM's block pool: blocks of 16 tokens with a reference count; a full block
// is known by its tokens and all before it, under one LoRA adapter and one
// cache_salt; it is shared as soon as it is scheduled; blocks that no request uses
// stay cached until they are handed out again, longest free first, a request's
// last block before its first, and before all of them the empty ones (as
// vLLM since 0.25). A request reuses whole blocks and at most its length less one
// token, so a prompt that is wholly cached computes its last block again. After a
// request of P prompt and O output tokens, (P+O-1)/16 blocks are resident: the
// last token was never computed. vLLM keeps one block of the stated number for
// itself; here all can be used.
//
// # Data-parallel ranks
//
// With [Config.Ranks] several engines are behind the one address, each with its own
// cache, its own scheduler and, by [Config.Events], its own event stream on the next
// port. The header X-data-parallel-rank chooses one; if it is absent or is no
// number, the one with the least of 4 * waiting + running takes the request (which
// vLLM reckons from figures up to 100 ms old); a number without a rank is a 400.
//
// # Time
//
// As vLLM's scheduler (V1): every step computes one token for each sequence that
// decodes and prefills others with the rest of the step's token budget, in
// the order of arrival; if blocks run out, the sequence that came last is
// preempted and computed again. A step takes
//
//	14 ms + 46 us * prefill tokens
//	      + 0.8 ns * sum over prefill chunks of (tokens * mean context of one)
//	      + 56 ns * sum over decoding sequences of context
//
// with at most 8,192 tokens and 256 sequences in a step, and a cache of 18,752
// blocks of 16 (300,032 tokens): the figures that llm-d published for a 70B model
// on two H100 (586 blocks of 512 there). The context of a token are the tokens that
// it attends to, itself not counted for prefill. So 4,000 tokens of a miss cost 0.2 s
// of an idle replica, and as much for every request that decodes there.
// [Config.TimeScale] shortens all of it.
//
// Not modelled: tokenizing, the network, CUDA graphs, offload tiers, speculative
// decoding, sliding windows.
package vllmtest
