//go:build unix

package browsertest

import (
	"bufio"
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"syscall"
	"testing"
	"time"
)

// browser is a Chromium that talks the DevTools protocol over a pair of pipes: JSON
// messages, each with a zero byte behind it.
type browser struct {
	out io.Writer

	mu      sync.Mutex
	id      int
	waiting map[int]chan message
	tabs    map[string]*tab // by session
	ended   error
}

type message struct {
	ID        int                       `json:"id,omitempty"`
	Method    string                    `json:"method,omitempty"`
	SessionID string                    `json:"sessionId,omitempty"`
	Params    any                       `json:"params,omitempty"`
	Result    json.RawMessage           `json:"result,omitempty"`
	Error     *struct{ Message string } `json:"error,omitempty"`
}

// startBrowser starts a Chromium for the test, or skips it if there is none.
func startBrowser(t *testing.T) *browser {
	t.Helper()
	path := ""
	for _, name := range []string{"chromium", "chromium-browser", "google-chrome", "google-chrome-stable"} {
		if p, err := exec.LookPath(name); err == nil {
			path = p
			break
		}
	}
	if path == "" {
		t.Skip("no chromium is installed (Debian and Ubuntu: apt-get install chromium)")
	}
	toChild, in, err := pipe()
	if err != nil {
		t.Fatal(err)
	}
	out, fromChild, err := pipe()
	if err != nil {
		t.Fatal(err)
	}
	// Its processes outlive the first one for a moment and write there: the
	// directory is removed when they are gone, and not missed where that fails.
	dir, err := os.MkdirTemp("", "browsertest-")
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(path, "--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage",
		"--no-first-run",
		"--disable-extensions", "--disable-background-networking", "--disable-component-update", "--disable-sync",
		"--no-proxy-server",
		"--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1, EXCLUDE localhost", "--hide-scrollbars",
		"--user-data-dir="+filepath.Join(dir, "profile"), "--remote-debugging-pipe", "about:blank")
	cmd.ExtraFiles = []*os.File{toChild, fromChild} // its 3 and 4
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	_, _ = toChild.Close(), fromChild.Close()
	b := &browser{out: in, waiting: make(map[int]chan message), tabs: make(map[string]*tab)}
	read := make(chan struct{})
	go func() {
		defer close(read)
		b.read(out)
	}()
	t.Cleanup(func() {
		_ = b.call("", "Browser.close", nil, nil)
		gone := make(chan struct{})
		go func() {
			_ = cmd.Wait()
			close(gone)
		}()
		select {
		case <-gone:
		case <-time.After(20 * time.Second):
		}
		_ = syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) // what is left of its group
		<-gone
		_ = in.Close()
		<-read
		_ = out.Close()
		_ = os.RemoveAll(dir)
	})
	return b
}

func pipe() (r, w *os.File, err error) { return os.Pipe() }

func (b *browser) read(r io.Reader) {
	lines := bufio.NewReaderSize(r, 1<<20)
	for {
		raw, err := lines.ReadBytes(0)
		if err != nil {
			b.mu.Lock()
			b.ended = fmt.Errorf("the browser ended: %w", err)
			for id, c := range b.waiting {
				close(c)
				delete(b.waiting, id)
			}
			b.mu.Unlock()
			return
		}
		var m message
		var params json.RawMessage
		m.Params = &params
		if err := json.Unmarshal(raw[:len(raw)-1], &m); err != nil {
			continue
		}
		b.mu.Lock()
		if c := b.waiting[m.ID]; c != nil {
			delete(b.waiting, m.ID)
			c <- m
		} else if t := b.tabs[m.SessionID]; t != nil {
			t.event(m.Method, params)
		}
		b.mu.Unlock()
	}
}

func (b *browser) call(session, method string, params, result any) error {
	c := make(chan message, 1)
	b.mu.Lock()
	if b.ended != nil {
		b.mu.Unlock()
		return b.ended
	}
	b.id++
	m := message{ID: b.id, Method: method, SessionID: session, Params: params}
	b.waiting[m.ID] = c
	raw, err := json.Marshal(m)
	if err == nil {
		_, err = b.out.Write(append(raw, 0))
	}
	b.mu.Unlock()
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	defer cancel()
	select {
	case m, ok := <-c:
		switch {
		case !ok:
			return errors.New("the browser ended")
		case m.Error != nil:
			return fmt.Errorf("%s: %s", method, m.Error.Message)
		case result == nil:
			return nil
		}
		return json.Unmarshal(m.Result, result)
	case <-ctx.Done():
		return fmt.Errorf("%s: no answer", method)
	}
}

// tab is one page.
type tab struct {
	t       *testing.T
	b       *browser
	session string

	mu    sync.Mutex
	wrong []string // what the page complained of: exceptions, errors in the log
}

func (b *browser) open(t *testing.T, url string) *tab {
	t.Helper()
	var made struct{ TargetID string }
	var joined struct{ SessionID string }
	if err := b.call("", "Target.createTarget", map[string]any{"url": "about:blank"}, &made); err != nil {
		t.Fatal(err)
	}
	if err := b.call("", "Target.attachToTarget", map[string]any{"targetId": made.TargetID, "flatten": true},
		&joined); err != nil {
		t.Fatal(err)
	}
	p := &tab{t: t, b: b, session: joined.SessionID}
	b.mu.Lock()
	b.tabs[p.session] = p
	b.mu.Unlock()
	for _, domain := range []string{"Page", "Runtime", "Log", "Network", "Accessibility"} {
		p.do(domain+".enable", nil, nil)
	}
	p.do("Page.addScriptToEvaluateOnNewDocument", map[string]any{"source": helpers}, nil)
	p.do("Page.navigate", map[string]any{"url": url}, nil)
	return p
}

func (p *tab) event(method string, params json.RawMessage) {
	var e struct {
		Entry            struct{ Level, Text, URL string }
		ExceptionDetails struct {
			Text      string
			Exception struct{ Description string }
		}
		Request struct{ URL string }
	}
	_ = json.Unmarshal(params, &e)
	p.mu.Lock()
	defer p.mu.Unlock()
	switch {
	case method == "Log.entryAdded" && (e.Entry.Level == "error" || e.Entry.Level == "warning"):
		p.wrong = append(p.wrong, e.Entry.Text+" "+e.Entry.URL)
	case method == "Runtime.exceptionThrown":
		p.wrong = append(p.wrong, e.ExceptionDetails.Text+" "+e.ExceptionDetails.Exception.Description)
	}
}

// complaints are what the page said was wrong, once.
func (p *tab) complaints() []string {
	p.mu.Lock()
	defer p.mu.Unlock()
	w := p.wrong
	p.wrong = nil
	return w
}

func (p *tab) do(method string, params, result any) {
	p.t.Helper()
	if err := p.b.call(p.session, method, params, result); err != nil {
		p.t.Fatal(err)
	}
}

// eval runs an expression, which may be a promise, and decodes its value.
func (p *tab) eval(expression string, result any) {
	p.t.Helper()
	var r struct {
		Result           struct{ Value json.RawMessage }
		ExceptionDetails *struct {
			Text      string
			Exception struct{ Description string }
		}
	}
	p.do("Runtime.evaluate", map[string]any{"expression": expression, "returnByValue": true, "awaitPromise": true}, &r)
	if r.ExceptionDetails != nil {
		p.t.Fatalf("%s: %s %s", expression, r.ExceptionDetails.Text, r.ExceptionDetails.Exception.Description)
	}
	if result == nil {
		return
	}
	if err := json.Unmarshal(r.Result.Value, result); err != nil {
		p.t.Fatalf("%s: %v", expression, err)
	}
}

// wait waits until an expression is true.
func (p *tab) wait(what, expression string) {
	p.t.Helper()
	deadline := time.Now().Add(90 * time.Second)
	for ok := false; ; {
		p.eval("Boolean("+expression+")", &ok)
		if ok {
			return
		}
		if time.Now().After(deadline) {
			var body string
			p.eval("document.body.innerText", &body)
			p.t.Fatalf("the page does not show %s; it shows:\n%s", what, body)
		}
		time.Sleep(100 * time.Millisecond) // between two looks, not for anything
	}
}

// press presses a key, with its Shift where asked.
func (p *tab) press(key string, code int, shift bool) {
	p.t.Helper()
	m := map[string]any{"type": "keyDown", "key": key, "code": key, "windowsVirtualKeyCode": code}
	if key == "Enter" {
		m["text"] = "\r"
	}
	if shift {
		m["modifiers"] = 8
	}
	p.do("Input.dispatchKeyEvent", m, nil)
	m["type"] = "keyUp"
	delete(m, "text")
	p.do("Input.dispatchKeyEvent", m, nil)
}

// look sets the size, and light or dark.
func (p *tab) look(width, height int, scheme string) {
	p.t.Helper()
	p.do("Emulation.setDeviceMetricsOverride", map[string]any{"width": width, "height": height, "deviceScaleFactor": 1,
		"mobile": false}, nil)
	p.do("Emulation.setEmulatedMedia", map[string]any{"features": []map[string]string{
		{"name": "prefers-color-scheme", "value": scheme}, {"name": "prefers-reduced-motion", "value": "reduce"},
	}}, nil)
}

// shoot writes a picture of the whole page into the directory that
// BROWSERTEST_PICTURES names, if it is set.
func (p *tab) shoot(name string) {
	p.t.Helper()
	dir := os.Getenv("BROWSERTEST_PICTURES")
	if dir == "" {
		return
	}
	var r struct{ Data string }
	p.do("Page.captureScreenshot", map[string]any{"format": "png", "captureBeyondViewport": true}, &r)
	b, err := base64.StdEncoding.DecodeString(r.Data)
	if err != nil {
		p.t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, name+".png"), b, 0o600); err != nil {
		p.t.Fatal(err)
	}
}

// shootFor writes a picture of the first height lines of the page, for the project's README, into the directory that
// BROWSERTEST_README names, if it is set.
func (p *tab) shootFor(name string, width, height int) {
	p.t.Helper()
	dir := os.Getenv("BROWSERTEST_README")
	if dir == "" {
		return
	}
	var r struct{ Data string }
	p.do("Page.captureScreenshot", map[string]any{"format": "webp", "quality": 80,
		"captureBeyondViewport": true, "clip": map[string]any{
			"x": 0, "y": 0, "width": width, "height": height, "scale": 1}}, &r)
	b, err := base64.StdEncoding.DecodeString(r.Data)
	if err != nil {
		p.t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, name+".webp"), b, 0o644); err != nil {
		p.t.Fatal(err)
	}
}

// helpers are functions for eval: the number on a tile of the overview.
const helpers = `function tile(label) {
	const d = [...document.querySelectorAll("#tiles div")].find((d) => d.firstChild.textContent === label);
	return d ? parseFloat(d.lastChild.firstChild.textContent) : NaN;
}`
