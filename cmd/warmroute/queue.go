package main

import (
	"bytes"
	"context"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/warmroute/router"
	"github.com/warmroute/router/admission"
	"github.com/warmroute/router/config/file"
	"github.com/warmroute/router/observe"
)

// classKey is the key of a request's admission.Class in its context.
type classKey struct{}

// classOf returns the class of the request with this context.
func classOf(ctx context.Context, _ router.Prompt) admission.Class {
	c, _ := ctx.Value(classKey{}).(admission.Class)
	return c
}

// classed returns r with its class, if requests may have to wait in the line. The error
// names the header that is wrong.
func (s *service) classed(r *http.Request) (*http.Request, error) {
	if s.gateway.Queue() == nil {
		return r, nil
	}
	c, err := class(r.Header, &s.gateway.File().Queue)
	if err != nil {
		return r, err
	}
	return r.WithContext(context.WithValue(r.Context(), classKey{}, c)), nil
}

func class(h http.Header, q *file.Queue) (c admission.Class, err error) {
	if q.TenantHeader != "" {
		c.Tenant = h.Get(q.TenantHeader)
	} else {
		c.Tenant = tenant(h)
	}
	if v := h.Get(q.PriorityHeader); q.PriorityHeader != "" && v != "" {
		if c.Priority, err = strconv.Atoi(v); err != nil || c.Priority < -100 || c.Priority > 100 {
			return c, fmt.Errorf("the header %s is not a number from -100 to 100", http.CanonicalHeaderKey(q.PriorityHeader))
		}
	}
	return c, nil
}

// waits counts the requests that waited in the line. The zero value works.
type waits struct {
	mu     sync.Mutex
	left   map[leaving]uint64
	took   map[int]*waited      // of those that were served, by priority, of which there are 201
	models map[[2]string]uint64 // by cause and model
	names  *observe.Names       // of models
}

// maxWaitModels bounds the models that are counted apart.
const maxWaitModels = 64

type leaving struct {
	cause    string
	priority int
}

// waited is a histogram.
type waited struct {
	counts [len(waitBounds)]uint64 // each without those below
	n      uint64
	sum    float64
}

// waitBounds are those of contrib/prometheus.
var waitBounds = [...]float64{.001, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 30, 60}

// trace returns the hooks of the line.
func (w *waits) trace() admission.Trace {
	return admission.Trace{
		Left: func(_ context.Context, p router.Prompt, c admission.Class, d time.Duration, cause string) {
			w.mu.Lock()
			defer w.mu.Unlock()
			if w.left == nil {
				w.left, w.took = make(map[leaving]uint64), make(map[int]*waited)
				w.models, w.names = make(map[[2]string]uint64), observe.NewNames(maxWaitModels)
			}
			w.left[leaving{cause, c.Priority}]++
			w.models[[2]string{cause, w.names.Get(p.Model)}]++
			if cause != admission.Served {
				return
			}
			h := w.took[c.Priority]
			if h == nil {
				h = new(waited)
				w.took[c.Priority] = h
			}
			h.n++
			h.sum += d.Seconds()
			if i := slices.IndexFunc(waitBounds[:], func(b float64) bool { return d.Seconds() <= b }); i >= 0 {
				h.counts[i]++
			}
		},
	}
}

// write writes the numbers of the line, if there is one.
func (w *waits) write(b *bytes.Buffer, q *admission.Queue) {
	if q == nil {
		return
	}
	s := q.Stats()
	head(b, "queue_waiting", "gauge", "Requests that wait for a place at a target.")
	sample(b, "queue_waiting", float64(s.Waiting))
	head(b, "queue_bytes", "gauge", "Bytes of the prompts that wait.")
	sample(b, "queue_bytes", float64(s.Bytes))
	w.mu.Lock()
	defer w.mu.Unlock()
	head(b, "queue_requests_total", "counter",
		"Requests that waited for a place at a target and wait no more, by the cause and their priority.")
	priorities := map[int]bool{0: true}
	for l := range w.left {
		priorities[l.priority] = true
	}
	for _, p := range slices.Sorted(maps.Keys(priorities)) {
		for _, cause := range admission.Causes() {
			sample(b, "queue_requests_total", float64(w.left[leaving{cause, p}]), "cause", cause, "priority", strconv.Itoa(p))
		}
	}
	head(b, "queue_model_requests_total", "counter",
		"Requests that waited for a place at a target and wait no more, by the cause and their model; the first models "+
			"have a name, further ones are other.")
	for _, m := range slices.SortedFunc(maps.Keys(w.models), func(a, b [2]string) int {
		return slices.Compare(a[:], b[:])
	}) {
		sample(b, "queue_model_requests_total", float64(w.models[m]), "cause", m[0], "model", m[1])
	}
	head(b, "queue_wait_seconds", "histogram", "Time that requests waited for a place at a target and got one.")
	for _, p := range slices.Sorted(maps.Keys(w.took)) {
		h, label, n := w.took[p], strconv.Itoa(p), uint64(0)
		for i, bound := range waitBounds {
			n += h.counts[i]
			sample(b, "queue_wait_seconds_bucket", float64(n), "priority", label, "le",
				strconv.FormatFloat(bound, 'g', -1, 64))
		}
		sample(b, "queue_wait_seconds_bucket", float64(h.n), "priority", label, "le", "+Inf")
		sample(b, "queue_wait_seconds_sum", h.sum, "priority", label)
		sample(b, "queue_wait_seconds_count", float64(h.n), "priority", label)
	}
}
