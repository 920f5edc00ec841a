package membudget

import (
	"io"
)

// Hold is the bytes that one request, reply or message has of an Account. The zero Hold has no Account and bounds
// nothing. It is not safe for concurrent use.
type Hold struct {
	account *Account
	n       int64
}

// Hold returns a Hold of a without bytes.
func (a *Account) Hold() Hold { return Hold{account: a} }

// Account returns the Account that h is of, nil for none.
func (h *Hold) Account() *Account { return h.account }

// Bytes returns how many bytes h has.
func (h *Hold) Bytes() int64 { return h.n }

// Set makes h have n bytes: it reserves more or releases some. If that fails, h has the bytes that it had, and the
// error is an *Error.
func (h *Hold) Set(n int64) error {
	if h.account == nil {
		return nil
	}
	n = max(n, 0)
	if n < h.n {
		h.account.Release(h.n - n)
	} else if err := h.account.Reserve(n - h.n); err != nil {
		if limit := h.account.Limit(); n > limit {
			return &Error{Account: h.account.name, Bytes: n, Limit: limit, Never: true}
		}
		return err
	}
	h.n = n
	return nil
}

// Add reserves n further bytes, as Set.
func (h *Hold) Add(n int64) error { return h.Set(h.n + n) }

// Release releases all bytes. h can be used again.
func (h *Hold) Release() {
	h.account.Release(h.n)
	h.n = 0
}

// Spare is how many bytes a buffer that Grow grows has without asking: the users of a Hold reserve that for each of
// their buffers before, or count it otherwise.
const Spare = 4 << 10

// Grow returns b with a capacity for further bytes: n, or as many as h has memory for and as fit into most bytes in
// all. A buffer of up to Spare bytes costs h nothing; of a larger one its capacity is added to h.
func (h *Hold) Grow(b []byte, n, most int) []byte {
	if cap(b)-len(b) >= n || cap(b) >= most {
		return b
	}
	want := min(max(len(b)+n, 2*cap(b), 512), most)
	for _, size := range [...]int{want, min(max(want, Spare), Spare, most)} {
		was := int64(0)
		if cap(b) > Spare {
			was = int64(cap(b))
		}
		if size <= cap(b) {
			break
		}
		if size <= Spare || h.Add(int64(size)-was) == nil {
			return append(make([]byte, 0, size), b...)
		}
	}
	return b
}

// ReadAll reads r to its end into memory that h has reserved before, in addition to the bytes that it has, and no more
// than most bytes and one, so that a longer r is noticed by the length of the result. n is how long r announces to be,
// negative if it does not; memory is taken as bytes come, whatever it is. The error is r's, or an *Error. h keeps the
// bytes that were reserved, also with an error.
func ReadAll(h *Hold, r io.Reader, n, most int64) ([]byte, error) {
	const first = 8 << 10
	end := most
	if n >= 0 {
		end = min(n, most)
	}
	var b []byte
	for size := min(first, end); ; size = min(max(2*size, first), end) {
		// One more than the end, which the last Read sees.
		if grown := int(size) + 1; grown > cap(b) {
			if err := h.Add(int64(grown - cap(b))); err != nil {
				return b, err
			}
			b = append(make([]byte, 0, grown), b...)
		}
		for len(b) < cap(b) {
			m, err := r.Read(b[len(b):cap(b)])
			b = b[:len(b)+m]
			if err == io.EOF {
				return b, nil
			}
			if err != nil {
				return b, err
			}
		}
		if int64(len(b)) > most {
			return b, nil
		}
		if size == end { // more comes than was announced
			end = most
		}
	}
}
