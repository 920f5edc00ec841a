// Package errclass takes the other side's words out of errors. An error of a connection, a reply or a decoder may
// quote bytes that the other side chose, which may be prompts or keys that it was sent: net/http quotes a header line
// that it does not understand, and certificates have names. Logs and pages get a class of our own in its place.
package errclass

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"io"
	"net"
	"net/textproto"
	"os"
	"strings"
	"syscall"

	"github.com/warmroute/router/egress"
)

// The classes.
const (
	TimedOut    = "timed out"
	Canceled    = "canceled"
	Refused     = "connection refused"
	Reset       = "connection reset"
	Unreachable = "unreachable"
	Closed      = "connection closed early"
	Name        = "name not found"
	TLS         = "TLS failed"
	Authority   = "certificate of an unknown authority"
	OtherName   = "certificate for another name"
	Certificate = "certificate not valid"
	Malformed   = "malformed"
	TooLarge    = "header too large"
	Failed      = "failed" // of no other class
)

// Error is an error with its class as its text. It is what it wraps, for errors.Is and errors.As.
type Error struct {
	class string
	err   error
}

// Error returns the class.
func (e *Error) Error() string { return e.class }

// Unwrap returns the error that is classed. Its text is for debugging alone.
func (e *Error) Unwrap() error { return e.err }

// Timeout reports whether it is a time-out, as net.Error has it.
func (e *Error) Timeout() bool { return e.class == TimedOut }

// Wrap returns err with its class as its text. An error that is classed already, one of an address that is denied,
// which has our own words, and nil stay as they are.
func Wrap(err error) error {
	var denied *egress.DeniedError
	var classed *Error
	switch {
	case err == nil:
		return nil
	case errors.As(err, &denied):
		return denied
	case errors.As(err, &classed):
		return classed
	}
	return &Error{Of(err), err}
}

// Text returns all of the text of err, with the words of the other side, for a level that is off unless somebody
// debugs.
func Text(err error) string {
	var e *Error
	if errors.As(err, &e) {
		return e.err.Error()
	}
	if err == nil {
		return ""
	}
	return err.Error()
}

// Of returns the class of err, "" for nil.
func Of(err error) string {
	var (
		classed *Error
		timeout net.Error
		dns     *net.DNSError
		syntax  *json.SyntaxError
		kind    *json.UnmarshalTypeError
		line    textproto.ProtocolError

		verify  *tls.CertificateVerificationError
		record  tls.RecordHeaderError
		alert   tls.AlertError
		unknown x509.UnknownAuthorityError
		host    x509.HostnameError
		invalid x509.CertificateInvalidError
	)
	switch {
	case err == nil:
		return ""
	case errors.As(err, &classed):
		return classed.class
	case errors.Is(err, context.DeadlineExceeded), errors.Is(err, os.ErrDeadlineExceeded),
		errors.As(err, &timeout) && timeout.Timeout():
		return TimedOut
	case errors.Is(err, context.Canceled):
		return Canceled
	case errors.As(err, &dns):
		return Name
	case errors.Is(err, syscall.ECONNREFUSED):
		return Refused
	case errors.Is(err, syscall.ECONNRESET), errors.Is(err, syscall.EPIPE):
		return Reset
	case errors.Is(err, syscall.EHOSTUNREACH), errors.Is(err, syscall.ENETUNREACH):
		return Unreachable
	case errors.As(err, &unknown):
		return Authority
	case errors.As(err, &host):
		return OtherName
	case errors.As(err, &verify), errors.As(err, &invalid):
		return Certificate
	case errors.As(err, &record), errors.As(err, &alert):
		return TLS
	case errors.As(err, &syntax), errors.As(err, &kind), errors.As(err, &line),
		strings.Contains(err.Error(), "malformed"): // net/http's errors have no type
		return Malformed
	case strings.Contains(err.Error(), "headers exceeded"):
		return TooLarge
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF), errors.Is(err, net.ErrClosed),
		strings.Contains(err.Error(), "server closed"):
		return Closed
	}
	return Failed
}
