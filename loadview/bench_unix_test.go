//go:build unix

package loadview

import (
	"bufio"
	"fmt"
	"net"
	"net/http"
	"syscall"
	"testing"
	"time"
)

// BenchmarkScrape is a scrape of a real page over a socket, with the CPU time of
// the server, which does little else than write. At 500 members and 5 s there are
// 100 in a second.
func BenchmarkScrape(b *testing.B) {
	page := recorded(b, "vllm_live/v0.32.0/metrics_load.txt")
	reply := []byte(fmt.Sprintf("HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nContent-Length: %d\r\n\r\n%s", len(page),
		page))
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		b.Fatal(err)
	}
	defer func() { _ = l.Close() }()
	go func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			go func() {
				defer func() { _ = conn.Close() }()
				for r := bufio.NewReader(conn); ; {
					line, err := r.ReadSlice('\n')
					if err != nil {
						return
					}
					if len(line) > 2 {
						continue // the request ends with an empty line
					}
					if _, err := conn.Write(reply); err != nil {
						return
					}
				}
			}()
		}
	}()
	const members = 500
	v := newView(b, Config{}, 0)
	var ms []Member
	for i := range members {
		ms = append(ms, Member{ID: fmt.Sprint(i), Metrics: "http://" + l.Addr().String() + "/metrics"})
	}
	if err := v.Set(ms); err != nil {
		b.Fatal(err)
	}
	c := newClient(v.pool, v.cfg.Load())
	c.http.Transport.(*http.Transport).MaxIdleConnsPerHost = members // here they are one host
	defer c.http.CloseIdleConnections()
	i := 0
	before := cpuTime(b)
	b.ReportAllocs()
	for b.Loop() {
		c.scrape(b.Context(), []*source{v.members[i%members].source})
		i++
	}
	cpu := cpuTime(b) - before
	if s := v.Snapshot()[0]; !s.QueuedKnown || s.Target.Load.Queued != 24 {
		b.Fatalf("%+v", s)
	}
	each := float64(cpu) / float64(i)
	b.ReportMetric(each/1e3, "us-cpu/scrape")
	b.ReportMetric(100*each*members/float64(DefaultScrapeInterval), "%core-at-500")
}

// cpuTime is what the process has used, in user and system.
func cpuTime(b *testing.B) time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		b.Skip(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
