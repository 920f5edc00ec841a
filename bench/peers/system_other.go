//go:build !linux

package main

import (
	"net"
	"os/exec"
)

// The command refuses to run elsewhere than on Linux; this only lets it build.

func ownGroup(*exec.Cmd) {}

func signalGroup(cmd *exec.Cmd, _ bool) { cmd.Process.Kill() }

func acknowledge(net.Conn) {}

type machine struct{}

func usageNow() machine { return machine{} }

func (machine) since(machine) string { return "load unknown" }

func processor() string { return "processor unknown" }
