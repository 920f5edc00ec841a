package tlsfiles

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// authority signs certificates.
type authority struct {
	t    *testing.T
	key  *ecdsa.PrivateKey
	cert *x509.Certificate
	n    int64
}

func newAuthority(t *testing.T) *authority {
	a := &authority{t: t, n: 1}
	a.key, a.cert = a.make("authority", nil)
	return a
}

func (a *authority) make(name string, by *authority) (*ecdsa.PrivateKey, *x509.Certificate) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		a.t.Fatal(err)
	}
	a.n++
	c := &x509.Certificate{
		SerialNumber: big.NewInt(a.n), Subject: pkix.Name{CommonName: name}, NotBefore: time.Now().Add(-time.Hour),
		NotAfter: time.Now().Add(time.Hour), IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, IsCA: by == nil,
		BasicConstraintsValid: true, KeyUsage: x509.KeyUsageDigitalSignature | x509.KeyUsageCertSign,
	}
	parent, signer := c, key
	if by != nil {
		parent, signer = by.cert, by.key
	}
	der, err := x509.CreateCertificate(rand.Reader, c, parent, key.Public(), signer)
	if err != nil {
		a.t.Fatal(err)
	}
	made, err := x509.ParseCertificate(der)
	if err != nil {
		a.t.Fatal(err)
	}
	return key, made
}

// write writes a certificate and its key, and returns their files.
func (a *authority) write(dir, name string) (cert, key string) {
	k, c := a.make(name, a)
	der, err := x509.MarshalPKCS8PrivateKey(k)
	if err != nil {
		a.t.Fatal(err)
	}
	return a.file(dir, "cert.pem", "CERTIFICATE", c.Raw), a.file(dir, "key.pem", "PRIVATE KEY", der)
}

func (a *authority) file(dir, name, kind string, der []byte) string {
	path := filepath.Join(dir, name)
	if err := os.WriteFile(path, pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der}), 0o600); err != nil {
		a.t.Fatal(err)
	}
	return path
}

// names shakes hands, and returns the name that each side showed to the other.
func names(t *testing.T, client, server *tls.Config) (ofServer, ofClient string, err error) {
	t.Helper()
	l, err := tls.Listen("tcp", "127.0.0.1:0", server)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	type shown struct {
		name string
		err  error
	}
	done := make(chan shown, 1)
	go func() {
		c, err := l.Accept()
		if err != nil {
			done <- shown{err: err}
			return
		}
		defer c.Close()
		s, ok := c.(*tls.Conn)
		if !ok {
			done <- shown{err: errors.New("no TLS")}
			return
		}
		var got shown
		if got.err = s.Handshake(); got.err == nil {
			if p := s.ConnectionState().PeerCertificates; len(p) > 0 {
				got.name = p[0].Subject.CommonName
			}
		}
		done <- got
	}()
	c, err := tls.Dial("tcp", l.Addr().String(), client)
	if err != nil {
		<-done
		return "", "", err
	}
	defer c.Close()
	got := <-done
	return c.ConnectionState().PeerCertificates[0].Subject.CommonName, got.name, got.err
}

// TestPairs: both sides show their certificates, and those that took their place; files that do not fit change
// nothing.
func TestPairs(t *testing.T) {
	a, other := newAuthority(t), newAuthority(t)
	ca := a.file(t.TempDir(), "ca.pem", "CERTIFICATE", a.cert.Raw)
	ours, theirs := t.TempDir(), t.TempDir()
	serverCert, serverKey := a.write(theirs, "server 1")
	clientCert, clientKey := a.write(ours, "client 1")
	server, err := Server(serverCert, serverKey)
	if err != nil {
		t.Fatal(err)
	}
	server.ClientAuth, server.ClientCAs = tls.RequireAndVerifyClientCert, x509.NewCertPool()
	server.ClientCAs.AddCert(a.cert)
	client, err := Client(ca, clientCert, clientKey)
	if err != nil {
		t.Fatal(err)
	}
	if s, c, err := names(t, client, server); err != nil || s != "server 1" || c != "client 1" {
		t.Fatal(s, c, err)
	}
	bare, err := Client(ca, "", "")
	if err != nil {
		t.Fatal(err)
	}
	if _, _, err := names(t, bare, server); err == nil {
		t.Error("a client without a certificate is let in")
	}
	foreign, err := Client(other.file(t.TempDir(), "ca.pem", "CERTIFICATE", other.cert.Raw), clientCert, clientKey)
	if err != nil {
		t.Fatal(err)
	}
	if _, _, err := names(t, foreign, server); err == nil {
		t.Error("a server of another authority is trusted")
	}
	become := func(s, c string) {
		t.Helper()
		var gotS, gotC string
		for end := time.Now().Add(30 * time.Second); time.Now().Before(end); time.Sleep(50 * time.Millisecond) {
			if gotS, gotC, err = names(t, client, server); err == nil && gotS == s && gotC == c {
				return
			}
		}
		t.Fatal(gotS, gotC, err)
	}
	a.write(theirs, "server two, with a longer name")
	become("server two, with a longer name", "client 1")
	a.write(ours, "client two, with a longer name")
	become("server two, with a longer name", "client two, with a longer name")
	if err := os.WriteFile(serverKey, []byte("no key"), 0o600); err != nil {
		t.Fatal(err)
	}
	p, err := newPair(clientCert, clientKey)
	if err != nil {
		t.Fatal(err)
	}
	before := p.now
	p.key, p.checked = serverKey, time.Time{}
	if p.get() != before {
		t.Error("a key that does not fit took the place of one that does")
	}
	if err := os.Remove(serverKey); err != nil {
		t.Fatal(err)
	}
	if p.checked = (time.Time{}); p.get() != before {
		t.Error("a key that is not there took the place of one that is")
	}
}

// TestErrors: each file that is wrong is named by its kind.
func TestErrors(t *testing.T) {
	empty := filepath.Join(t.TempDir(), "empty")
	if err := os.WriteFile(empty, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		ca, cert, key, says string
	}{
		{ca: "none.pem", says: "the authorities: "}, {ca: empty, says: "the authorities: the file has no certificate"},
		{cert: "none.pem", key: "none.pem", says: "the certificate: "}, {cert: empty, key: empty, says: "the certificate: "},
	} {
		if _, err := Client(c.ca, c.cert, c.key); err == nil || !strings.HasPrefix(err.Error(), c.says) {
			t.Errorf("%+v: %v", c, err)
		}
	}
	if _, err := Server(empty, empty); err == nil {
		t.Error("a server without a certificate")
	}
}

// TestPeers: of two peers each shows its certificate, whichever dials.
func TestPeers(t *testing.T) {
	a := newAuthority(t)
	ca := a.file(t.TempDir(), "ca.pem", "CERTIFICATE", a.cert.Raw)
	var all [2]*tls.Config
	for i, name := range []string{"first", "second"} {
		cert, key := a.write(t.TempDir(), name)
		c, err := Peer(ca, cert, key)
		if err != nil {
			t.Fatal(err)
		}
		c.ClientAuth, c.ClientCAs = tls.RequireAndVerifyClientCert, c.RootCAs
		all[i] = c
	}
	if s, c, err := names(t, all[0], all[1]); err != nil || s != "second" || c != "first" {
		t.Error(s, c, err)
	}
	if s, c, err := names(t, all[1], all[0]); err != nil || s != "first" || c != "second" {
		t.Error(s, c, err)
	}
	c, err := Peer(ca, "", "")
	if err != nil || c.GetCertificate != nil {
		t.Errorf("one without a certificate shows one: %v", err)
	}
	if _, err := Peer(ca, "nowhere", "nowhere"); err == nil {
		t.Error("files that are not there are taken")
	}
}
