package file

import (
	"bytes"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strconv"
	"time"

	"github.com/pelletier/go-toml/v2"
)

// Effective returns the whole file as TOML, with the defaults of the keys that it does
// not have and without comments. Parse reads it as the same file. It has the names of
// secrets, not these.
func (f *File) Effective() string {
	var b bytes.Buffer
	if err := toml.NewEncoder(&b).Encode(shown(reflect.ValueOf(*f)).Interface()); err != nil {
		// Every type that a file is read into can be written.
		return fmt.Sprintf("# %s\n", strconv.Quote(err.Error()))
	}
	return b.String()
}

// shown returns a value that the encoder writes as the decoder reads v: a struct has
// the keys that fields returns, each named by a tag, and a Route its Settings too.
func shown(v reflect.Value) reflect.Value {
	switch k := v.Kind(); {
	case v.Type() == durationType:
		return reflect.ValueOf(v.Interface().(time.Duration).String())
	case k == reflect.Pointer:
		p := shown(v.Elem())
		out := reflect.New(p.Type())
		out.Elem().Set(p)
		return out
	case k == reflect.Struct:
		return shownTable(v)
	case k == reflect.Slice && v.Type().Elem().Kind() == reflect.Struct:
		all := make([]any, v.Len()) // each Route has its own type
		for i := range all {
			all[i] = shown(v.Index(i)).Interface()
		}
		return reflect.ValueOf(all)
	case k == reflect.Slice && v.IsNil():
		return reflect.MakeSlice(v.Type(), 0, 0)
	case k == reflect.Map && v.IsNil():
		return reflect.MakeMap(v.Type())
	}
	return v
}

func shownTable(v reflect.Value) reflect.Value {
	var types []reflect.StructField
	var values []reflect.Value
	add := func(key, options string, v reflect.Value) {
		v = shown(v)
		types = append(types, reflect.StructField{
			Name: "F" + strconv.Itoa(len(types)), Type: v.Type(), Tag: reflect.StructTag("toml:" + strconv.Quote(key+options)),
		})
		values = append(values, v)
	}
	for _, f := range fields(v.Type()) {
		switch fv := v.Field(f.index); {
		case fv.Kind() == reflect.Pointer && fv.IsNil(): // no such table
		case fv.Kind() == reflect.Map:
			add(f.key, ",inline", fv)
		default:
			add(f.key, "", fv)
		}
	}
	if r, ok := v.Interface().(Route); ok {
		for _, name := range slices.Sorted(maps.Keys(r.Settings)) {
			if cfg := reflect.ValueOf(r.Settings[name]).Elem(); len(fields(cfg.Type())) > 0 {
				add(name, "", cfg)
			}
		}
	}
	out := reflect.New(reflect.StructOf(types)).Elem()
	for i, v := range values {
		out.Field(i).Set(v)
	}
	return out
}
