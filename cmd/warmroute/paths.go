package main

import (
	"net/http"
	"net/url"
	"slices"
	"strings"

	"github.com/warmroute/router/prompt"
)

// apiPaths are the paths of engines that are open to clients, in addition to /v1/ and the paths of the APIs that
// package prompt knows. They serve requests and change nothing at an engine.
var apiPaths = []string{
	"/generate", "/inference/v1/generate", "/completion", "/completions", "/chat/completions", "/infill",
	"/embedding", "/embeddings", "/embed", "/v2/embed", "/rerank", "/reranking", "/v2/rerank", "/score", "/classify",
	"/pooling", "/encode", "/invocations",
	"/tokenize", "/detokenize", "/apply-template", "/parse_function_call", "/separate_reasoning",
	"/api/chat", "/api/generate", "/api/embed", "/api/embeddings", "/api/tags", "/api/show", "/api/version", // Ollama's
	"/", // TGI's
	"/version",
}

// closedV1 are the paths below /v1/ that change an engine: vLLM loads and unloads adapters there, from any place that a
// client names.
var closedV1 = []string{"/v1/load_lora_adapter", "/v1/unload_lora_adapter"}

// mayReach reports whether a client may reach the path of u at an engine: it is a path of an API, or fits one of
// patterns, which are paths, or beginnings of paths with a * at the end.
func mayReach(u *url.URL, patterns []string) bool {
	path := clean(u.Path)
	if slices.ContainsFunc(patterns, func(p string) bool {
		if prefix, ok := strings.CutSuffix(p, "*"); ok {
			return strings.HasPrefix(path, prefix)
		}
		return path == p
	}) {
		return true
	}
	switch {
	case slices.Contains(closedV1, path):
		return false
	case strings.HasPrefix(path, "/v1/"), slices.Contains(apiPaths, path):
		return true
	}
	return prompt.APIOf(path) != ""
}

// clean returns path as servers understand it: with single slashes, and none at its end.
func clean(path string) string {
	for strings.Contains(path, "//") {
		path = strings.ReplaceAll(path, "//", "/")
	}
	if len(path) > 1 {
		path = strings.TrimSuffix(path, "/")
	}
	return path
}

// refusePath answers a request for a path that is not open.
func refusePath(w http.ResponseWriter) {
	refuseWith(w, http.StatusNotFound, "NotFoundError", "", "The path does not exist here.")
}

// forAny reports whether a request that names no model may be answered by the engine of any route: it is not one for a
// reply of a model.
func forAny(r *http.Request) bool {
	return r.Method != http.MethodPost || prompt.APIOf(r.URL.Path) == ""
}
