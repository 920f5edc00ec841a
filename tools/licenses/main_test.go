package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

const isc = `ISC License

Copyright (c) 2020, Somebody

Permission to use, copy, modify, and/or distribute this software for any
purpose with or without fee is hereby granted, provided that the above
copyright notice and this permission notice appear in all copies.

THE SOFTWARE IS PROVIDED "AS IS" AND THE AUTHOR DISCLAIMS ALL WARRANTIES WITH
REGARD TO THIS SOFTWARE INCLUDING ALL IMPLIED WARRANTIES OF MERCHANTABILITY
AND FITNESS. IN NO EVENT SHALL THE AUTHOR BE LIABLE FOR ANY SPECIAL, DIRECT,
INDIRECT, OR CONSEQUENTIAL DAMAGES OR ANY DAMAGES WHATSOEVER RESULTING FROM
LOSS OF USE, DATA OR PROFITS, WHETHER IN AN ACTION OF CONTRACT, NEGLIGENCE OR
OTHER TORTIOUS ACTION, ARISING OUT OF OR IN CONNECTION WITH THE USE OR
PERFORMANCE OF THIS SOFTWARE.
`

const gpl = `This program is free software: you can redistribute it and/or modify
it under the terms of the GNU General Public License as published by
the Free Software Foundation, either version 3 of the License, or
(at your option) any later version.
`

func TestLicences(t *testing.T) {
	for _, c := range []struct {
		name  string
		files map[string]string
		want  string
		fails string
	}{
		{"known", map[string]string{"LICENSE": isc, "main.go": gpl}, "ISC", ""},
		{"spelt otherwise", map[string]string{"licence.md": isc}, "ISC", ""},
		{"none", map[string]string{"README": isc}, "", "no licence file"},
		{"copyleft", map[string]string{"COPYING": gpl}, "GPL-3.0-or-later", "not among"},
		{"one of each", map[string]string{"LICENSE": isc, "COPYING.lib": gpl}, "GPL-3.0-or-later ISC", "not among"},
		{"unheard of", map[string]string{"LICENSE": strings.Repeat("Do as you please on Mondays. ", 20)}, "",
			"0 % known text"},
		{"with a rider", map[string]string{"LICENSE": isc + strings.Repeat("But not on Mondays, and never for money. ", 20)},
			"ISC", "known text"},
	} {
		dir := t.TempDir()
		for name, text := range c.files {
			if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644); err != nil {
				t.Fatal(err)
			}
		}
		got, err := licences(dir)
		if strings.Join(got, " ") != c.want || (err == nil) != (c.fails == "") || err != nil &&
			!strings.Contains(err.Error(), c.fails) {
			t.Errorf("%s: %v, %v", c.name, got, err)
		}
	}
}

// TestExceptions: an exception is for examples, and for the licence that it names.
func TestExceptions(t *testing.T) {
	const mysql = "github.com/go-sql-driver/mysql"
	mpl := "Mozilla Public License, version 2.0\n\nThis Source Code Form is subject to the terms of the Mozilla Public " +
		"License, v. 2.0.\n" +
		"If a copy of the MPL was not distributed with this file, You can obtain one at http://mozilla.org/MPL/2.0/.\n"
	for _, c := range []struct {
		name, text string
		by         []string
		ok         bool
	}{
		{mysql, mpl, []string{"examples/caddy"}, true},
		{mysql, mpl, []string{"examples/caddy", "."}, false},
		{mysql, mpl, []string{"contrib/otel"}, false},
		{mysql, gpl, []string{"examples/caddy"}, false},
		{"example.com/other", mpl, []string{"examples/caddy"}, false},
	} {
		dir := t.TempDir()
		if err := os.WriteFile(filepath.Join(dir, "LICENSE"), []byte(c.text), 0o644); err != nil {
			t.Fatal(err)
		}
		text, err := page(map[string]*linked{c.name: {dir: dir, by: c.by}})
		if (err == nil) != c.ok || strings.Contains(string(text), "Exceptions") != c.ok {
			t.Errorf("%s by %v: %v", c.name, c.by, err)
		}
	}
}

// TestUpToDate lists what a module links that needs what this one needs, and reports
// when that has changed.
func TestUpToDate(t *testing.T) {
	root := t.TempDir()
	write := func(name, text string) {
		t.Helper()
		if err := os.MkdirAll(filepath.Dir(filepath.Join(root, name)), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(root, name), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	write("go.mod", "module example.com/m\n\ngo 1.26\n\nrequire (\n\texample.com/n "+
		"v0.0.0\n\tgithub.com/google/licensecheck v0.3.1\n)\n\nreplace example.com/n => ./n\n")
	write("m.go", "package m\n\nimport _ \"example.com/n\"\n")
	write("m_test.go", "package m\n\nimport _ \"github.com/google/licensecheck\"\n")
	write("n/go.mod", "module example.com/n\n\ngo 1.26\n")
	write("n/n.go", "package n\n")
	sum, err := os.ReadFile("../go.sum")
	if err != nil {
		t.Fatal(err)
	}
	write("go.sum", string(sum))

	const line = "| github.com/google/licensecheck | BSD-3-Clause | . |\n"
	dirs := []string{".", "n"}
	check := func(what, fails string) {
		t.Helper()
		if err := run(root, "L.md", false, dirs); fails == "" && err != nil || fails != "" &&
			(err == nil || !strings.Contains(err.Error(), fails)) {
			t.Errorf("%s: %v, want %q", what, err, fails)
		}
	}
	read := func() string {
		t.Helper()
		if err := run(root, "L.md", true, dirs); err != nil {
			t.Fatal(err)
		}
		text, err := os.ReadFile(filepath.Join(root, "L.md"))
		if err != nil {
			t.Fatal(err)
		}
		return string(text)
	}
	check("no file", "no such file")
	if text := read(); strings.Contains(text, "licensecheck") || strings.Contains(text, "example.com") {
		t.Errorf("what only tests need, or what is ours, is listed:\n%s", text)
	}
	check("just written", "")
	write("m.go", "//go:build libzmq\n\npackage m\n\nimport _ \"github.com/google/licensecheck\"\n")
	check("linked in one build", "not up to date")
	if text := read(); !strings.Contains(text, line) {
		t.Errorf("not listed:\n%s", text)
	}
	check("written again", "")
}
