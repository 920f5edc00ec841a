package main

import (
	"context"
	"fmt"
	"net/http"
	"strconv"

	"github.com/warmroute/router"
	"github.com/warmroute/router/admission"
	"github.com/warmroute/router/config/file"
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
