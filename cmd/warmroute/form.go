package main

import (
	"bytes"
	"mime"
	"net/textproto"
	"net/url"
	"strings"

	"github.com/warmroute/router/internal/reqbody"
)

// formModel returns the model that a body of a form names, as engines read it: the last field "model" that is no file.
// at has the places of all of them. It is false if there are more than maxNames.
func formModel(contentType string, body []byte) (model string, at []reqbody.Span, ok bool) {
	media, params, err := mime.ParseMediaType(contentType)
	if err != nil {
		return "", nil, true
	}
	switch {
	case media == "multipart/form-data" && params["boundary"] != "":
		at, ok = fields(body, "--"+params["boundary"])
		if len(at) > 0 {
			last := at[len(at)-1]
			model = string(body[last.Lo:last.Hi])
		}
	case media == "application/x-www-form-urlencoded":
		at, ok = pairs(body)
		if len(at) > 0 {
			last := at[len(at)-1]
			if model, err = url.QueryUnescape(string(body[last.Lo:last.Hi])); err != nil {
				return "", nil, ok
			}
		}
	default:
		return "", nil, true
	}
	if len(model) > maxModel {
		return "", nil, ok
	}
	return model, at, ok
}

// maxModel bounds the name of a model in a form, in bytes.
const maxModel = 4 << 10

// fields returns the values of the fields "model" of a multipart body.
func fields(body []byte, delimiter string) ([]reqbody.Span, bool) {
	var found []reqbody.Span
	line := []byte("\r\n" + delimiter)
	at := 0
	if !bytes.HasPrefix(body, line[2:]) { // there is a preamble
		i := bytes.Index(body, line)
		if i < 0 {
			return nil, true
		}
		at = i + 2
	}
	for {
		at += len(delimiter)
		if bytes.HasPrefix(body[at:], []byte("--")) {
			return found, true
		}
		head := bytes.Index(body[at:], []byte("\r\n"))
		if head < 0 {
			return found, true
		}
		at += head + 2
		end := bytes.Index(body[at:], line)
		if end < 0 {
			return found, true
		}
		part := body[at : at+end]
		if n := bytes.Index(part, []byte("\r\n\r\n")); n >= 0 && n <= 8<<10 && namesModel(part[:n]) {
			if len(found) == maxNames {
				return nil, false
			}
			found = append(found, reqbody.Span{Lo: at + n + 4, Hi: at + end})
		}
		at += end + 2
	}
}

// namesModel reports whether the header of a part is that of the field "model".
func namesModel(header []byte) bool {
	for line := range bytes.SplitSeq(header, []byte("\r\n")) {
		name, value, _ := strings.Cut(string(line), ":")
		if !strings.EqualFold(textproto.TrimString(name), "Content-Disposition") {
			continue
		}
		_, params, err := mime.ParseMediaType(value)
		_, file := params["filename"]
		return err == nil && params["name"] == "model" && !file
	}
	return false
}

// pairs returns the values of the fields "model" of a form in one line.
func pairs(body []byte) ([]reqbody.Span, bool) {
	var found []reqbody.Span
	at := 0
	for pair := range bytes.SplitSeq(body, []byte("&")) {
		key, _, ok := bytes.Cut(pair, []byte("="))
		if name, err := url.QueryUnescape(string(key[:min(len(key), 64)])); ok && err == nil && name == "model" {
			if len(found) == maxNames {
				return nil, false
			}
			found = append(found, reqbody.Span{Lo: at + len(key) + 1, Hi: at + len(pair)})
		}
		at += len(pair) + 1
	}
	return found, true
}
