package ports

import (
	"net"
	"testing"
)

// TestListen: a port of our own range for any, the named one otherwise.
func TestListen(t *testing.T) {
	l, err := Listen("127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	if p := l.Addr().(*net.TCPAddr).Port; p < low || p >= high {
		t.Errorf("port %d", p)
	}
	if again, err := Listen(l.Addr().String()); err == nil {
		again.Close()
		t.Error("a named port that is in use was replaced")
	}
	if l, err := Listen("no address"); err == nil {
		l.Close()
		t.Error("listens on no address")
	}
	addr, err := Free()
	if err != nil {
		t.Fatal(err)
	}
	free, err := Listen(addr)
	if err != nil {
		t.Fatal(err)
	}
	free.Close()
}
