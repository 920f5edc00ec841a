package prometheus

import (
	"context"
	"strconv"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/warmroute/router"
	"github.com/warmroute/router/admission"
	"github.com/warmroute/router/observe"
)

type queueMetrics struct {
	queueLeft   *prometheus.CounterVec
	queueModels *prometheus.CounterVec
	queueWait   *prometheus.HistogramVec
}

func (m *queueMetrics) init(c *Collector) {
	m.queueLeft = c.counter("queue_requests_total",
		"Requests that waited for a place at a target and wait no more, by the cause and their priority.", "queue", "cause",
		"priority")
	m.queueModels = c.counter("queue_model_requests_total",
		"Requests that waited for a place at a target and wait no more, by the cause and their model; the first models "+
			"have a name, further ones are other.", "queue", "cause", "model")
	m.queueWait = c.histogram("queue_wait_seconds", "Time that requests waited for a place at a target and got one.",
		[]float64{.001, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 30, 60}, "queue", "priority")
}

var (
	queueWaiting = read(gauge, "queue_waiting", "Requests that wait for a place at a target.", "queue")
	queueBytes   = read(gauge, "queue_bytes", "Bytes of the prompts that wait.", "queue")
)

// Queue returns hooks for admission.Config.Trace that count the requests of the waiting
// line with this name, "" "default" if it is "", and call those of next.
func (c *Collector) Queue(name string, next admission.Trace) admission.Trace {
	name = c.queueNames.Get(observe.Named(name))
	for _, cause := range admission.Causes() {
		c.queueLeft.WithLabelValues(name, cause, "0")
	}
	c.queueWait.WithLabelValues(name, "0")
	t := next
	t.Left = func(ctx context.Context, p router.Prompt, class admission.Class, waited time.Duration, cause string) {
		priority := strconv.Itoa(class.Priority) // at most 201 of them
		c.queueLeft.WithLabelValues(name, cause, priority).Inc()
		c.queueModels.WithLabelValues(name, cause, c.modelNames.Get(p.Model)).Inc()
		if cause == admission.Served {
			c.queueWait.WithLabelValues(name, priority).Observe(waited.Seconds())
		}
		if next.Left != nil {
			next.Left(ctx, p, class, waited, cause)
		}
	}
	return t
}

// WatchQueue is WatchFleet for a waiting line.
func (c *Collector) WatchQueue(name string, q *admission.Queue) error {
	return watch(c, c.queues, name, q, q == nil)
}
