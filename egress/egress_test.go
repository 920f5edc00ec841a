package egress

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strings"
	"testing"
)

var strict = Policy{BlockLoopback: true, BlockPrivate: true}

func TestCheckURL(t *testing.T) {
	const malformed = Range("malformed")
	for _, c := range []struct {
		url  string
		want Range // by strict; "" allowed
	}{
		{"http://93.184.216.34/", ""},
		{"https://vllm-1.example:8000/metrics", ""},
		{"tcp://vllm-1:5557", ""},
		{"http://[2606:4700::1111]:80/", ""},
		{"HTTP://VLLM-1/", ""},
		{"http://1e100.net/", ""},
		{"http://10.example/", ""},

		{"http://169.254.169.254/latest/meta-data/", LinkLocal},
		{"http://169.254.169.254./", LinkLocal},
		{"http://2852039166/", LinkLocal},
		{"http://0xa9fea9fe/", LinkLocal},
		{"http://0XA9.0xFE.0xa9.0xfe/", LinkLocal},
		{"http://0251.0376.0251.0376/", LinkLocal},
		{"http://025177524776/", LinkLocal},
		{"http://169.254.43518/", LinkLocal},
		{"http://169.16689662/", LinkLocal},
		{"http://[::ffff:169.254.169.254]/", LinkLocal},
		{"http://[::ffff:a9fe:a9fe]/", LinkLocal},
		{"http://[::169.254.169.254]/", LinkLocal},
		{"http://[64:ff9b::a9fe:a9fe]/", LinkLocal},
		{"http://[2002:a9fe:a9fe::1]/", LinkLocal},
		{"http://[fe80::1%25eth0]:8000/", LinkLocal},
		{"http://[FE80::1]/", LinkLocal},
		{"http://[fd00:ec2::254]/", LinkLocal},
		{"http://[fd20:ce::254]/", LinkLocal},
		{"http://100.100.100.200/", LinkLocal},
		{"http://vllm-1@169.254.169.254/", LinkLocal},
		{"http://vllm-1:80@169.254.169.254:80/", LinkLocal},
		{"hTTp://[::FFFF:169.254.169.254]/", LinkLocal},
		{"http://[0:0:0:0:0:ffff:a9fe:a9fe]/", LinkLocal},
		{"http://[64:ff9b::169.254.169.254]/", LinkLocal},
		{"http://[64:ff9b:1::a9fe:a9fe]/", LinkLocal},       // RFC 8215 with a prefix of 96 bits
		{"http://[64:ff9b:1:a9fe:a9:fe00::]/", LinkLocal},   // of 48
		{"http://[64:ff9b:1:0:a9:fea9:fe00::]/", LinkLocal}, // of 64
		{"http://[64:ff9b:1:5:6:7:8:9]/", ""},
		{"http://[::ffff:0:a9fe:a9fe]/", LinkLocal},
		{"http://[2001:0:a9fe:a9fe::1]/", LinkLocal},          // Teredo's server
		{"http://[2001:0:101:101:0:0:5601:5601]/", LinkLocal}, // Teredo's client
		{"http://[2001:0:101:101:0:0:fefe:fefe]/", ""},
		{"http://[2001:db8::5efe:169.254.169.254]/", LinkLocal}, // ISATAP
		{"http://[2606:4700::200:5efe:a9fe:a9fe]/", LinkLocal},
		{"http://[fe80::1%25169.254.169.254]/", LinkLocal},
		{"http://[FD00:EC2:0:0:0:0:0:254]/", LinkLocal},
		{"http://[febf::1]/", LinkLocal},
		{"http://[ff02::1]/", LinkLocal},
		{"http://[ff12::1]/", LinkLocal},
		{"http://224.0.0.1/", LinkLocal},
		{"http://192.0.0.192/", LinkLocal},
		{"http://168.63.129.16/", LinkLocal},
		{"http://169.254.0.0/", LinkLocal},
		{"http://169.253.255.255/", ""},
		{"http://169.255.0.0/", ""},
		{"tcp://[::ffff:169.254.169.254]:5557", LinkLocal},
		{"tcp://2852039166:5557", LinkLocal},
		{"tcp://169.254.169.254:5557", LinkLocal},

		{"http://127.0.0.1:8000/", Loopback},
		{"http://127.1/", Loopback},
		{"http://0x7f.1/", Loopback},
		{"http://2130706433/", Loopback},
		{"http://0.0.0.0:8000/", Loopback},
		{"http://0/", Loopback},
		{"http://0x/", Loopback},
		{"http://[::]:8000/", Loopback},
		{"http://[::1]/", Loopback},
		{"http://[0:0:0:0:0:0:0:1]/", Loopback},
		{"http://[::ffff:127.0.0.1]/", Loopback},
		{"http://localhost:8000/", Loopback},
		{"http://LocalHost./", Loopback},
		{"http://a.localhost/", Loopback},
		{"http://017700000001/", Loopback},
		{"http://0177.0.0.1/", Loopback},
		{"http://0x7f000001/", Loopback},
		{"http://127.255.255.254/", Loopback},
		{"http://[2002:7f00:1::]/", Loopback},
		{"http://[64:ff9b::7f00:1]/", Loopback},
		{"http://0.1.2.3/", Loopback},
		{"tcp://0.0.0.0:5557", Loopback},

		{"http://10.0.0.1/", Private},
		{"http://012.0.0.1/", Private},
		{"http://010.0.0.1/", Private}, // 8.0.0.1 to some, 10.0.0.1 to others
		{"http://172.31.255.255/", Private},
		{"http://192.168.0.1/", Private},
		{"http://100.64.0.1/", Private},
		{"http://[fc00::1]/", Private},
		{"http://[64:ff9b::10.0.0.1]/", Private},
		{"http://[64:ff9b:1::10.0.0.1]/", Private},
		{"http://100.127.255.255/", Private},
		{"http://100.63.255.255/", ""},
		{"http://100.128.0.0/", ""},
		{"http://172.32.0.0/", ""},
		{"http://[fdff::1]/", Private},
		{"http://[fec0::1]/", Private},
		{"http://167772161/", Private},

		{"http://256.1.1.1/", malformed},
		{"http://1.2.3.4.5/", malformed},
		{"http://4294967296/", malformed},
		{"http://foo.08/", malformed},
		{"http://%31%36%39.254.169.254/", malformed},
		{"http://１６９.254.169.254/", malformed},
		{"http://vllm\\@169.254.169.254/", malformed},
		{"http://host:99999/", malformed},
		{"http://host:0/", malformed},
		{"http:///metrics", malformed},
		{"http://:8000/", malformed},
		{"vllm-1:8000", malformed},
		{"file:///etc/passwd", malformed},
		{"ipc:///tmp/kv", malformed},
		{"", malformed},
		{"http://a b/", malformed},
	} {
		got := Range("")
		if err := strict.CheckURL(c.url); err != nil {
			got = malformed
			var d *DeniedError
			if errors.As(err, &d) {
				got = d.Range
			}
		}
		if got != c.want {
			t.Errorf("%s is %q, want %q", c.url, got, c.want)
		}
		err := Policy{}.CheckURL(c.url)
		if wantErr := c.want == LinkLocal || c.want == malformed; (err != nil) != wantErr {
			t.Errorf("by the zero Policy %s: %v", c.url, err)
		}
		if err := (Policy{AllowLinkLocal: true}).CheckURL(c.url); (err != nil) != (c.want == malformed) {
			t.Errorf("where all is allowed %s: %v", c.url, err)
		}
	}
}

func TestAllowHosts(t *testing.T) {
	p := strict
	p.AllowHosts = []string{"Localhost", "10.0.0.1", "fe80::1", "metadata.internal."}
	for url, want := range map[string]bool{
		"http://localhost:8000/": true, "http://LOCALHOST./": true, "http://10.0.0.1:1/": true,
		"http://[fe80::1%25eth0]/": true, "http://metadata.internal/": true,
		"http://10.0.0.2/": false, "http://127.0.0.1/": false, "http://a.localhost/": false,
	} {
		if err := p.CheckURL(url); (err == nil) != want {
			t.Errorf("%s: %v", url, err)
		}
	}
	if err := p.Validate(); err != nil {
		t.Error(err)
	}
	p.AllowHosts = []string{"ok", "host:80", "", "*.example", "http://a", "[::1]", "::1", "[::1]:80"}
	err := p.Validate()
	for i, bad := range []bool{false, true, true, true, true, false, false, true} {
		if got := err != nil && strings.Contains(err.Error(), "AllowHosts["+string(rune('0'+i))+"]"); got != bad {
			t.Errorf("entry %d, %q: %v", i, p.AllowHosts[i], err)
		}
	}
}

func TestErrorSaysAll(t *testing.T) {
	for url, parts := range map[string][]string{
		"http://me:secret@2852039166/x": {"http://me:xxxxx@2852039166/x", "169.254.169.254", "link-local", "169.254.0.0/16",
			"AllowLinkLocal", "block_link_local = false", "allow_hosts"},
		"http://127.1/":     {"http://127.1/", "127.0.0.1", "loopback", "block_loopback"},
		"http://localhost/": {"http://localhost/", "loopback", "block_loopback"},
		"http://10.1.1.1/":  {"10.1.1.1", "private", "block_private"},
	} {
		err := strict.CheckURL(url)
		for _, part := range parts {
			if err == nil || !strings.Contains(err.Error(), part) {
				t.Errorf("%s: %q is not in %v", url, part, err)
			}
		}
		if err != nil && strings.Contains(err.Error(), "secret") {
			t.Errorf("the password is in %v", err)
		}
	}
	if err := (Policy{}).CheckURL("http://me:secret@[::1"); err == nil || strings.Contains(err.Error(), "secret") {
		t.Errorf("the password is in %v", err)
	}
}

// A name is checked by the dialled address: localhost stands for a name that
// has come to mean a denied address.
func TestDialer(t *testing.T) {
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		_,
			_ = io.WriteString(w, "ok")
	}))
	defer s.Close()
	_, port, err := net.SplitHostPort(s.Listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	get := func(p Policy, host string) error {
		tr := &http.Transport{DialContext: p.Dialer().DialContext}
		defer tr.CloseIdleConnections()
		resp, err := (&http.Client{Transport: tr}).Get("http://" + net.JoinHostPort(host, port))
		if err == nil {
			_ = resp.Body.Close()
		}
		return err
	}
	for _, c := range []struct {
		p    Policy
		host string
		want bool
	}{
		{Policy{}, "127.0.0.1", true},
		{Policy{}, "localhost", true},
		{Policy{BlockLoopback: true}, "127.0.0.1", false},
		{Policy{BlockLoopback: true}, "localhost", false},
		{Policy{BlockLoopback: true}, "2130706433", false},
		{Policy{BlockLoopback: true, AllowHosts: []string{"localhost"}}, "localhost", true},
		{Policy{BlockLoopback: true, AllowHosts: []string{"127.0.0.1"}}, "127.0.0.1", true},
	} {
		err := get(c.p, c.host)
		if (err == nil) != c.want {
			t.Errorf("%+v: %s: %v", c.p, c.host, err)
		}
		var d *DeniedError
		if err != nil && !errors.As(err, &d) {
			t.Errorf("%s: %v is no DeniedError", c.host, err)
		}
	}
	d := Policy{BlockLoopback: true}.Dialer()
	// What the name's check would have caught is caught on the socket too.
	if c, err := d.held.DialContext(context.Background(), "tcp", net.JoinHostPort("localhost", port)); err == nil {
		_ = c.Close()
		t.Error("Control let localhost through")
	}
	if _, err := d.DialContext(context.Background(), "unix", "/tmp/x"); err == nil {
		t.Error("a unix socket is no network address")
	}
	if err := d.Control("tcp", "nonsense", nil); err == nil {
		t.Error("nonsense was let through")
	}
}

// The address of a redirect is dialled like any other, so a client that follows
// them is held too, whatever the spelling.
func TestRedirect(t *testing.T) {
	to := ""
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter,
		r *http.Request) {
		http.Redirect(w, r, to, http.StatusFound)
	}))
	defer s.Close()
	tr := &http.Transport{DialContext: Policy{}.Dialer().DialContext}
	defer tr.CloseIdleConnections()
	for _, to = range []string{
		"http://169.254.169.254/latest/meta-data/", "http://2852039166/", "http://[::ffff:a9fe:a9fe]/",
		"http://[fd00:ec2::254]/",
		"http://169.254.169.254./", "http://[64:ff9b::a9fe:a9fe]/", "http://[fe80::1%25lo]/", "https://0xa9.0xfe.0xa9.0xfe/",
	} {
		resp, err := (&http.Client{Transport: tr}).Get(s.URL)
		if err == nil {
			_ = resp.Body.Close()
		}
		var d *DeniedError
		if !errors.As(err, &d) || d.Range != LinkLocal {
			t.Errorf("%s: %v", to, err)
		}
	}
}

// What a client dials by itself, as ZeroMQ's does, is asked with CheckAddr.
func TestCheckAddr(t *testing.T) {
	for s, want := range map[string]Range{
		"169.254.169.254": LinkLocal, "::ffff:169.254.169.254": LinkLocal, "fe80::1%eth0": LinkLocal,
		"64:ff9b::a9fe:a9fe": LinkLocal,
		"127.0.0.1":          Loopback, "::": Loopback, "10.1.2.3": Private, "::ffff:10.1.2.3": Private, "93.184.216.34": "",
	} {
		got := Range("")
		var d *DeniedError
		if errors.As(strict.CheckAddr(netip.MustParseAddr(s)), &d) {
			got = d.Range
		}
		if got != want {
			t.Errorf("%s is %q, want %q", s, got, want)
		}
	}
}

func FuzzCheckURL(f *testing.F) {
	for _, s := range []string{"http://169.254.169.254/", "http://0xa9.254.0251.0376/", "http://[::ffff:1.2.3.4]:80/",
		"tcp://h:1"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		if strict.CheckURL(s) == nil {
			if err := (Policy{}).CheckURL(s); err != nil {
				t.Errorf("%q passes the stricter policy only: %v", s, err)
			}
		}
	})
}
