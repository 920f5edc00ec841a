package prompt

// A skim is a JSON text as it passes by, cut down to the parts in which a count of tokens or an error can be: objects
// nested at most skimDepth deep, without the elements of arrays and without long strings. So a reply of any length is
// read in one pass and in little memory. It is valid JSON if the text is.
type skim struct {
	out     []byte
	most    int  // bytes of out
	depth   int  // of the objects that are kept
	left    int  // of the arrays and objects inside one that is left out; 0: not inside one
	str     bool // inside a string
	escaped bool // behind a backslash
	lo      int  // the start of the string in out
	long    bool // the string is too long to be kept
}

const (
	skimDepth  = 5
	skimString = 64
	maxSkim    = 64 << 10
)

// write takes the next bytes of the text.
func (k *skim) write(b []byte) {
	for _, c := range b {
		if k.str {
			k.inString(c)
			continue
		}
		switch c {
		case ' ', '\t', '\r', '\n':
			continue
		case '"':
			k.str, k.long, k.lo = true, false, len(k.out)
		case '{', '[':
			if k.left > 0 {
				k.left++
				continue
			}
			if c == '[' || k.depth == skimDepth {
				k.left = 1
			} else {
				k.depth++
			}
		case '}', ']':
			if k.left > 1 {
				k.left--
				continue
			}
			if k.left == 1 {
				k.left = 0
			} else {
				k.depth--
			}
		}
		if k.left > 0 && c != '{' && c != '[' {
			continue
		}
		k.put(c)
	}
}

func (k *skim) inString(c byte) {
	switch {
	case k.escaped:
		k.escaped = false
	case c == '\\':
		k.escaped = true
	case c == '"':
		k.str = false
	}
	if k.left > 0 {
		return
	}
	if !k.long && len(k.out)-k.lo > skimString {
		k.long = true
		k.out = k.out[:min(k.lo+1, len(k.out))]
	}
	if !k.long || !k.str {
		k.put(c)
	}
}

func (k *skim) put(c byte) {
	if len(k.out) < k.most {
		k.out = append(k.out, c)
	}
}
