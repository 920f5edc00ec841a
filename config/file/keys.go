package file

import (
	"reflect"
	"strings"
	"unicode"
)

// A field is one key of a struct.
type field struct {
	key   string
	index int
	tag   reflect.StructTag
}

// fields returns the keys of a struct: of our own those with a tag, of a
// package's Config the plain ones in snake case.
func fields(t reflect.Type) []field {
	var fs []field
	own := t.PkgPath() == reflect.TypeFor[File]().PkgPath()
	for i := range t.NumField() {
		f := t.Field(i)
		switch key := f.Tag.Get("toml"); {
		case !f.IsExported() || key == "-":
		case key != "":
			fs = append(fs, field{key, i, f.Tag})
		case !own && plain(f.Type):
			fs = append(fs, field{snake(f.Name), i, f.Tag})
		}
	}
	return fs
}

// plain reports whether a value of t can stand in a file.
func plain(t reflect.Type) bool {
	switch t.Kind() {
	case reflect.Bool, reflect.String, reflect.Float32, reflect.Float64,
		reflect.Int, reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64,
		reflect.Uint, reflect.Uint8, reflect.Uint16, reflect.Uint32, reflect.Uint64:
		return true
	case reflect.Slice:
		return t.Elem().Kind() == reflect.String
	}
	return false
}

// snake returns a Go name in snake case: MaxNodes is max_nodes, SessionTTL
// session_ttl.
func snake(name string) string {
	var b strings.Builder
	rs := []rune(name)
	for i, r := range rs {
		before := i > 0 && (unicode.IsLower(rs[i-1]) || unicode.IsDigit(rs[i-1]))
		after := i > 0 && i+1 < len(rs) && unicode.IsLower(rs[i+1])
		if unicode.IsUpper(r) && (before || after) {
			b.WriteByte('_')
		}
		b.WriteRune(unicode.ToLower(r))
	}
	return b.String()
}

// keyOf returns the key of a field of t, "" if it has none.
func keyOf(t reflect.Type, name string) string {
	for _, f := range fields(t) {
		if t.Field(f.index).Name == name {
			return f.key
		}
	}
	return ""
}

// keysOnly clears the fields of a Config that stand in no file, such as hooks.
func keysOnly[C any](c *C) {
	old, v := *c, reflect.ValueOf(c).Elem()
	v.SetZero()
	for _, f := range fields(v.Type()) {
		v.Field(f.index).Set(reflect.ValueOf(old).Field(f.index))
	}
}

// Same reports whether a and b, which are tables of a [File] or settings of a strategy,
// have the same value for every key. Fields that stand in no file make no difference.
func Same(a, b any) bool {
	return sameKeys(reflect.ValueOf(a), reflect.ValueOf(b))
}

func sameKeys(a, b reflect.Value) bool {
	if !a.IsValid() || !b.IsValid() {
		return a.IsValid() == b.IsValid()
	}
	if a.Type() != b.Type() {
		return false
	}
	if a.Kind() == reflect.Pointer {
		return sameKeys(a.Elem(), b.Elem())
	}
	if a.Kind() != reflect.Struct {
		return reflect.DeepEqual(a.Interface(), b.Interface())
	}
	for _, f := range fields(a.Type()) {
		if !sameKeys(a.Field(f.index), b.Field(f.index)) {
			return false
		}
	}
	return true
}
