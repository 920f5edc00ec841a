package main

import (
	"net"
	"os"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/warmroute/router/internal/workload"
)

// TestStopEndsTheGroup stops a process with a child that would outlive it, and
// ignores being asked.
func TestStopEndsTheGroup(t *testing.T) {
	home := t.TempDir()
	t.Setenv("SETTING_OF_ANOTHER", "1")
	p, err := startProcess([]string{"/bin/sh", "-c", `trap "" TERM; sleep 300 & echo "$! $SETTING_OF_ANOTHER"; exit 0`},
		nil, home)
	if err != nil {
		t.Fatal(err)
	}
	<-p.exited
	said := strings.Fields(p.said.String())
	if len(said) != 1 {
		p.stop()
		t.Fatalf("said %q: the environment is not for it", said)
	}
	pid, err := strconv.Atoi(said[0])
	if err != nil {
		t.Fatal(err)
	}
	if u, err := p.usage(); err != nil || u.rss < 1<<10 || u.cpu < 0 {
		t.Errorf("usage of what is left of the group: %+v, %v", u, err)
	}
	p.stop()
	for end := time.Now().Add(10 * time.Second); ; {
		b, err := os.ReadFile("/proc/" + said[0] + "/stat")
		if err != nil || strings.Contains(string(b), ") Z ") {
			break
		}
		if time.Now().After(end) {
			syscall.Kill(pid, syscall.SIGKILL)
			t.Fatal("the child lives on")
		}
		time.Sleep(time.Millisecond)
	}
	if u, err := p.usage(); err == nil && u.rss > 0 {
		t.Errorf("usage of nobody: %+v", u)
	}
}

// TestClientsShowDelayedAcknowledgement is a server that writes a reply in two
// parts, the second of which waits for the first to be acknowledged.
func TestClientsShowDelayedAcknowledgement(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	w := workload.Chat(workload.ChatConfig{Conversations: 1, Systems: 1, SystemBytes: 50})
	body := w.AppendBody(nil, w.Requests[0], true)
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			c.(*net.TCPConn).SetNoDelay(false)
			go func() {
				defer c.Close()
				buf := make([]byte, 64<<10)
				for got := ""; ; {
					n, err := c.Read(buf)
					if err != nil {
						return
					}
					if got += string(buf[:n]); !strings.HasSuffix(got, string(body)) {
						continue
					}
					got = ""
					c.Write([]byte("HTTP/1.1 200 OK\r\nContent-Length: 14\r\n\r\n"))
					c.Write([]byte("data: [DONE]\n\n"))
				}
			}()
		}
	}()
	middle := func(quick bool) time.Duration {
		c := newClient("http://"+l.Addr().String(), quick)
		defer c.close()
		var took []time.Duration
		for i := range 25 {
			r, err := c.send(t.Context(), body)
			if err != nil {
				t.Fatal(err)
			}
			if i >= 10 { // a new connection is acknowledged at once for a while
				took = append(took, r.took)
			}
		}
		slices.Sort(took)
		return took[len(took)/2]
	}
	ordinary, quick := middle(false), middle(true)
	if ordinary < 30*time.Millisecond {
		t.Errorf("an ordinary client has its reply after %v: delayed acknowledgement does not show", ordinary)
	}
	if quick > ordinary/2 {
		t.Errorf("a client that acknowledges at once has its reply after %v, an ordinary one after %v", quick, ordinary)
	}
}

func TestUsageNow(t *testing.T) {
	before := usageNow()
	for before.ours == usageNow().ours { // until this process has used something
	}
	if after := usageNow(); after.ours <= before.ours || after.busy < before.busy {
		t.Errorf("%+v after %+v", after, before)
	}
	if s := usageNow().since(before); !strings.Contains(s, "load averages") || strings.Contains(s, "?") {
		t.Errorf("%q", s)
	}
}
