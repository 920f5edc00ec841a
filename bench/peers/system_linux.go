package main

import (
	"bytes"
	"fmt"
	"net"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// ownGroup makes cmd the first of a process group, which the kernel kills with
// this process.
func ownGroup(cmd *exec.Cmd) {
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
}

// signalGroup asks cmd's group to end, or kills it.
func signalGroup(cmd *exec.Cmd, kill bool) {
	sig := syscall.SIGTERM
	if kill {
		sig = syscall.SIGKILL
	}
	syscall.Kill(-cmd.Process.Pid, sig)
}

// acknowledge makes the kernel acknowledge immediately all data that c has
// received and will receive, until the kernel returns to its default.
func acknowledge(c net.Conn) {
	tcp, ok := c.(*net.TCPConn)
	if !ok {
		return
	}
	raw, err := tcp.SyscallConn()
	if err != nil {
		return
	}
	raw.Control(func(fd uintptr) {
		syscall.SetsockoptInt(int(fd), syscall.IPPROTO_TCP, syscall.TCP_QUICKACK, 1)
	})
}

// machine is the usage of the machine's processors until a moment.
type machine struct {
	at         time.Time
	busy, ours time.Duration
}

func usageNow() machine {
	m := machine{at: time.Now()}
	if b, err := os.ReadFile("/proc/stat"); err == nil {
		line, _, _ := strings.Cut(string(b), "\n")
		for i, f := range strings.Fields(line)[1:] {
			// user, nice, system, idle, iowait, irq, softirq, steal; guests are in user.
			if n, err := strconv.ParseInt(f, 10, 64); err == nil && i != 3 && i != 4 && i < 8 {
				m.busy += time.Duration(n) * tick
			}
		}
	}
	for _, who := range []int{syscall.RUSAGE_SELF, syscall.RUSAGE_CHILDREN} {
		var r syscall.Rusage
		if syscall.Getrusage(who, &r) == nil {
			m.ours += time.Duration(r.Utime.Nano() + r.Stime.Nano())
		}
	}
	return m
}

// since returns the usage of the machine's processors by other programs since
// before, while nothing of ours ran, and the load averages.
func (m machine) since(before machine) string {
	others := (m.busy - before.busy) - (m.ours - before.ours)
	load, _ := os.ReadFile("/proc/loadavg")
	f := strings.Fields(string(load) + " ? ? ?")
	return fmt.Sprintf("%.0f s, other programs used %.2f processors; load averages at its end %s, %s, %s",
		m.at.Sub(before.at).Seconds(), max(0, others.Seconds()/m.at.Sub(before.at).Seconds()), f[0], f[1], f[2])
}

// processor returns the name of the machine's processor.
func processor() string {
	b, _ := os.ReadFile("/proc/cpuinfo")
	for line := range bytes.Lines(b) {
		if k, v, ok := strings.Cut(string(line), ":"); ok && strings.TrimSpace(k) == "model name" {
			return strings.TrimSpace(v)
		}
	}
	return "processor unknown"
}
