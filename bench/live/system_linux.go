package main

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"syscall"
)

// memoryAvailable returns the bytes that new programs can have without swapping.
func memoryAvailable() (int64, error) {
	b, err := os.ReadFile("/proc/meminfo")
	if err != nil {
		return 0, err
	}
	_, rest, _ := strings.Cut(string(b), "MemAvailable:")
	var kb int64
	if _, err := fmt.Sscan(rest, &kb); err != nil {
		return 0, fmt.Errorf("no MemAvailable in /proc/meminfo: %w", err)
	}
	return kb << 10, nil
}

// diskFree returns the bytes that are free for the file system of dir.
func diskFree(dir string) (int64, error) {
	var s syscall.Statfs_t
	if err := syscall.Statfs(dir, &s); err != nil {
		return 0, fmt.Errorf("%s: %w", dir, err)
	}
	return int64(s.Bavail) * int64(s.Bsize), nil
}

// ownGroup makes cmd the first of a process group, and of a session: a scheduler that
// shares by session then sees to it that none starves.
func ownGroup(cmd *exec.Cmd) { cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true} }

func signalGroup(group int, kill bool) {
	sig := syscall.SIGTERM
	if kill {
		sig = syscall.SIGKILL
	}
	syscall.Kill(-group, sig)
}

// pauseGroup stops a group's processes, so that they take connections and answer nothing.
func pauseGroup(group int) { syscall.Kill(-group, syscall.SIGSTOP) }

// groupAlive reports whether a process of the group is left that is not merely
// waiting for its parent to look at it.
func groupAlive(group int) bool { return len(groupMembers(group)) > 0 }

func groupMembers(group int) []int {
	stats, _ := filepath.Glob("/proc/[0-9]*/stat")
	var pids []int
	for _, path := range stats {
		b, err := os.ReadFile(path)
		if err != nil {
			continue // it has ended
		}
		if pid, state, g, ok := parseStat(b); ok && g == group && state != "Z" {
			pids = append(pids, pid)
		}
	}
	return pids
}

// parseStat reads a line of /proc/PID/stat. Its second field is the program's
// name in parentheses, which may hold anything.
func parseStat(b []byte) (pid int, state string, group int, ok bool) {
	open, end := bytes.IndexByte(b, '('), bytes.LastIndexByte(b, ')')
	if open < 0 || end < open {
		return 0, "", 0, false
	}
	pid, err := strconv.Atoi(string(bytes.TrimSpace(b[:open])))
	f := bytes.Fields(b[end+1:])
	if err != nil || len(f) < 3 {
		return 0, "", 0, false
	}
	group, err = strconv.Atoi(string(f[2]))
	return pid, string(f[0]), group, err == nil
}

// groupMemory returns the resident bytes of a group's processes, added up.
func groupMemory(group int) int64 {
	var sum int64
	for _, pid := range groupMembers(group) {
		b, _ := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
		_, rest, _ := strings.Cut(string(b), "VmRSS:")
		var kb int64
		fmt.Sscan(rest, &kb) // a process that is ending has none
		sum += kb << 10
	}
	return sum
}

var sharedMemory = regexp.MustCompile(`/dev/shm/[A-Za-z0-9_.-]+`)

// groupShared returns the files in shared memory that a group's processes have
// mapped: who is killed leaves them behind.
func groupShared(group int) []string {
	var files []string
	for _, pid := range groupMembers(group) {
		b, _ := os.ReadFile(fmt.Sprintf("/proc/%d/maps", pid))
		files = append(files, sharedMemory.FindAllString(string(b), -1)...)
	}
	return files
}
