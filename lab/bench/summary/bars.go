package summary

import (
	"fmt"
	"html"
	"slices"
	"strconv"
	"strings"
)

// bars is a picture: a bar for each limiter of a figure.
type bars struct {
	file, title, note string
	summary           string
	figure            int
	without           []string
}

func pictures() []bars {
	return []bars{
		{
			file: "benchmarks-keys.svg", title: "A million keys, two goroutines: nanoseconds a call", note: "shorter is better",
			summary: "many keys", figure: 1,
		},
		{
			file: "benchmarks-redis.svg", title: "Limits in Redis, 1024 keys, 256 callers: decisions a second",
			note: "longer is better", summary: "Redis", figure: 1, without: []string{"weir leased", "weir optimistic"},
		},
	}
}

const style = `  <style>
    .ground { fill: #ffffff }
    text { fill: #1d2b3a }
    .title { font-size: 17px; font-weight: 600 }
    .dim { fill: #55677a; font-size: 12.5px }
    .weir { fill: #2b6cb0 }
    .peer { fill: #9cb3c9 }
    .floor { fill: #d9e1ea }
    @media (prefers-color-scheme: dark) {
      .ground { fill: #12181f }
      text { fill: #dfe7ef }
      .dim { fill: #9fb0c2 }
      .weir { fill: #6fb1f0 }
      .peer { fill: #4a6079 }
      .floor { fill: #2c3947 }
    }
  </style>
`

// draw returns the picture as SVG.
func (p bars) draw(r rawTables) (string, error) {
	all := summaries()
	s := all[slices.IndexFunc(all, func(s summary) bool { return s.name == p.summary })]
	type bar struct {
		name, class string
		value       float64
	}
	var drawn []bar
	longest := 0.0
	for _, l := range s.limiters {
		if slices.Contains(p.without, l.name) {
			continue
		}
		text, err := s.figures[p.figure].value(r, l)
		if err != nil {
			return "", err
		}
		value, err := strconv.ParseFloat(text, 64)
		if err != nil {
			return "", fmt.Errorf("summary: %s of %s is %q: must be a number", s.figures[p.figure].head, l.name, text)
		}
		b := bar{l.name, "peer", value}
		switch {
		case strings.HasPrefix(l.name, "weir"):
			b.class = "weir"
		case strings.HasSuffix(l.name, "(floor)"), l.name == "table+clock":
			b.name, b.class = strings.TrimSuffix(l.name, " (floor)")+" (floor)", "floor"
		}
		drawn = append(drawn, b)
		longest = max(longest, value)
	}
	const left, right, top, step = 190.0, 690.0, 66.0, 26.0
	var b strings.Builder
	height := top + step*float64(len(drawn)) + 14
	fmt.Fprintf(&b, `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 780 %g" font-family="system-ui, sans-serif" `+
		`font-size="14" role="img" aria-labelledby="t">`+"\n", height)
	fmt.Fprintf(&b, "  <title id=\"t\">%s</title>\n%s", html.EscapeString(p.title), style)
	fmt.Fprintf(&b, "  <rect class=\"ground\" width=\"780\" height=\"%g\" rx=\"10\"/>\n", height)
	fmt.Fprintf(&b, "  <text class=\"title\" x=\"24\" y=\"32\">%s</text>\n", html.EscapeString(p.title))
	fmt.Fprintf(&b, "  <text class=\"dim\" x=\"24\" y=\"52\">%s</text>\n", html.EscapeString(p.note))
	for i, bar := range drawn {
		y := top + step*float64(i)
		width := (right - left) * bar.value / longest
		fmt.Fprintf(&b, "  <text x=\"%g\" y=\"%g\" text-anchor=\"end\">%s</text>\n", left-10, y+15, html.EscapeString(bar.name))
		fmt.Fprintf(&b, "  <rect class=%q x=\"%g\" y=\"%g\" width=\"%.1f\" height=\"19\" rx=\"2\"/>\n", bar.class, left, y, width)
		fmt.Fprintf(&b, "  <text class=\"dim\" x=\"%.1f\" y=\"%g\">%g</text>\n", left+width+8, y+14, bar.value)
	}
	b.WriteString("</svg>\n")
	return b.String(), nil
}
