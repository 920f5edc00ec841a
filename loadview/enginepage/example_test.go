package enginepage_test

import (
	"fmt"
	"strings"

	"github.com/warmroute/router/loadview/enginepage"
)

// An engine of one's own, with a page that names its load in its own way. The
// fleet's Scrape.Dialects takes such a Dialect too.
func ExampleDialect() {
	ours := enginepage.Dialect{
		Name:    "ours",
		Running: enginepage.Series{Name: "ours_requests", Labels: map[string]string{"state": "running"}},
		Waiting: []enginepage.Series{{Name: "ours_requests", Labels: map[string]string{"state": "queued"}}},
		KVUsage: []enginepage.Series{{Name: "ours_kv_ratio"}},
	}
	fmt.Println(ours.Validate())
	page := `# TYPE ours_requests gauge
ours_requests{state="running"} 3
ours_requests{state="queued"} 2
ours_kv_ratio 0.5
`
	table := enginepage.NewTable(append([]enginepage.Dialect{ours}, enginepage.Dialects()...))
	var r enginepage.Reader
	p, err := r.Read(strings.NewReader(page), table, 1<<20)
	if err != nil {
		panic(err)
	}
	s, err := p.State("")
	fmt.Println(s.Dialect, s.Running, s.Waiting, s.KVUsage, err)
	// Output:
	// <nil>
	// ours 3 2 0.5 <nil>
}

// Every engine that the library knows, and the metric that has its running
// requests.
func ExampleDialects() {
	for _, d := range enginepage.Dialects() {
		fmt.Println(d.Name, d.Running.Name)
	}
	// Output:
	// vllm vllm:num_requests_running
	// sglang sglang:num_running_reqs
	// tensorrt_llm trtllm_num_requests_running
	// triton_tensorrt_llm nv_trt_llm_request_metrics
	// tgi tgi_batch_current_size
	// llama.cpp llamacpp:requests_processing
	// nim num_requests_running
}

func ExampleNewTable() {
	table := enginepage.NewTable(enginepage.Dialects())
	var r enginepage.Reader
	p, err := r.Read(strings.NewReader("tgi_batch_current_size 4\ntgi_queue_size 1\n"), table, 1<<20)
	if err != nil {
		panic(err)
	}
	s, err := p.State("")
	fmt.Println(s.Dialect, s.Running, s.Waiting, err)
	// Output: tgi 4 1 <nil>
}
