package choosing

import (
	"bytes"
	"fmt"
	"html"
	"io"
)

// picture is an SVG image. Its colours follow whether the reader prefers a dark page; either way it has a ground of its own.
type picture struct{ b bytes.Buffer }

type point struct{ x, y float64 }

const style = `  <style>
    .ground { fill: #ffffff }
    text { fill: #1d2b3a }
    .title { font-size: 17px; font-weight: 600 }
    .name { font-size: 14px; font-weight: 600 }
    .dim { fill: #55677a; font-size: 12.5px }
    .tick { fill: #55677a; font-size: 11.5px }
    .plot { fill: #f4f7fb }
    .grid { stroke: #d9e1ea; stroke-width: 1 }
    .limit { stroke: #4a6f9c; stroke-width: 1.2; stroke-dasharray: 5 4 }
    .ok { stroke: #2c7a4b; stroke-width: 2; fill: #2c7a4b }
    .no { stroke: #c04a35; stroke-width: 2; fill: #c04a35 }
    .thin { stroke-width: 1.2 }
    .wait { stroke: #d99a2b; stroke-width: 3 }
    .line { stroke: #2b6cb0; stroke-width: 2; fill: none; stroke-linejoin: round }
    .other { stroke: #c04a35; stroke-width: 2; fill: none; stroke-linejoin: round }
    .area { fill: #9cc4ea; fill-opacity: 0.45; stroke: none }
    @media (prefers-color-scheme: dark) {
      .ground { fill: #12181f }
      text { fill: #dfe7ef }
      .dim, .tick { fill: #9fb0c2 }
      .plot { fill: #1a232d }
      .grid { stroke: #2c3947 }
      .limit { stroke: #86add8 }
      .ok { stroke: #58c283; fill: #58c283 }
      .no { stroke: #f0806b; fill: #f0806b }
      .thin { stroke-width: 1.2 }
    .wait { stroke: #e8b65a }
      .line { stroke: #6fb1f0 }
      .other { stroke: #f0806b }
      .area { fill: #2f6aa3 }
    }
  </style>
`

func newPicture(width, height float64, title string) *picture {
	p := &picture{}
	fmt.Fprintf(&p.b, `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %g %g" font-family="system-ui, sans-serif" `+
		`font-size="14" role="img" aria-labelledby="t">`+"\n", width, height)
	fmt.Fprintf(&p.b, "  <title id=\"t\">%s</title>\n%s", html.EscapeString(title), style)
	fmt.Fprintf(&p.b, "  <rect class=\"ground\" width=\"%g\" height=\"%g\" rx=\"10\"/>\n", width, height)
	return p
}

func (p *picture) text(x, y float64, class, anchor, text string) {
	fmt.Fprintf(&p.b, "  <text class=%q x=\"%.1f\" y=\"%.1f\" text-anchor=%q>%s</text>\n", class, x, y, anchor,
		html.EscapeString(text))
}

func (p *picture) rect(class string, x, y, width, height float64) {
	fmt.Fprintf(&p.b, "  <rect class=%q x=\"%.1f\" y=\"%.1f\" width=\"%.1f\" height=\"%.1f\"/>\n", class, x, y, width, height)
}

func (p *picture) stroke(class string, x1, y1, x2, y2 float64) {
	fmt.Fprintf(&p.b, "  <path class=%q d=\"M%.1f %.1fL%.1f %.1f\"/>\n", class, x1, y1, x2, y2)
}

// dashed is a stroke whose class has dashes.
func (p *picture) dashed(class string, x1, y1, x2, y2 float64) { p.stroke(class, x1, y1, x2, y2) }

func (p *picture) dot(class string, x, y, radius float64) {
	fmt.Fprintf(&p.b, "  <circle class=%q cx=\"%.1f\" cy=\"%.1f\" r=\"%.1f\"/>\n", class, x, y, radius)
}

// line is a line through points.
func (p *picture) line(class string, points []point) {
	fmt.Fprintf(&p.b, "  <path class=%q d=\"%s\"/>\n", class, path(points))
}

// area is a line with what is between it and the floor.
func (p *picture) area(points []point, left, right, floor float64) {
	fmt.Fprintf(&p.b, "  <path class=\"area\" d=\"%sL%.1f %.1fL%.1f %.1fz\"/>\n", path(points), right, floor, left, floor)
	p.line("line", points)
}

func path(points []point) string {
	var b bytes.Buffer
	for i, at := range points {
		letter := 'L'
		if i == 0 {
			letter = 'M'
		}
		fmt.Fprintf(&b, "%c%.1f %.1f", letter, at.x, at.y)
	}
	return b.String()
}

func (p *picture) write(w io.Writer) error {
	p.b.WriteString("</svg>\n")
	_, err := w.Write(p.b.Bytes())
	return err
}
