package sharing

import "slices"

// window says which of a peer's frames with facts were taken in: all up to done, and those in ahead.
type window struct {
	done, highest uint64
	ahead         []uint64
}

// maxAhead bounds the frames that are taken in before a missing one.
const maxAhead = 4096

// accept reports whether a frame is to be taken in, and notes that it is.
func (w *window) accept(number uint64) bool {
	if number <= w.done {
		return false
	}
	w.highest = max(w.highest, number)
	if number == w.done+1 {
		w.done++
		w.close()
		return true
	}
	i, found := slices.BinarySearch(w.ahead, number)
	if found {
		return false
	}
	w.ahead = slices.Insert(w.ahead, i, number)
	if len(w.ahead) > maxAhead { // what is missing before is given up
		w.done = w.ahead[0]
		w.ahead = slices.Delete(w.ahead, 0, 1)
		w.close()
	}
	return true
}

func (w *window) close() {
	i := 0
	for i < len(w.ahead) && w.ahead[i] == w.done+1 {
		w.done++
		i++
	}
	w.ahead = slices.Delete(w.ahead, 0, i)
}

// expect notes that the peer has sent frames with facts up to number.
func (w *window) expect(number uint64) { w.highest = max(w.highest, number) }

func (w *window) missing() bool { return w.highest > w.done }

// skip gives up the frames up to number.
func (w *window) skip(number uint64) {
	if number <= w.done {
		return
	}
	w.done = number
	i, found := slices.BinarySearch(w.ahead, number)
	if found {
		i++
	}
	w.ahead = slices.Delete(w.ahead, 0, i)
	w.close()
}
