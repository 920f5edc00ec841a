package disagg

import (
	"bytes"
	"encoding/json"
	"net/http"
	"reflect"
	"strconv"
	"strings"
	"testing"
)

// naive does what splice does by way of a map.
func naive(body []byte, set []member) (map[string]any, error) {
	var m map[string]any
	if err := json.Unmarshal(body, &m); err != nil {
		return nil, err
	}
	for _, s := range set {
		delete(m, s.name)
		if s.value != nil {
			var v any
			if err := json.Unmarshal(s.value, &v); err != nil {
				return nil, err
			}
			m[s.name] = v
		}
	}
	return m, nil
}

func FuzzSplice(f *testing.F) {
	for _, s := range []string{
		`{}`, ` { } `, `{"a":1}`, `{"stream":true}`, `{"stream":true,"a":[1,{"stream":2}],"stream":3 , "b":"}"}`,
		`{"a":1,"m\u0061x_tokens":5}`, `{"a":1,}`, `{"a":1}x`, `[1]`, `{"stream"`, `{"a" : "\\\"" , "min_tokens" : 3}`,
		"\xef\xbb\xbf{\"a\":1}", `{"":0,"stream_options":{"x":[]}}`,
	} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, body []byte) {
		set := append(append([]member(nil), nixl...), member{"a", []byte(`{"x":[1,"y"]}`)})
		was := bytes.Clone(body)
		got, err := splice(nil, body, set)
		if !bytes.Equal(was, body) {
			t.Fatal("the body was changed")
		}
		want, bad := naive(body, set)
		if bad != nil || want == nil {
			return // engines refuse it, whatever becomes of it
		}
		if err != nil {
			t.Fatalf("%q: %v", body, err)
		}
		var m map[string]any
		if err := json.Unmarshal(got, &m); err != nil {
			t.Fatalf("%q became %q: %v", body, got, err)
		}
		if !reflect.DeepEqual(m, want) {
			t.Fatalf("%q became %q, not %v", body, got, want)
		}
	})
}

// TestVerbatim: what is not replaced stays byte for byte.
func TestVerbatim(t *testing.T) {
	const b = `{ "model" : "m" , "x":1.50e+01,"stream":true,"y":"\u00e9", "stream_options":{"include_usage":true}}`
	got, err := StoredPrefill([]byte("#"), []byte(b))
	const want = `#{"model" : "m" , "x":1.50e+01,"y":"\u00e9","max_tokens":1,"max_completion_tokens":1,"stream":false}`
	if err != nil || string(got) != want {
		t.Errorf("%s, %v", got, err)
	}
}

func TestParams(t *testing.T) {
	for reply, want := range map[string]string{
		`{"id":"x","kv_transfer_params":{"a": [1, 2],"new":null}}`: `{"a": [1, 2],"new":null}`,
		`{"kv_transfer_params":null}`:                              "",
		`{"id":"x"}`:                                               "",
		`{"kv_transfer_params":{"a":[1,2]}`:                        "",
		`data: {"kv_transfer_params":{}}`:                          "",
		``:                                                         "",
	} {
		if got := Params([]byte(reply)); string(got) != want {
			t.Errorf("%s: %s", reply, got)
		}
	}
}

func TestSplits(t *testing.T) {
	for body, want := range map[string]bool{
		`{"messages":[]}`: true, `{"n":1}`: true, `{"n":2}`: false, `{"prompt":[1,2]}`: true, `{"prompt":["a","b"]}`: false,
		`{"prompt":[[1],[2]]}`: false, `{"best_of":3}`: false, `{"echo":true}`: false, `{"prompt_logprobs":0}`: false,
		`{"n":null,"echo":false}`: true,
	} {
		if splits([]byte(body)) != want {
			t.Errorf("%s: %v", body, !want)
		}
	}
}

func TestCheck(t *testing.T) {
	for _, b := range []string{
		`{"kv_transfer_params":{}}`, `{"do_remote_prefill":true}`, `{"bootstrap_room":1}`, `{"vllm_xargs":{"kv_transfer_params":1}}`,
	} {
		if Check([]byte(b)) == nil {
			t.Errorf("%s passes", b)
		}
	}
	if err := Check([]byte(`{"messages":[{"content":"kv_transfer_params"}],"kv_transfer_params":null}`)); err != nil {
		t.Error(err)
	}
	h := http.Header{"x-prefiller-host-port": {"a:1"}, HeaderSource: {"b:1"}, "A": {"c"}}
	if CleanHeader(h); len(h) != 1 {
		t.Errorf("%v", h)
	}
}

// FuzzDrivers: the functions for a prefill engine's body, its reply and the decode engine's body agree with a map.
func FuzzDrivers(f *testing.F) {
	f.Add([]byte(`{"model":"m","prompt":"x","max_tokens":5,"stream":true}`), []byte(`{"remote_host":"h","new":[1,null]}`), int64(7))
	f.Add([]byte(` {"bootstrap_room" : 1, "kv_transf\u0065r_params":{"a":"}"} } `), []byte(`{ }`), int64(1<<62))
	f.Add([]byte(`{}`), []byte(`{"a":"\"kv_transfer_params\":{}"}`), int64(0))
	f.Fuzz(func(t *testing.T, body, params []byte, room int64) {
		var p map[string]any
		if json.Unmarshal(params, &p) != nil || p == nil {
			_ = Params(append(append([]byte(`{"kv_transfer_params":`), params...), '}'))
			return
		}
		inner := bytes.Trim(params, " \t\r\n")
		reply := append(append([]byte(`{"id":"kv_transfer_params","kv_transfer_params": `), inner...), `,"x":1}`...)
		if got := Params(reply); !bytes.Equal(got, inner) {
			t.Fatalf("%q of %q", got, reply)
		}
		for name, x := range map[string]struct {
			make func(dst, body []byte) ([]byte, error)
			set  []member
		}{
			"NIXLPrefill":   {NIXLPrefill, nixl},
			"StoredPrefill": {StoredPrefill, prefillOnly},
			"WithParams": {func(dst, body []byte) ([]byte, error) { return WithParams(dst, body, inner) },
				[]member{{"kv_transfer_params", inner}}},
			"WithBootstrap": {func(dst, body []byte) ([]byte, error) { return WithBootstrap(dst, body, "a\"b", 1, room) },
				[]member{{"bootstrap_host", []byte(`"a\"b"`)}, {"bootstrap_port", one},
					{"bootstrap_room", strconv.AppendInt(nil, room, 10)}}},
		} {
			got, err := x.make([]byte("#"), body)
			if len(got) == 0 || got[0] != '#' {
				t.Fatalf("%s loses what was there: %q", name, got)
			}
			want, bad := naive(body, x.set)
			if bad != nil || want == nil {
				continue
			}
			var m map[string]any
			if err != nil || json.Unmarshal(got[1:], &m) != nil || !reflect.DeepEqual(m, want) {
				t.Fatalf("%s: %q became %q, %v", name, body, got, err)
			}
			if Check(body) != nil {
				continue
			}
			if name == "WithParams" && !bytes.HasSuffix(got, append(inner, '}')) {
				t.Fatalf("the parameters are not verbatim: %q", got)
			}
		}
	})
}

// BenchmarkBodies makes both bodies of a 14 KB chat, which is full of quotes. Append copies it, for comparison within
// a run.
func BenchmarkBodies(b *testing.B) {
	body := []byte(`{"model":"m","messages":[{"role":"user","content":"` + strings.Repeat("Hello, \\\"you\\\" there. ", 640) +
		`"}],"stream":true,"stream_options":{"include_usage":true},"max_tokens":256}`)
	params := []byte(`{"do_remote_prefill":true,"remote_block_ids":[[1,2,3]],"remote_engine_id":"e","remote_host":"h","remote_port":1}`)
	buf := make([]byte, 0, len(body)+512)
	for name, f := range map[string]func() ([]byte, error){
		"NIXLPrefill":   func() ([]byte, error) { return NIXLPrefill(buf, body) },
		"StoredPrefill": func() ([]byte, error) { return StoredPrefill(buf, body) },
		"WithParams":    func() ([]byte, error) { return WithParams(buf, body, params) },
		"WithBootstrap": func() ([]byte, error) { return WithBootstrap(buf, body, "10.0.0.1", 8998, 1<<62) },
		"Check":         func() ([]byte, error) { return nil, Check(body) },
		"Append":        func() ([]byte, error) { return append(buf, body...), nil },
	} {
		b.Run(name, func(b *testing.B) {
			b.SetBytes(int64(len(body)))
			b.ReportAllocs()
			for b.Loop() {
				if _, err := f(); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
