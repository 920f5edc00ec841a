// Package browsertest has the tests of package debugui's page in a real browser: a
// headless Chromium, driven over its DevTools protocol. They are skipped if none is
// installed, and need Unix. It is a module of its own so that the router's does not start browsers
// in its tests.
package browsertest
