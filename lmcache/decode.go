package lmcache

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"

	"github.com/warmroute/router/internal/errclass"
	"github.com/warmroute/router/internal/samples"
)

const (
	ratioName   = "lmcache_mp_l1_usage_ratio"
	maxLine     = 4 << 10  // a longer line is not the gauge's
	maxSelected = 64 << 10 // bytes of the gauge's lines
)

var (
	errEmpty   = errors.New("the answer is empty")
	errMarkup  = errors.New("the answer is HTML or XML")
	errPage    = fmt.Errorf("the answer is longer than %d bytes", MaxMetrics)
	errDoc     = fmt.Errorf("the answer is longer than %d bytes", MaxBody)
	errNeither = errors.New("the answer has neither occupancy nor storage_manager")
	errNoGauge = errors.New("the answer has no " + ratioName)
	errNoRatio = errors.New("storage_manager: no L1 has a memory_usage_ratio")
	errNotOne  = errors.New("the answer is more than one JSON object")
	errJSON    = errors.New("the answer is JSON, not metrics")
	errNotJSON = errors.New("the answer is not a JSON object")
	errLines   = fmt.Errorf("the answer has more than %d bytes of %s", maxSelected, ratioName)
)

// answer is the content of one answer.
type answer struct {
	kind      Kind
	occupancy float64 // 0..1
	available bool
}

// decode reads one answer, up to the bound of the format that it begins like.
func decode(body io.Reader, want Kind) (answer, error) {
	limited := &io.LimitedReader{R: body, N: MaxMetrics + 1}
	r := bufio.NewReaderSize(limited, maxLine)
	first, skipped, err := firstByte(r)
	switch {
	case err == io.EOF && limited.N <= 0:
		return answer{}, errPage
	case err == io.EOF:
		return answer{}, errEmpty
	case err != nil:
		return answer{}, err
	case first == '<':
		return answer{}, errMarkup
	case first == '{' && want == KindMetrics:
		return answer{}, errJSON
	case first == '{':
		left := max(MaxBody-skipped, 0)
		doc, err := io.ReadAll(io.LimitReader(r, int64(left)+1))
		if err != nil {
			return answer{}, err
		}
		if len(doc) > left {
			return answer{}, errDoc
		}
		return decodeJSON(doc, want)
	case want != KindAny && want != KindMetrics:
		return answer{}, errNotJSON
	}
	ratio, err := readGauge(r)
	if limited.N <= 0 {
		err = errPage
	}
	if err != nil {
		return answer{}, err
	}
	return answer{kind: KindMetrics, occupancy: ratio, available: true}, nil
}

// firstByte returns the first byte that is not white space, which stays to be
// read, and how many were before it.
func firstByte(r *bufio.Reader) (first byte, skipped int, err error) {
	for ; ; skipped++ {
		b, err := r.ReadByte()
		if err != nil {
			return 0, 0, err
		}
		if b != ' ' && b != '\t' && b != '\r' && b != '\n' {
			return b, skipped, r.UnreadByte()
		}
	}
}

func decodeJSON(doc []byte, want Kind) (answer, error) {
	f, err := fields(doc, "occupancy", "cache_available", "storage_manager", "is_healthy")
	if err != nil {
		return answer{}, err
	}
	occupancy, available, storage, healthy := f[0], f[1], f[2], f[3]
	switch {
	case want != KindStatus && occupancy != nil:
		return decodeOccupancy(occupancy, available)
	case want == KindOccupancy:
		return answer{}, errors.New("the answer has no occupancy")
	case storage != nil:
		return decodeStatus(storage, healthy)
	case want == KindStatus:
		return answer{}, errors.New("the answer has no storage_manager")
	}
	return answer{}, errNeither
}

func decodeOccupancy(occupancy, available json.RawMessage) (answer, error) {
	a := answer{kind: KindOccupancy}
	var err error
	if a.occupancy, err = number("occupancy", occupancy); err != nil {
		return answer{}, err
	}
	a.available, err = boolean("cache_available", available)
	return a, err
}

// decodeStatus reads the state of the L1s of LMCache's server: several ones in
// l1_managers, a single one in l1_manager (and, since 0.5.6, in both). The fullest
// counts.
func decodeStatus(storage, healthy json.RawMessage) (answer, error) {
	a := answer{kind: KindStatus, occupancy: -1, available: true}
	and := func(name string, raw json.RawMessage) error {
		ok, err := boolean(name, raw)
		a.available = a.available && ok
		return err
	}
	manager := func(name string, raw json.RawMessage) error {
		f, err := fields(raw, "memory_usage_ratio", "is_healthy")
		if err == nil {
			err = and("is_healthy", f[1])
		}
		if err == nil && f[0] != nil {
			var ratio float64
			ratio, err = number("memory_usage_ratio", f[0])
			a.occupancy = max(a.occupancy, ratio)
		}
		if err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
		return nil
	}
	if err := and("is_healthy", healthy); err != nil {
		return answer{}, err
	}
	f, err := fields(storage, "l1_manager", "l1_managers", "is_healthy")
	if err == nil {
		err = and("is_healthy", f[2])
	}
	if err == nil && f[0] != nil {
		err = manager("l1_manager", f[0])
	}
	if err == nil && f[1] != nil {
		err = each(f[1], func(name string, raw json.RawMessage) error {
			return manager("l1_managers."+name, raw)
		})
	}
	switch {
	case err != nil:
		return answer{}, fmt.Errorf("storage_manager: %w", err)
	case a.occupancy < 0:
		return answer{}, errNoRatio
	}
	return a, nil
}

// each calls f for the fields of the object doc, which is all there is.
func each(doc []byte, f func(name string, value json.RawMessage) error) error {
	d := json.NewDecoder(bytes.NewReader(doc))
	switch t, err := d.Token(); {
	case err != nil:
		return jsonError(err)
	case t != json.Delim('{'):
		return errors.New("it is not a JSON object")
	}
	for d.More() {
		t, err := d.Token()
		if err != nil {
			return jsonError(err)
		}
		name, _ := t.(string)
		var value json.RawMessage
		if err := d.Decode(&value); err != nil {
			return jsonError(err)
		}
		if err := f(name, value); err != nil {
			return err
		}
	}
	if _, err := d.Token(); err != nil {
		return jsonError(err)
	}
	if _, err := d.Token(); err != io.EOF {
		return errNotOne
	}
	return nil
}

func jsonError(err error) error {
	if err == io.EOF {
		err = io.ErrUnexpectedEOF
	}
	return fmt.Errorf("the JSON is broken: %w", errclass.Wrap(err))
}

// fields returns the values of the names in the object doc, nil for one
// that it lacks. Names are exact. A name that is there twice is an error: the meaning
// is open.
func fields(doc []byte, names ...string) ([]json.RawMessage, error) {
	values := make([]json.RawMessage, len(names))
	err := each(doc, func(name string, value json.RawMessage) error {
		for i := range names {
			if name != names[i] {
				continue
			}
			if values[i] != nil {
				return fmt.Errorf("%s is there twice", name)
			}
			values[i] = value
		}
		return nil
	})
	return values, err
}

// number returns a finite number, clamped to 0..1.
func number(name string, raw json.RawMessage) (float64, error) {
	var v *float64
	if err := json.Unmarshal(raw, &v); err != nil || v == nil {
		return 0, fmt.Errorf("%s is not a number within range", name)
	}
	return clamp(*v), nil
}

// boolean returns true if raw is nil.
func boolean(name string, raw json.RawMessage) (bool, error) {
	switch string(raw) {
	case "", "true":
		return true, nil
	case "false":
		return false, nil
	}
	return false, fmt.Errorf("%s is neither true nor false", name)
}

func clamp(x float64) float64 { return min(max(x, 0), 1) }

// readGauge returns the greatest value of the gauge. The rest of the page costs
// nothing and can break nothing.
func readGauge(r io.Reader) (float64, error) {
	page := samples.Reader{MaxLine: maxLine}
	all, _, err := page.Read(r, samples.Page{
		MaxBytes: MaxMetrics, MaxWanted: maxSelected,
		Wanted: func(name []byte) bool { return string(name) == ratioName },
	})
	switch {
	case errors.Is(err, samples.ErrWanted):
		return 0, errLines
	case err != nil:
		return 0, err
	case len(all) == 0:
		return 0, errNoGauge
	}
	most := 0.0
	for _, s := range all {
		if math.IsNaN(s.Value) || math.IsInf(s.Value, 0) {
			return 0, fmt.Errorf("%s is %v", ratioName, s.Value)
		}
		most = max(most, clamp(s.Value))
	}
	return most, nil
}
