package nats

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"errors"
	"math/big"
	"net"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/warmroute/router"
	"github.com/warmroute/router/share"
	"github.com/warmroute/router/share/bustest"
)

// authority issues certificates.
type authority struct {
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
	pool *x509.CertPool
}

func newAuthority() *authority {
	a := &authority{key: must(ecdsa.GenerateKey(elliptic.P256(), rand.Reader)), pool: x509.NewCertPool()}
	form := &x509.Certificate{SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "an authority"},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour), IsCA: true,
		BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign}
	a.cert = must(x509.ParseCertificate(must(x509.CreateCertificate(rand.Reader, form, form, &a.key.PublicKey, a.key))))
	a.pool.AddCert(a.cert)
	return a
}

// issue returns the settings of one that has a certificate of a, for a name or an address, and trusts a.
func (a *authority) issue(name string, ips ...net.IP) *tls.Config {
	key := must(ecdsa.GenerateKey(elliptic.P256(), rand.Reader))
	form := &x509.Certificate{SerialNumber: big.NewInt(time.Now().UnixNano()), Subject: pkix.Name{CommonName: "a gateway"},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour), IPAddresses: ips,
		KeyUsage:    x509.KeyUsageDigitalSignature,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth}}
	if name != "" {
		form.DNSNames = []string{name}
	}
	der := must(x509.CreateCertificate(rand.Reader, form, a.cert, &key.PublicKey, a.key))
	return &tls.Config{Certificates: []tls.Certificate{{Certificate: [][]byte{der}, PrivateKey: key}}, RootCAs: a.pool}
}

// TestClusterTLS holds servers within gateways that speak TLS to each other to the promises of share.Bus.
func TestClusterTLS(t *testing.T) {
	a := newAuthority()
	bustest.Run(t, bustest.Config{New: func(t testing.TB, n int) []share.Bus {
		var peers []string
		for range n {
			peers = append(peers, freeAddr(t.(*testing.T)))
		}
		var all []share.Bus
		var servers []*Server
		for _, p := range peers {
			s := must(NewServer(ServerConfig{Cluster: p, Peers: peers, TLS: a.issue("", net.IPv4(127, 0, 0, 1))}))
			t.Cleanup(s.Close)
			servers = append(servers, s)
			all = append(all, bus(t.(*testing.T), Config{Server: s}))
		}
		for _, s := range servers {
			until(t.(*testing.T), "the cluster is whole", func() bool { return s.Peers() == n-1 })
		}
		return all
	}})
}

// TestClusterTLSName: servers behind one name are known by it, whatever address is dialed, also after the name has
// other addresses.
func TestClusterTLSName(t *testing.T) {
	a := newAuthority()
	_, port := must2(net.SplitHostPort(freeAddr(t)))
	var both atomic.Bool
	resolve := func(_ context.Context, host string) ([]string, error) {
		switch {
		case host != "gateways.test":
			return nil, errors.New("no such name")
		case both.Load():
			return []string{"127.0.0.1", "127.0.0.2"}, nil
		}
		return []string{"127.0.0.1"}, nil
	}
	ctx, stop := context.WithCancel(t.Context())
	var run sync.WaitGroup
	var servers []*Server
	for _, ip := range []string{"127.0.0.1", "127.0.0.2"} {
		s := must(NewServer(ServerConfig{Cluster: net.JoinHostPort(ip, port), Peers: []string{"gateways.test:" + port},
			TLS: a.issue("gateways.test"), Lookup: 10 * time.Millisecond, resolve: resolve}))
		t.Cleanup(s.Close)
		run.Go(func() { _ = s.Run(ctx) })
		servers = append(servers, s)
	}
	t.Cleanup(func() { stop(); run.Wait() })
	for _, s := range servers {
		until(t, "the two are connected", func() bool { return s.Peers() == 1 })
	}
	both.Store(true) // the routes are loaded again
	first, second := bus(t, Config{Server: servers[0]}), bus(t, Config{Server: servers[1]})
	got := make(chan bool, 1)
	stopHearing, err := second.Subscribe("x", func([]byte) {
		select {
		case got <- true:
		default:
		}
	})
	if err != nil {
		t.Fatal(err)
	}
	defer stopHearing()
	until(t, "frames pass", func() bool {
		_ = first.Publish("x", nil)
		select {
		case <-got:
			return true
		default:
			return false
		}
	})
}

// TestClusterTLSNames: of peers with names of their own each is known by its own.
func TestClusterTLSNames(t *testing.T) {
	a := newAuthority()
	named := freeAddr(t)
	_, port := must2(net.SplitHostPort(named))
	b := must(NewServer(ServerConfig{Cluster: named, TLS: a.issue("localhost")}))
	t.Cleanup(b.Close)
	s := must(NewServer(ServerConfig{Cluster: freeAddr(t), Peers: []string{"localhost:" + port, freeAddr(t)},
		TLS: a.issue("", net.IPv4(127, 0, 0, 1))}))
	t.Cleanup(s.Close)
	until(t, "the two are connected", func() bool { return s.Peers() == 1 && b.Peers() == 1 })
}

// TestClusterTLSOthers: who has no certificate of the fleet's authority, or does not encrypt, is no peer, whichever
// side dials.
func TestClusterTLSOthers(t *testing.T) {
	ours, theirs := newAuthority(), newAuthority()
	loopback := net.IPv4(127, 0, 0, 1)
	untrusted := theirs.issue("", loopback)
	untrusted.RootCAs = ours.pool // it would take us
	elsewhere := ours.issue("another.test")
	for name, other := range map[string]*tls.Config{
		"no encryption": nil, "another authority": untrusted, "another name": elsewhere,
	} {
		t.Run(name, func(t *testing.T) {
			for _, dials := range []string{"ours", "the other"} {
				a, b := freeAddr(t), freeAddr(t)
				c := ServerConfig{Cluster: a, TLS: ours.issue("", loopback)}
				x := ServerConfig{Cluster: b, TLS: other}
				if dials == "ours" {
					c.Peers = []string{b}
				} else {
					x.Peers = []string{a}
				}
				if name == "another name" && dials != "ours" {
					continue // who is dialed sees no name: the authority vouches for it
				}
				s := must(NewServer(c))
				u := must(NewServer(x))
				// A peer comes after it, so the other one had its time.
				good := must(NewServer(ServerConfig{Cluster: freeAddr(t), Peers: []string{a}, TLS: ours.issue("", loopback)}))
				until(t, "a peer is connected", func() bool { return good.Peers() == 1 && s.Peers() >= 1 })
				if n := s.Peers(); n != 1 || u.Peers() != 0 {
					t.Errorf("%s dials: the other has %d peers, and ours %d of 1", dials, u.Peers(), n)
				}
				for _, server := range []*Server{s, u, good} {
					server.Close()
				}
			}
		})
	}
}

func TestTLSConfig(t *testing.T) {
	var bad *router.ConfigError
	if _, err := NewServer(ServerConfig{TLS: newAuthority().issue("x")}); !errors.As(err, &bad) || bad.Field != "TLS" {
		t.Errorf("TLS without a cluster: %v", err)
	}
	_, err := NewServer(ServerConfig{Cluster: freeAddr(t), TLS: &tls.Config{}})
	if !errors.As(err, &bad) || bad.Field != "TLS" {
		t.Errorf("TLS without a certificate: %v", err)
	}
	c := &tls.Config{}
	for _, x := range []struct {
		peers []string
		name  string
	}{
		{nil, ""}, {[]string{"a.test:1"}, "a.test"}, {[]string{"a.test:1", "a.test:2"}, "a.test"},
		{[]string{"a.test:1", "b.test:1"}, ""}, {[]string{"10.0.0.1:1"}, ""},
	} {
		if got := mutual(c, x.peers); got.ServerName != x.name || got.ClientAuth != tls.RequireAndVerifyClientCert {
			t.Errorf("%q: name %q, want %q; %v", x.peers, got.ServerName, x.name, got.ClientAuth)
		}
	}
	if c.ServerName != "" || c.ClientAuth != tls.NoClientCert {
		t.Error("the caller's settings were changed")
	}
}
