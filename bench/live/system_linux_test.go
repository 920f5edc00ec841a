package main

import (
	"context"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"
)

func TestMain(m *testing.M) {
	if len(os.Args) > 2 && os.Args[1] == keeper {
		os.Exit(keep(os.Args[2:]))
	}
	os.Exit(m.Run())
}

// family starts a program with a child of its own and waits until both run.
func family(t *testing.T) *process {
	t.Helper()
	dir := t.TempDir()
	p, err := start("family", dir, []string{"PATH=" + os.Getenv("PATH")}, "sh", "-c", "sleep 600 & echo here; sleep 600")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { p.kill() })
	eventually(t, "both run", func() bool {
		return len(groupMembers(p.group())) == 4 &&
			strings.Contains(p.said(), "here")
	})
	return p
}

func eventually(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for end := time.Now().Add(30 * time.Second); !ok(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("it never came about that %s", what)
		}
	}
}

// However a program ends, all that it started ends with it.
func TestProcess(t *testing.T) {
	for name, end := range map[string]func(*process) error{
		"stopped": (*process).stop,
		"killed":  (*process).kill,
		"its starter is gone": func(p *process) error {
			return p.stdin.Close()
		},
	} {
		p := family(t)
		if groupMemory(p.group()) <= 0 {
			t.Errorf("%s: no memory", name)
		}
		if err := end(p); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		eventually(t, name+": the group is empty", func() bool { return p.done() && !groupAlive(p.group()) })
	}
}

func TestAwait(t *testing.T) {
	var asked atomic.Int32
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if asked.Add(1) < 3 {
			w.WriteHeader(http.StatusServiceUnavailable)
		}
	}))
	defer s.Close()
	p := family(t)
	if err := p.await(context.Background(), s.URL, time.Minute); err != nil || asked.Load() != 3 {
		t.Errorf("%v after %d requests", err, asked.Load())
	}
	s.Close()
	if err := p.await(context.Background(), s.URL, 300*time.Millisecond); err == nil ||
		!strings.Contains(err.Error(), "does not answer") {
		t.Errorf("nobody there: %v", err)
	}
	p.kill()
	if err := p.await(context.Background(), s.URL, time.Minute); err == nil || !strings.Contains(err.Error(), "here") {
		t.Errorf("it has ended: %v", err)
	}
}

// What a killed group had in shared memory goes with it.
func TestShared(t *testing.T) {
	found := sharedMemory.FindAllString("7f-80 rw-s 0 00:01 12 /dev/shm/psm_12ab\n80-90 rw-p 0 0 /usr/lib/x\n90-a0 rw-s "+
		"0 0 /dev/shm/psm_34 (deleted)\n", -1)
	if len(found) != 2 || found[0] != "/dev/shm/psm_12ab" || found[1] != "/dev/shm/psm_34" {
		t.Errorf("%q", found)
	}
	p := family(t)
	file := filepath.Join(t.TempDir(), "left")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := p.end([]string{file, file}); err != nil {
		t.Error(err)
	}
	if _, err := os.Stat(file); !os.IsNotExist(err) {
		t.Errorf("it is still there: %v", err)
	}
}

func TestParseStat(t *testing.T) {
	for line, want := range map[string]bool{
		"12 (a (b) c) S 1 34 34 0": true,
		"12 (a) Z 1 34":            true,
		"12 (a) S":                 false,
		"12 a":                     false,
		"":                         false,
		") (":                      false,
	} {
		pid, _, group, ok := parseStat([]byte(line))
		if ok != want || ok && (pid != 12 || group != 34) {
			t.Errorf("%q: %d, %d, %v", line, pid, group, ok)
		}
	}
	if b, err := memoryAvailable(); err != nil || b <= 0 {
		t.Errorf("%d bytes of memory, %v", b, err)
	}
	if b, err := diskFree(t.TempDir()); err != nil || b <= 0 {
		t.Errorf("%d bytes of disk, %v", b, err)
	}
}
