package replay

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/weirhq/weir/cmd/weir/internal/flags"
	"github.com/weirhq/weir/cmd/weir/internal/terminal"
)

const (
	// pictureSteps is how many steps a picture has at most.
	pictureSteps = 120
	// mostGroups is how many policies a picture has at most, beside all requests.
	mostGroups = 5
)

// chartFile is the name of a file for a picture.
func chartFile(name string) (string, error) {
	if !strings.EqualFold(filepath.Ext(name), ".svg") {
		return "", flags.Errorf("must be a file whose name ends in .svg")
	}
	return name, nil
}

// chartPlace is what is wrong with the directory of a chart, nil if it is there. A long log is not read for nothing then.
func chartPlace(name string) error {
	info, err := os.Stat(filepath.Dir(name))
	if err == nil && !info.IsDir() {
		err = syscall.ENOTDIR
	}
	if failed, ok := errors.AsType[*fs.PathError](err); ok {
		err = failed.Err
	}
	if err != nil {
		return flags.BadValue("chart", name, err.Error()+": must be in a directory that is there")
	}
	return nil
}

// draw writes a picture into a file.
func draw(name string, p *Picture) error {
	//nolint:gosec // a picture is for everybody, like any other output
	if err := os.WriteFile(name, p.SVG(), 0o644); err != nil {
		return fmt.Errorf("weir: chart: %w", err)
	}
	return nil
}

// logNames are the files of a log for a subtitle.
func logNames(files []string) string {
	names := make([]string, len(files))
	for i, f := range files {
		names[i] = filepath.Base(f)
		if f == "-" {
			names[i] = "standard input"
		}
	}
	return printable(strings.Join(names, ", "))
}

// picture draws one limit.
func (r *limitReport) picture() *Picture {
	return r.of.drawn(r.of.Config, []string{""}, []subject{r.of.All})
}

// nothing makes a picture of a log without a request.
func nothing(p *Picture) {
	p.Subtitle = "no request"
	p.Start, p.Step = at(0), time.Second
	for i := range p.Groups {
		for j := range p.Groups[i].Panels {
			panel := &p.Groups[i].Panels[j]
			panel.Allowed, panel.Refused = make([]int64, 1), make([]int64, 1)
		}
	}
}

func caption(name string, requests, refused int64) string {
	text := plural(requests, "request") + ", "
	if name != "" {
		text = name + ": " + text
	}
	if refused == 0 {
		return text + "none refused"
	}
	return text + fmt.Sprintf("%s refused (%s)", terminal.Number(refused), strings.TrimSpace(percent(refused, requests)))
}

// picture draws all requests, and the policies with the most refusals. Of two configurations the panels stand one above the
// other.
func (r *comparisonReport) picture() *Picture {
	names := []string{fileName(r.Config)}
	title := "What " + names[0] + " would have done"
	if r.Against != "" {
		names = append(names, fileName(r.Against))
		if names[0] == names[1] {
			names = []string{printable(r.Config), printable(r.Against)}
		}
		title = names[0] + " compared with " + names[1]
	}
	busiest := r.busiest(mostGroups)
	p := r.drawn(title, names, append([]subject{r.All}, busiest...))
	if asked := len(r.busiest(len(r.Policies))); asked > len(busiest) {
		p.Subtitle += fmt.Sprintf("; the %d of %d policies with the most refusals", len(busiest), asked)
	}
	return p
}

// drawn draws subjects, in a panel for each configuration.
func (r *comparisonReport) drawn(title string, names []string, subjects []subject) *Picture {
	p := &Picture{Title: title}
	courses := r.c.courses(pictureSteps)
	for _, s := range subjects {
		group := Group{Name: allRequests}
		if s.number >= 0 {
			group.Name = "policy " + printable(s.Name)
		}
		for i, v := range s.both()[:len(names)] {
			group.Panels = append(group.Panels, r.panel(s, v, names, courses, i))
		}
		p.Groups = append(p.Groups, group)
	}
	if len(courses) == 0 {
		nothing(p)
		return p
	}
	p.Start, p.Step = at(courses[0].start), courses[0].width
	p.Subtitle = fmt.Sprintf("%s of %s, times in UTC; each step is %s",
		plural(r.Requests, "request"), logNames(r.Files), span(p.Step))
	return p
}

// fileName is the last part of the name of a file. What is no file, such as "1/s, burst 5", stays as it is.
func fileName(name string) string {
	if _, err := os.Stat(name); err == nil {
		name = filepath.Base(name)
	}
	return printable(name)
}

func (r *comparisonReport) panel(s subject, v *verdicts, names []string, courses []course, i int) Panel {
	panel := Panel{Caption: names[i] + ": there is no such policy"}
	if v != nil {
		panel.Caption = caption(names[i], v.Requests, v.Refused)
		if v.Mode != 0 {
			panel.Caption += "; mode " + v.Mode.String()
		}
	}
	if i == 1 {
		panel.Caption += fmt.Sprintf("; %s newly refused, %s newly allowed",
			terminal.Number(s.Change.NewlyRefused), terminal.Number(s.Change.NewlyAdmitted))
	}
	if i >= len(courses) {
		return panel
	}
	times := courses[i].times(s.number)
	panel.Allowed, panel.Refused = times.Allowed, times.Refused
	if i == 1 && s.Config != nil {
		panel.Before, panel.BeforeName = courses[0].times(s.number).Allowed, "allowed by "+names[0]
	}
	return panel
}
