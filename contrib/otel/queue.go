package otel

import (
	"context"
	"time"

	"github.com/warmroute/router"
	"github.com/warmroute/router/admission"
	"github.com/warmroute/router/observe"
	"go.opentelemetry.io/otel/attribute"
)

const (
	keyQueue    = attribute.Key("warmroute.queue")
	keyPriority = attribute.Key("warmroute.priority")
	keyModel    = attribute.Key("warmroute.model")
)

// Queue returns hooks for admission.Config.Trace that count the requests of the waiting
// line with this name, "" "default" if it is "", and call those of next.
func (t *Telemetry) Queue(name string, next admission.Trace) admission.Trace {
	queue := keyQueue.String(t.queueNames.Get(observe.Named(name)))
	for _, cause := range admission.Causes() {
		t.queueLeft.Add(background, 0, attrs(queue, keyCause.String(cause), keyPriority.Int(0)))
	}
	h := next
	h.Left = func(ctx context.Context, p router.Prompt, class admission.Class, waited time.Duration, cause string) {
		priority := keyPriority.Int(class.Priority)
		t.queueLeft.Add(ctx, 1, attrs(queue, keyCause.String(cause), priority))
		model := keyModel.String(t.modelNames.Get(p.Model))
		t.queueModels.Add(ctx, 1, attrs(queue, keyCause.String(cause), model))
		if cause == admission.Served {
			t.queueWait.Record(ctx, waited.Seconds(), attrs(queue, priority))
		}
		if next.Left != nil {
			next.Left(ctx, p, class, waited, cause)
		}
	}
	return h
}

// WatchQueue is WatchFleet for a waiting line.
func (t *Telemetry) WatchQueue(name string, q *admission.Queue) error {
	return watch(t, t.queues, name, q, q == nil)
}
