package main

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/pem"
	"log/slog"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/warmroute/router/config/file"
	"github.com/warmroute/router/internal/ports"
)

// TestShareTLS: embedded servers with a certificate speak TLS to each other, and to no other one.
func TestShareTLS(t *testing.T) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	form := &x509.Certificate{SerialNumber: big.NewInt(1), NotBefore: time.Now().Add(-time.Hour),
		NotAfter: time.Now().Add(time.Hour), IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, IsCA: true,
		BasicConstraintsValid: true, KeyUsage: x509.KeyUsageDigitalSignature | x509.KeyUsageCertSign,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth}}
	cert, err := x509.CreateCertificate(rand.Reader, form, form, &key.PublicKey, key)
	if err != nil {
		t.Fatal(err)
	}
	private, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	for name, b := range map[string]*pem.Block{"cert": {Type: "CERTIFICATE", Bytes: cert},
		"key": {Type: "PRIVATE KEY", Bytes: private}} {
		if err := os.WriteFile(filepath.Join(dir, name), pem.EncodeToMemory(b), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	at := make([]string, 3)
	for i := range at {
		if at[i], err = ports.Free(); err != nil {
			t.Fatal(err)
		}
	}
	all := make([]sharing, 3)
	for i := range all {
		f := &file.Share{Bus: []string{"embedded://" + at[i]}, Peers: at}
		if i < 2 {
			f.CAFile, f.CertFile, f.KeyFile = filepath.Join(dir, "cert"), filepath.Join(dir, "cert"), filepath.Join(dir, "key")
		}
		all[i].kind = file.BusEmbedded
		if _, err := all[i].connect(f, "", "", slog.New(slog.DiscardHandler)); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(all[i].end)
	}
	for end := time.Now().Add(time.Minute); all[0].server.Peers() != 1 || all[1].server.Peers() != 1; {
		if time.Now().After(end) {
			t.Fatalf("the two have %d and %d peers", all[0].server.Peers(), all[1].server.Peers())
		}
		time.Sleep(10 * time.Millisecond)
	}
	if n := all[2].server.Peers(); n != 0 {
		t.Errorf("the one without TLS has %d peers", n)
	}
}
