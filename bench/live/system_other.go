//go:build !linux

package main

import (
	"errors"
	"os/exec"
)

var errSystem = errors.New("needs Linux: the engine's package is made for it, and processes are watched through /proc")

func memoryAvailable() (int64, error)  { return 0, errSystem }
func diskFree(string) (int64, error)   { return 0, errSystem }
func ownGroup(*exec.Cmd)               {}
func signalGroup(group int, kill bool) {}
func pauseGroup(int)                   {}
func groupAlive(int) bool              { return false }
func groupMemory(int) int64            { return 0 }
func groupShared(int) []string         { return nil }
