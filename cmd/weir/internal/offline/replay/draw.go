package replay

import (
	"bytes"
	"fmt"
	"html"
	"slices"
	"time"

	"github.com/weirhq/weir/cmd/weir/internal/terminal"
)

// Picture is what is drawn.
type Picture struct {
	// Title is the heading, Subtitle the line below it.
	Title, Subtitle string
	// Start is the time of the first step, and Step how long each is.
	Start time.Time
	Step  time.Duration
	// Groups stand one below the other: at least one.
	Groups []Group
}

// Group is the panels of one policy, which have the same scale.
type Group struct {
	Name   string
	Panels []Panel
}

// Panel is a course of time.
type Panel struct {
	// Caption stands above the panel.
	Caption string
	// Allowed and Refused are counts of requests in each step, equally many and at least one.
	Allowed, Refused []int64
	// Before are the requests that another course has allowed, drawn as a line: nil for none.
	Before []int64
	// BeforeName is what the legend says of that line.
	BeforeName string
}

// max is the highest step of all panels, at least 1.
func (g *Group) max() int64 {
	highest := int64(1)
	for _, panel := range g.Panels {
		for i := range panel.Allowed {
			highest = max(highest, panel.Allowed[i]+panel.Refused[i])
		}
	}
	return highest
}

// Sizes of what is drawn.
const (
	width        = 980
	edge         = 26
	heading      = 104 // title, subtitle and legend
	groupName    = 32
	chartCaption = 25
	panelHeight  = 98
	between      = 13 // below a panel that has another one below it
	axisHeight   = 36 // the labels of the times below a group
	yLabels      = 57
	bottom       = 13

	left  = edge + yLabels // of the area of a panel
	right = width - edge
)

// style has blue and vermilion, which also the colour-blind can tell apart, on paper that is as light or dark as the screen.
const style = `<style>
svg {
--paper: #fff; --ink: #222; --grey: #5a5a5a; --grid: #e2e2e2;
--allowed: #8db9da; --refused: #d55e00; --before: #102a43;
}
@media (prefers-color-scheme: dark) {
svg {
--paper: #14181d; --ink: #eee; --grey: #aab2bb; --grid: #333b44;
--allowed: #3f7ba6; --refused: #e8762c; --before: #d6e8f7;
}
}
text { font: 12px "Liberation Sans", Arial, Helvetica, sans-serif; fill: var(--grey); }
.title { font-size: 21px; font-weight: bold; fill: var(--ink); }
.name { font-size: 16px; font-weight: bold; fill: var(--ink); }
.text { font-size: 13px; }
.paper { fill: var(--paper); }
.grid { stroke: var(--grid); }
.axis { stroke: var(--grey); }
.allowed { fill: var(--allowed); }
.refused { fill: var(--refused); }
.before { stroke: var(--before); stroke-width: 1.3; fill: none; }
</style>`

// canvas is an SVG in the making. Its y grows downwards.
type canvas struct{ bytes.Buffer }

func (c *canvas) addf(format string, args ...any) { fmt.Fprintf(c, format+"\n", args...) }

// write writes a line of text whose base is at y. At the edge of the picture it is cut off.
func (c *canvas) write(class, anchor string, x, y float64, line string) {
	c.addf(`<text class="%s" text-anchor="%s" x="%.5g" y="%.5g">%s</text>`, class, anchor, x, y, html.EscapeString(line))
}

func (c *canvas) line(class string, x1, y1, x2, y2 float64) {
	c.addf(`<path class="%s" d="M%.5g %.5gL%.5g %.5g"/>`, class, x1, y1, x2, y2)
}

// SVG returns the picture as a file of that format.
func (p *Picture) SVG() []byte {
	height := heading + bottom
	for _, g := range p.Groups {
		height += groupName + axisHeight + len(g.Panels)*(chartCaption+panelHeight) + (len(g.Panels)-1)*between
	}
	var c canvas
	c.addf(`<svg xmlns="http://www.w3.org/2000/svg" width="%d" height="%d" viewBox="0 0 %[1]d %[2]d">`, width, height)
	c.addf("%s", style)
	c.addf(`<rect class="paper" width="%d" height="%d"/>`, width, height)
	c.write("title", "start", edge, 40, p.Title)
	c.write("text", "start", edge, 64, p.Subtitle)
	p.legend(&c, 93)
	y := float64(heading)
	for _, g := range p.Groups {
		c.write("name", "start", edge, y+22, g.Name)
		y += groupName
		for i, panel := range g.Panels {
			c.write("text", "start", edge, y+15, panel.Caption)
			y += chartCaption
			last := i == len(g.Panels)-1
			p.panel(&c, &panel, y, g.max(), last)
			y += panelHeight
			if last {
				y += axisHeight
			} else {
				y += between
			}
		}
	}
	c.addf("</svg>")
	return c.Bytes()
}

// legend has the colours, and the line of the first panel that has one.
func (p *Picture) legend(c *canvas, y float64) {
	x := float64(edge)
	for _, name := range []string{"allowed", "refused"} {
		c.addf(`<rect class="%s" x="%.5g" y="%.5g" width="12" height="12"/>`, name, x, y-11)
		c.write("text", "start", x+20, y, name)
		x += 100
	}
	for _, g := range p.Groups {
		for _, panel := range g.Panels {
			if panel.Before != nil {
				c.line("before", x, y-5, x+26, y-5)
				c.write("text", "start", x+34, y, panel.BeforeName)
				return
			}
		}
	}
}

// panel draws one whose area begins at top, and highest is what its group needs room for.
func (p *Picture) panel(c *canvas, panel *Panel, top float64, highest int64, last bool) {
	steps := len(panel.Allowed)
	const room = 1.06 // above the highest
	area := area{
		base: top + panelHeight, step: float64(right-left) / float64(steps), one: panelHeight / (float64(highest) * room),
	}
	for _, n := range countTicks(highest) {
		y := area.base - float64(n)*area.one
		c.line("grid", left, y, right, y)
		c.write("count", "end", left-6, y+4, terminal.Number(n))
	}
	end := p.Start.Add(time.Duration(steps) * p.Step)
	for _, tick := range timeTicks(p.Start, end) {
		x := left + float64(tick.at.Sub(p.Start))/float64(p.Step)*area.step
		c.line("grid", x, top, x, area.base)
		if last {
			c.line("axis", x, area.base, x, area.base+4)
			c.write("time", "middle", x, area.base+17, tick.label)
			c.write("time", "middle", x, area.base+31, tick.date)
		}
	}
	sum := make([]int64, steps)
	for i := range sum {
		sum[i] = panel.Allowed[i] + panel.Refused[i]
	}
	c.addf(`<path class="refused" d="%s"/>`, area.filled(panel.Allowed, sum))
	c.addf(`<path class="allowed" d="%s"/>`, area.filled(make([]int64, steps), panel.Allowed))
	if panel.Before != nil && !slices.Equal(panel.Before, panel.Allowed) {
		outline := area.stairs(panel.Before, 0, len(panel.Before))
		c.addf(`<path class="before" d="M%d %.5g%s"/>`, left, area.y(panel.Before[0]), outline)
	}
	c.line("axis", left, area.base, right, area.base)
}

// area is where the counts of a panel are drawn: how wide a step is, and how high one request.
type area struct{ base, step, one float64 }

func (a area) x(step int) float64 { return left + float64(step)*a.step }
func (a area) y(n int64) float64  { return a.base - float64(n)*a.one }

// stairs goes along the counts from one step to another one, each of which holds for a whole step. Where from is after to,
// it goes backwards.
func (a area) stairs(counts []int64, from, to int) string {
	var b bytes.Buffer
	for i := from; i < to; i++ {
		fmt.Fprintf(&b, "V%.5gH%.5g", a.y(counts[i]), a.x(i+1))
	}
	for i := from; i > to; i-- {
		fmt.Fprintf(&b, "V%.5gH%.5g", a.y(counts[i-1]), a.x(i-1))
	}
	return b.String()
}

// filled is what lies between two courses of counts, in a piece of its own for each run of steps that have something to fill.
func (a area) filled(from, to []int64) string {
	var b bytes.Buffer
	for i := 0; i < len(to); i++ {
		end := i
		for end < len(to) && from[end] != to[end] {
			end++
		}
		if end > i {
			fmt.Fprintf(&b, "M%.5g %.5g%s%sZ", a.x(i), a.y(from[i]), a.stairs(to, i, end), a.stairs(from, end, i))
			i = end
		}
	}
	return b.String()
}

// spacings are distances between two labels that people are used to.
var spacings = []time.Duration{
	time.Millisecond, 2 * time.Millisecond, 5 * time.Millisecond,
	10 * time.Millisecond, 20 * time.Millisecond, 50 * time.Millisecond,
	100 * time.Millisecond, 200 * time.Millisecond, 500 * time.Millisecond,
	time.Second, 2 * time.Second, 5 * time.Second, 10 * time.Second, 15 * time.Second, 30 * time.Second,
	time.Minute, 2 * time.Minute, 5 * time.Minute, 10 * time.Minute, 15 * time.Minute, 30 * time.Minute,
	time.Hour, 2 * time.Hour, 3 * time.Hour, 6 * time.Hour, 12 * time.Hour,
	day, 2 * day, 7 * day, 14 * day, 28 * day, 91 * day, 182 * day, 364 * day, 5 * 364 * day, 20 * 364 * day,
}

// mostLabels is how many labels of a time have room below a panel.
const mostLabels = 12

// timeTick is a time that is marked. Its date is empty where it is that of the label before.
type timeTick struct {
	at          time.Time
	label, date string
}

// timeTicks marks the times from start to end.
func timeTicks(start, end time.Time) (ticks []timeTick) {
	spacing := spacings[len(spacings)-1]
	for _, s := range spacings {
		if end.Sub(start) <= s*mostLabels {
			spacing = s
			break
		}
	}
	shown := ""
	for at := start.Truncate(spacing); !at.After(end); at = at.Add(spacing) {
		if at.Before(start) {
			continue
		}
		tick := timeTick{at: at}
		tick.label, tick.date = timeLabel(at, spacing)
		if tick.date == shown {
			tick.date = ""
		} else {
			shown = tick.date
		}
		ticks = append(ticks, tick)
	}
	return ticks
}

// timeLabel returns the label of a time, and the date that stands below it.
func timeLabel(at time.Time, spacing time.Duration) (label, date string) {
	switch {
	case spacing >= 28*day:
		return at.Format("Jan 2006"), ""
	case spacing >= day:
		return at.Format("2 Jan"), at.Format("2006")
	case spacing < time.Second:
		label = at.Format("15:04:05.000")
	case spacing < time.Minute:
		label = at.Format("15:04:05")
	default:
		label = at.Format("15:04")
	}
	return label, at.Format("2 Jan 2006")
}

// countTicks marks about three round numbers up to top, and 0.
func countTicks(top int64) (ticks []int64) {
	unit := int64(1)
	for top/unit > 3 {
		for _, factor := range []int64{2, 5, 10} {
			if next := unit * factor; top/next <= 3 || factor == 10 {
				unit = next
				break
			}
		}
	}
	for n := int64(0); n <= top; n += unit {
		ticks = append(ticks, n)
	}
	return ticks
}
