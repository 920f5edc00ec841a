package main

import (
	"fmt"
	"io"
	"text/tabwriter"
)

// row is one line of the table.
type row struct {
	what     string
	measured string
	budget   string // "" for a reading
	pass     bool   // if there is a budget
}

// table collects rows as they are measured.
type table struct {
	rows []row
	log  io.Writer // progress, one line each
}

func (t *table) say(format string, a ...any) { fmt.Fprintf(t.log, format+"\n", a...) }

// reading adds a row without a budget.
func (t *table) reading(what, format string, a ...any) {
	t.rows = append(t.rows, row{what: what, measured: fmt.Sprintf(format, a...)})
}

// check adds a row with a budget.
func (t *table) check(what, budget string, pass bool, format string, a ...any) {
	t.rows = append(t.rows, row{what: what, measured: fmt.Sprintf(format, a...), budget: budget, pass: pass})
}

// print writes the table and returns how many budgets were missed.
func (t *table) print(w io.Writer) (missed int) {
	tw := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(tw, "what\tmeasured\tbudget\t")
	for _, r := range t.rows {
		verdict := ""
		switch {
		case r.budget == "":
		case r.pass:
			verdict = "pass"
		default:
			verdict = "FAIL"
			missed++
		}
		fmt.Fprintf(tw, "%s\t%s\t%s\t%s\n", r.what, r.measured, r.budget, verdict)
	}
	tw.Flush()
	return missed
}
