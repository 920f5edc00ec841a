package main

import (
	"encoding/json"
	"errors"
	"net/http"
	"strconv"
	"strings"
	"time"

	core "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	extproc "github.com/envoyproxy/go-control-plane/envoy/service/ext_proc/v3"
	httptype "github.com/envoyproxy/go-control-plane/envoy/type/v3"
	"google.golang.org/protobuf/types/known/structpb"

	"github.com/warmroute/router"
	"github.com/warmroute/router/contentcoding"
	"github.com/warmroute/router/membudget"
)

// pieces is the size in which a FULL_DUPLEX_STREAMED request's body goes back to
// Envoy: below 64 KiB, its buffer for one message.
const pieces = 60 << 10

func header(key, v string) *core.HeaderValueOption {
	return &core.HeaderValueOption{
		Header:       &core.HeaderValue{Key: key, RawValue: []byte(v)},
		AppendAction: core.HeaderValueOption_OVERWRITE_IF_EXISTS_OR_ADD,
	}
}

// common names the endpoints, nil for none. A client's own naming never passes.
func common(named []string) *extproc.CommonResponse {
	if named == nil {
		return &extproc.CommonResponse{HeaderMutation: &extproc.HeaderMutation{RemoveHeaders: []string{endpointKey}}}
	}
	return &extproc.CommonResponse{HeaderMutation: &extproc.HeaderMutation{
		SetHeaders: []*core.HeaderValueOption{header(endpointKey, strings.Join(named, ","))},
	}}
}

func metadata(named []string) *structpb.Struct {
	if named == nil {
		return nil
	}
	return &structpb.Struct{Fields: map[string]*structpb.Value{
		lbNamespace: structpb.NewStructValue(&structpb.Struct{Fields: map[string]*structpb.Value{
			endpointKey: structpb.NewStringValue(strings.Join(named, ",")),
		}}),
	}}
}

func requestHeaders(named []string) *extproc.ProcessingResponse {
	return &extproc.ProcessingResponse{
		Response: &extproc.ProcessingResponse_RequestHeaders{
			RequestHeaders: &extproc.HeadersResponse{Response: common(named)}},
		DynamicMetadata: metadata(named),
	}
}

func requestBody(named []string) *extproc.ProcessingResponse {
	return &extproc.ProcessingResponse{
		Response: &extproc.ProcessingResponse_RequestBody{
			RequestBody: &extproc.BodyResponse{Response: common(named)}},
		DynamicMetadata: metadata(named),
	}
}

// removeCoding removes the headers of a body that was decoded.
func removeCoding(r *extproc.CommonResponse) {
	r.HeaderMutation.RemoveHeaders = append(r.HeaderMutation.RemoveHeaders, "content-encoding",
		"content-digest", "content-md5", "digest")
}

// replaceBody has a buffered request go on with another body, which was decoded. Envoy refuses one that has not the
// announced length.
func replaceBody(r *extproc.ProcessingResponse, body []byte) {
	common := r.GetRequestBody().GetResponse()
	removeCoding(common)
	common.HeaderMutation.SetHeaders = append(common.HeaderMutation.SetHeaders,
		header("content-length", strconv.Itoa(len(body))))
	common.BodyMutation = &extproc.BodyMutation{Mutation: &extproc.BodyMutation_Body{Body: body}}
}

func streamedBody(b []byte, end bool) *extproc.CommonResponse {
	return &extproc.CommonResponse{BodyMutation: &extproc.BodyMutation{Mutation: &extproc.BodyMutation_StreamedResponse{
		StreamedResponse: &extproc.StreamedBodyResponse{Body: b, EndOfStream: end},
	}}}
}

// streamed returns a FULL_DUPLEX_STREAMED request's body in pieces.
func streamed(body []byte, end bool) []*extproc.ProcessingResponse {
	var out []*extproc.ProcessingResponse
	for first := true; first || len(body) > 0; first = false {
		n := min(len(body), pieces)
		out = append(out, &extproc.ProcessingResponse{Response: &extproc.ProcessingResponse_RequestBody{
			RequestBody: &extproc.BodyResponse{Response: streamedBody(body[:n], end && n == len(body))}}})
		body = body[n:]
	}
	return out
}

func requestTrailers() *extproc.ProcessingResponse {
	return &extproc.ProcessingResponse{Response: &extproc.ProcessingResponse_RequestTrailers{
		RequestTrailers: &extproc.TrailersResponse{}}}
}

func responseHeaders() *extproc.ProcessingResponse {
	return &extproc.ProcessingResponse{Response: &extproc.ProcessingResponse_ResponseHeaders{
		ResponseHeaders: &extproc.HeadersResponse{}}}
}

func responseBody(b *extproc.HttpBody, duplex bool) *extproc.ProcessingResponse {
	r := &extproc.BodyResponse{}
	if duplex {
		r.Response = streamedBody(b.GetBody(), b.GetEndOfStream())
	}
	return &extproc.ProcessingResponse{Response: &extproc.ProcessingResponse_ResponseBody{ResponseBody: r}}
}

func responseTrailers() *extproc.ProcessingResponse {
	return &extproc.ProcessingResponse{Response: &extproc.ProcessingResponse_ResponseTrailers{
		ResponseTrailers: &extproc.TrailersResponse{}}}
}

// refuse returns the answer to a client if its request cannot be sent because of err.
func (p *Processor) refuse(err error) *extproc.ProcessingResponse {
	status, after := http.StatusServiceUnavailable, time.Duration(0)
	message := err.Error()
	var none *router.NoTargetError
	var shed *membudget.Error
	switch {
	case errors.As(err, &shed):
		status, after, message = shed.StatusCode(), shed.RetryAfter(), shed.Message()
	case errors.Is(err, errLarge), errors.Is(err, contentcoding.ErrTooLarge):
		status = http.StatusRequestEntityTooLarge
	case errors.Is(err, contentcoding.ErrUnsupported):
		status = http.StatusUnsupportedMediaType
	case errors.Is(err, contentcoding.ErrMalformed):
		status = http.StatusBadRequest
	case errors.Is(err, errSaturated):
		status, after = http.StatusTooManyRequests, p.cfg.RetryAfter
	case errors.Is(err, errBusy):
		after = p.cfg.RetryAfter
	case errors.As(err, &none):
		status, after = none.Status(), none.RetryAfter
	}
	set := []*core.HeaderValueOption{header("content-type", "application/json")}
	if status == http.StatusUnsupportedMediaType {
		set = append(set, header("accept-encoding", contentcoding.Supported()))
	}
	if after > 0 {
		set = append(set, header("retry-after", strconv.FormatInt(int64((after+time.Second-1)/time.Second), 10)))
	}
	body, _ := json.Marshal(map[string]any{"error": map[string]any{"message": message, "type": "router_error",
		"code": status}})
	return &extproc.ProcessingResponse{Response: &extproc.ProcessingResponse_ImmediateResponse{
		ImmediateResponse: &extproc.ImmediateResponse{
			Status:  &httptype.HttpStatus{Code: httptype.StatusCode(status)},
			Headers: &extproc.HeaderMutation{SetHeaders: set},
			Body:    body,
			Details: "warmroute",
		}}}
}

// attribute returns one of the response_attributes, nil if Envoy sent none.
func attribute(in *extproc.ProcessingRequest, key string) *structpb.Value {
	for _, s := range in.GetAttributes() {
		if v := s.GetFields()[key]; v != nil {
			return v
		}
	}
	return nil
}

// endpoint returns the one that replied, "" if Envoy does not say.
func endpoint(in *extproc.ProcessingRequest) string {
	v := in.GetMetadataContext().GetFilterMetadata()[lbNamespace].GetFields()[servedKey].GetStringValue()
	if v == "" {
		v = attribute(in, "upstream.address").GetStringValue()
	}
	return v
}
