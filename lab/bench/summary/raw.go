package summary

import (
	"fmt"
	"maps"
	"slices"
	"strings"
)

// rawTable is a table of a page: its head and its rows.
type rawTable [][]string

// rawTables are the tables of a page, by the heading above them.
type rawTables map[string][]rawTable

// read finds the tables of a page.
func read(page string) rawTables {
	found := rawTables{}
	heading, within := "", false
	for line := range strings.Lines(page) {
		line = strings.TrimSpace(line)
		if _, name, ok := strings.Cut(line, "# "); ok && strings.HasPrefix(line, "#") {
			heading = name
		}
		if !strings.HasPrefix(line, "| ") {
			within = false
			continue
		}
		if !within {
			found[heading] = append(found[heading], nil)
		}
		within = true
		if strings.HasPrefix(line, "| ---") {
			continue
		}
		cells := strings.Split(strings.Trim(line, "|"), "|")
		for i, cell := range cells {
			cells[i] = strings.TrimSpace(cell)
		}
		tables := found[heading]
		tables[len(tables)-1] = append(tables[len(tables)-1], cells)
	}
	return found
}

// cell is where a figure stands: below a heading, in the table that has all columns that are named, in the first row that has
// what is wanted in them.
type cell struct {
	heading string
	want    map[string]string
	column  string
}

// by is the cell of a limiter, in the same place.
func (c cell) by(name string) cell {
	want := maps.Clone(c.want)
	if want == nil {
		want = map[string]string{}
	}
	want["by"] = name
	return cell{c.heading, want, c.column}
}

// find returns the text of a cell, or "" if no row is like that: not every limiter can do everything.
func (r rawTables) find(c cell) (string, error) {
	tables := r[c.heading]
	at := slices.IndexFunc(tables, func(t rawTable) bool {
		for name := range c.want {
			if !slices.Contains(t[0], name) {
				return false
			}
		}
		return slices.Contains(t[0], c.column)
	})
	if at < 0 {
		return "", fmt.Errorf("summary: no table below %q has the columns %q and %q", c.heading, c.want, c.column)
	}
	table := tables[at]
	for _, row := range table[1:] {
		fits := len(row) == len(table[0])
		for name, text := range c.want {
			fits = fits && row[slices.Index(table[0], name)] == text
		}
		if fits {
			return row[slices.Index(table[0], c.column)], nil
		}
	}
	return "", nil
}
