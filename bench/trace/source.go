package trace

import (
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"
)

// Recorded returns the traces that are expected in folder dir. None of them is
// looked at before it is built.
func Recorded(dir string) []Source {
	at := func(name string) string { return filepath.Join(dir, filepath.FromSlash(name)) }
	return []Source{
		replay("mooncake-conversation", "chat of Kimi's users, 12,031 requests in 59 min (Mooncake, FAST '25)",
			at("mooncake/conversation_trace.jsonl"), []float64{1, 1.5, 2}, Mooncake),
		replay("mooncake-synthetic",
			"public multi-turn and long-document data, 3,993 requests in 17 min (Mooncake, FAST '25)",
			at("mooncake/synthetic_trace.jsonl"), []float64{1, 1.5, 2}, Mooncake),
		replay("azure-conv",
			"arrivals and lengths of chat, 19,366 requests in 58 min, nothing shared (Azure, Splitwise, ISCA '24)",
			at("azure/AzureLLMInferenceTrace_conv.csv"), []float64{2, 4, 6}, Azure),
		replay("azure-code",
			"arrivals and lengths of code completion, 8,819 requests in 57 min, nothing shared (Azure, Splitwise, ISCA '24)",
			at("azure/AzureLLMInferenceTrace_code.csv"), []float64{4, 8, 12}, Azure),
		sessions("miniswe", "20 sessions of mini-swe-agent with their text (LMCache), eight times",
			at("agent_text/lmcache_miniswe.delta.jsonl"),
			[]float64{1, 2, 3}, 8),
		sessions("magagent", "25 sessions of Magentic agents with their text (LMCache), eight times",
			at("agent_text/lmcache_magagent.delta.jsonl"),
			[]float64{4, 8, 12}, 8),
		tau("tau-airline", at("taubench/gpt-4o-airline.json"), []float64{10, 20, 30}),
	}
}

// File returns the source of a trace in a file. The beginning of the file shows its
// format.
func File(path string) (Source, error) {
	f, err := os.Open(path)
	if err != nil {
		return Source{}, err
	}
	defer f.Close()
	head := make([]byte, 4096)
	n, err := io.ReadFull(f, head)
	if err != nil && err != io.ErrUnexpectedEOF && err != io.EOF {
		return Source{}, err
	}
	line, _, _ := strings.Cut(string(head[:n]), "\n")
	name := filepath.Base(path)
	rates := []float64{1, 1.5, 2}
	switch {
	case strings.HasPrefix(line, "TIMESTAMP,"):
		return replay(name, path, path, rates, Azure), nil
	case strings.Contains(line, `"chat_id"`):
		return replay(name, path, path, rates, Bailian), nil
	case strings.Contains(line, `"hash_ids"`):
		return replay(name, path, path, rates, Mooncake), nil
	case strings.Contains(line, `"ts_us"`):
		return sessions(name, path, path, rates, 1), nil
	case strings.Contains(line, `"time"`):
		return replay(name, path, path, rates, Log), nil
	case strings.HasPrefix(strings.TrimSpace(line), "["):
		return tau(name, path, []float64{10, 20, 30}), nil
	}
	return Source{}, fmt.Errorf("%s:1: is in none of the known forms", path)
}

// load returns a function that reads a file once.
func load(path string, read func(string, io.Reader) ([]Request, error)) func() ([]Request, error) {
	return sync.OnceValues(func() ([]Request, error) {
		f, err := os.Open(path)
		if err != nil {
			return nil, err
		}
		defer f.Close()
		return read(path, f)
	})
}

// sessions is a Source of recorded sessions in closed loop.
func sessions(name, about, path string, rates []float64, copies int) Source {
	get := load(path, func(name string, r io.Reader) ([]Request, error) {
		rs, err := Delta(name, r)
		if err != nil {
			return nil, err
		}
		return Copies(rs, copies), nil
	})
	return Source{
		Name: name, Unit: "x", Rates: rates,
		About: about + "; each call half of the recorded time after the answer to the one before it (closed loop); " +
			"a seed moves the starts of sessions",
		Build: func(rate float64, seed uint64) (*Workload, error) {
			rs, err := get()
			if err != nil {
				return nil, err
			}
			rs = slices.Clone(rs)
			r := rng(seed, 301)
			for i := range rs {
				if rs[i].After == None {
					rs[i].Arrival += time.Duration(r.Int64N(int64(10 * time.Second)))
				}
			}
			scale(rs, rate)
			w := &Workload{Name: name, Requests: order(rs)}
			return w, w.Check()
		},
	}
}

// tau is a Source of tau-bench trajectories with made-up times.
func tau(name, path string, rates []float64) Source {
	get := load(path, Tau)
	return Source{
		Name: name, Unit: "req/s", Rates: rates,
		About: "200 trajectories of an airline's agent with their text (tau-bench); synthetic times: trajectories start as a " +
			"Poisson process, the next call comes 3 s after the answer in the mean (closed loop)",
		Build: func(rate float64, seed uint64) (*Workload, error) {
			rs, err := get()
			if err != nil {
				return nil, err
			}
			rs = slices.Clone(rs)
			r := rng(seed, 302)
			starts := 0
			for i := range rs {
				if rs[i].After == None {
					starts++
				}
			}
			at := poisson(r, starts, rate*float64(starts)/float64(len(rs)))
			r.Shuffle(len(at), func(i, j int) { at[i], at[j] = at[j], at[i] })
			for i := range rs {
				if rs[i].After == None {
					rs[i].Arrival, at = at[0], at[1:]
				} else {
					rs[i].Think = time.Duration(r.ExpFloat64() * float64(3*time.Second))
				}
			}
			w := &Workload{Name: name, Requests: order(rs)}
			return w, w.Check()
		},
	}
}
