package main

import (
	"encoding/base64"
	"errors"
	"fmt"
	"html"
	"slices"
	"strings"
	"unicode/utf8"
)

// A scene is a command and its output, under a caption. Without a command it is the dashboard.
type scene struct {
	caption, command string
	output           []string
}

// beforeOverride is where the dashboard is shown: before the command with that number.
const beforeOverride = 4

// captions are those of the commands of the session, in their order.
var captions = []string{
	"A client takes all 20 permits ...",
	"... and is refused: 429, told when to retry, and an ID",
	"Why? The rule, the key and the numbers of that moment",
	"How are all policies?",
	"Let this one customer through, for ten minutes",
	"Allowed",
}

var errSession = errors.New("no console block with as many commands as there are captions")

// session returns the scenes of the first console block of a page.
func session(page string) ([]scene, error) {
	_, block, _ := strings.Cut(page, "\n```console\n")
	block, _, _ = strings.Cut(block, "\n```")
	parts := strings.Split("\n"+block, "\n$ ")[1:]
	if len(parts) != len(captions) {
		return nil, fmt.Errorf("%w: %d, not %d", errSession, len(parts), len(captions))
	}
	scenes := make([]scene, len(parts))
	for i, part := range parts {
		lines := strings.Split(part, "\n")
		scenes[i] = scene{captions[i], lines[0], lines[1:]}
	}
	return slices.Insert(scenes, beforeOverride, scene{caption: "The dashboard of a busier server, on the same port"}), nil
}

// Sizes in pixels, times in seconds.
const (
	wide       = 8.2 // of a character
	high       = 21.0
	margin     = 20.0
	height     = 420.0 // of the picture
	top        = 86.0  // of the first line
	typing     = 0.02  // for each character
	pause      = 0.4   // between a command and its output
	reading    = 1.8   // of any output
	readingRow = 0.3   // for each line of it, in addition
)

// draw returns an SVG in which the scenes follow one another for ever. Where pictures shall not move it shows the second one, the
// refusal.
func draw(scenes []scene, dashboard []byte) string {
	columns, total := 0, 0.0
	for i := range scenes {
		columns = max(columns, scenes[i].columns())
		total += scenes[i].seconds()
	}
	width := float64(columns)*wide + 2*margin
	var style, body strings.Builder
	at := 0.0
	for i := range scenes {
		s := &scenes[i]
		s.animate(&style, i, at, total)
		s.begin(&body, i)
		if s.command == "" {
			fmt.Fprintf(&body, `<image x="%.0f" y="%.0f" width="%.1f" height="%.0f" preserveAspectRatio="xMidYMin slice" `+
				`href="data:image/png;base64,%s"/>`,
				margin, top-10, width-2*margin, height-top+10-margin, base64.StdEncoding.EncodeToString(dashboard))
			body.WriteString("\n</g>\n")
		} else {
			s.write(&body, i)
		}
		at += s.seconds()
	}

	return fmt.Sprintf(`<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %.0f %.0f" width="%.0f" height="%.0f" role="img" `+
		`font-family="ui-monospace,SFMono-Regular,Menlo,Consolas,'DejaVu Sans Mono',monospace" font-size="13.5">
<title>A request is refused, weir why says by which rule, and an override lets the client through.</title>
<style>
text{fill:#c9d1d9;white-space:pre}.caption{fill:#fff;font:600 17px system-ui,-apple-system,'Segoe UI',sans-serif}
.prompt{fill:#7d8590}.command{fill:#fff}.no{fill:#ff7b72}.yes{fill:#7ee787}
.s{opacity:0}.s1{opacity:1}.c{fill:#0d1117;visibility:hidden}
@media (prefers-reduced-motion:no-preference){
.s,.o,.c{animation-duration:%.2fs;animation-iteration-count:infinite;animation-timing-function:step-end;visibility:visible}
%s}
</style>
<rect width="100%%" height="100%%" rx="10" fill="#0d1117"/>
<circle cx="24" cy="22" r="6" fill="#ff5f57"/>
<circle cx="44" cy="22" r="6" fill="#febc2e"/><circle cx="64" cy="22" r="6" fill="#28c840"/>
%s</svg>
`, width, height, width, height, total, style.String(), body.String())
}

// columns is how many characters the longest line has.
func (s *scene) columns() int {
	n := utf8.RuneCountInString(s.command) + 2
	for _, line := range s.output {
		n = max(n, utf8.RuneCountInString(line))
	}
	return n
}

// animate writes when the scene with the number i is shown, and in it the command and the output: from at on, of total seconds.
func (s *scene) animate(b *strings.Builder, i int, at, total float64) {
	percent := func(at float64) string { return fmt.Sprintf("%.3f%%", 100*at/total) }
	end := percent(at + s.seconds())
	show := func(name string, from float64) {
		before := "0%{opacity:0}"
		if from == 0 {
			before = ""
		}
		fmt.Fprintf(b, "@keyframes %s%d{%s%s{opacity:1}%s,100%%{opacity:0}}\n.%s%d{animation-name:%s%d}\n",
			name, i, before, percent(from), end, name, i, name, i)
	}
	show("s", at)
	if s.command == "" {
		return
	}
	characters := utf8.RuneCountInString(s.command)
	typed := at + float64(characters)*typing
	show("o", typed+pause)
	fmt.Fprintf(b, "@keyframes c%d{0%%,%s{transform:none;animation-timing-function:steps(%d)}%s,100%%{transform:"+
		"translateX(%.1fpx)}}\n.c%d{animation-name:c%d}\n",
		i, percent(at), characters, percent(typed), float64(characters)*wide, i, i)
}

func (s *scene) seconds() float64 {
	if s.command == "" {
		return 2 * reading
	}
	return float64(utf8.RuneCountInString(s.command))*typing + pause + reading + readingRow*float64(len(s.output))
}

// begin opens the group of the scene with the number i.
func (s *scene) begin(b *strings.Builder, i int) {
	fmt.Fprintf(b, "<g class=\"s s%d\">\n<text class=\"caption\" x=\"%.0f\" y=\"58\">%s</text>\n",
		i, margin, html.EscapeString(s.caption))
}

// write draws the scene with the number i. Each line has the length of its characters, whatever font there is.
func (s *scene) write(b *strings.Builder, i int) {
	write(b, "prompt", margin, top, "$")
	write(b, "command", margin+2*wide, top, s.command)
	fmt.Fprintf(b, "<rect class=\"c c%d\" x=\"%.1f\" y=\"%.1f\" width=\"%.1f\" height=\"%.1f\"/>\n<g class=\"o o%d\">\n",
		i, margin+2*wide, top-high+6, float64(utf8.RuneCountInString(s.command))*wide+1, high, i)
	for row, line := range s.output {
		class := ""
		switch {
		case strings.Contains(line, " 429 ") || strings.Contains(line, `"allowed":false`) || strings.HasPrefix(line, "refused "):
			class = "no"
		case strings.Contains(line, `"allowed":true`):
			class = "yes"
		}
		write(b, class, margin, top+high*float64(row+1), line)
	}
	b.WriteString("</g>\n</g>\n")
}

func write(b *strings.Builder, class string, x, y float64, line string) {
	if line == "" {
		return
	}
	if class != "" {
		class = ` class="` + class + `"`
	}
	fmt.Fprintf(b, "<text%s x=\"%.1f\" y=\"%.1f\" textLength=\"%.1f\" xml:space=\"preserve\">%s</text>\n",
		class, x, y, float64(utf8.RuneCountInString(line))*wide, html.EscapeString(line))
}
