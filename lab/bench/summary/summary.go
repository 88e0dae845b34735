package summary

import (
	"fmt"
	"maps"
	"slices"
	"strings"
)

// Page returns the page with its tables made anew of the raw ones. A table stands between a mark with its name and one for its
// end.
func Page(page, raw string) (string, error) {
	r := read(raw)
	tables := map[string]func(r rawTables) (string, error){"ratios": ratioTable}
	for _, s := range summaries() {
		tables[s.name] = s.markdown
	}
	for _, name := range slices.Sorted(maps.Keys(tables)) {
		table, err := tables[name](r)
		if err != nil {
			return "", err
		}
		begin, end := "<!-- table: "+name+" -->\n", "<!-- end of table -->\n"
		before, rest, ok := strings.Cut(page, begin)
		_, after, closed := strings.Cut(rest, end)
		if !ok || !closed {
			return "", fmt.Errorf("summary: the page has no place between %q and %q", begin, end)
		}
		page = before + begin + "\n" + table + "\n" + end + after
	}
	return page, nil
}

// Pictures returns the pictures of the page by the names of their files.
func Pictures(raw string) (map[string]string, error) {
	r := read(raw)
	files := map[string]string{}
	for _, p := range pictures() {
		picture, err := p.draw(r)
		if err != nil {
			return nil, err
		}
		files[p.file] = picture
	}
	return files, nil
}
