// Package tlsfiles makes settings of TLS from PEM files, and reads a certificate again when its files change, so that
// one that is renewed needs no new start.
package tlsfiles

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"os"
	"sync"
	"time"
)

// Client returns the settings of a client: the authorities that it trusts ("": those of the system), and the files of
// its own certificate and key ("": none). The error names the kind of file that is wrong.
func Client(ca, cert, key string) (*tls.Config, error) {
	c := &tls.Config{MinVersion: tls.VersionTLS12}
	if ca != "" {
		pem, err := os.ReadFile(ca)
		if err != nil {
			return nil, fmt.Errorf("the authorities: %w", err)
		}
		c.RootCAs = x509.NewCertPool()
		if !c.RootCAs.AppendCertsFromPEM(pem) {
			return nil, errors.New("the authorities: the file has no certificate")
		}
	}
	if cert != "" || key != "" {
		p, err := newPair(cert, key)
		if err != nil {
			return nil, err
		}
		c.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return p.get(), nil }
	}
	return c, nil
}

// Peer returns the settings of one that connects to others like it and that those connect to: Client's, and it shows
// its certificate as a server, too.
func Peer(ca, cert, key string) (*tls.Config, error) {
	c, err := Client(ca, cert, key)
	if err != nil {
		return nil, err
	}
	if own := c.GetClientCertificate; own != nil {
		c.GetCertificate = func(*tls.ClientHelloInfo) (*tls.Certificate, error) { return own(nil) }
	}
	return c, nil
}

// Server returns the settings of a server with the files of its certificate and key.
func Server(cert, key string) (*tls.Config, error) {
	p, err := newPair(cert, key)
	if err != nil {
		return nil, err
	}
	return &tls.Config{
		MinVersion:     tls.VersionTLS12,
		GetCertificate: func(*tls.ClientHelloInfo) (*tls.Certificate, error) { return p.get(), nil },
	}, nil
}

// pair is a certificate and its key, as their files have them.
type pair struct {
	cert, key string

	mu      sync.Mutex
	now     *tls.Certificate
	stamp   [2]stamp  // of the files that now is from
	checked time.Time // when the files were looked at
}

// stamp differs between contents of a file.
type stamp struct {
	size int64
	at   time.Time
}

// often is the least time between two looks at the files.
const often = time.Second

func newPair(cert, key string) (*pair, error) {
	p := &pair{cert: cert, key: key}
	stamps, err := p.stamps()
	if err != nil {
		return nil, fmt.Errorf("the certificate: %w", err)
	}
	made, err := tls.LoadX509KeyPair(cert, key)
	if err != nil {
		return nil, fmt.Errorf("the certificate: %w", err)
	}
	p.now, p.stamp, p.checked = &made, stamps, time.Now()
	return p, nil
}

func (p *pair) stamps() (all [2]stamp, err error) {
	for i, name := range []string{p.cert, p.key} {
		st, err := os.Stat(name)
		if err != nil {
			return all, err
		}
		all[i] = stamp{st.Size(), st.ModTime()}
	}
	return all, nil
}

// get returns the certificate, read again if a file changed. While the files do not fit each other, or are not there,
// it is the one before.
func (p *pair) get() *tls.Certificate {
	p.mu.Lock()
	defer p.mu.Unlock()
	if time.Since(p.checked) < often {
		return p.now
	}
	p.checked = time.Now()
	stamps, err := p.stamps()
	if err != nil || stamps == p.stamp {
		return p.now
	}
	if made, err := tls.LoadX509KeyPair(p.cert, p.key); err == nil {
		p.now, p.stamp = &made, stamps
	}
	return p.now
}
