package live

import (
	"slices"
	"strings"
	"time"

	"github.com/weirhq/weir/policy"
)

const (
	// mostHistory is how many reloads are kept, and mostHistoryText how many bytes of text of each.
	mostHistory     = 32
	mostHistoryText = 64 << 10
	// mostText is how long the files may be to be told.
	mostText = 1 << 20
)

// Reload is what became of a reload.
type Reload struct {
	Time    time.Time
	Cause   string
	Version uint64 // that is in force afterwards
	// Changes are what has changed, a line each, without secrets: as many as fit, of Count.
	Changes []string
	Count   int
	// Mistakes are why it was refused, none if it was not.
	Mistakes []string
}

// note keeps a reload, and tells of it.
func (l *Limits) note(r *Reload) {
	l.mu.Lock()
	if len(r.Mistakes) > 0 {
		l.refused++
	} else {
		l.reloads++
	}
	l.history = append(l.history, *r)
	if len(l.history) > mostHistory {
		l.history = slices.Clone(l.history[len(l.history)-mostHistory:])
	}
	l.mu.Unlock()
	if l.o.Reloaded != nil {
		l.o.Reloaded(r)
	}
}

// History are the last reloads, the last first.
func (l *Limits) History() []Reload {
	l.mu.Lock()
	defer l.mu.Unlock()
	all := slices.Clone(l.history)
	slices.Reverse(all)
	return all
}

// changed are changes as they are told.
func (l *Limits) changed(changes []policy.Change) []string {
	secrets := l.secrets.Load()
	var lines []string
	length := 0
	for _, c := range changes[:min(len(changes), mostTold)] {
		line := secrets.clean(c.Path) + ": "
		switch {
		case c.Old == "":
			line += "added " + secrets.clean(c.New)
		case c.New == "":
			line += "removed " + secrets.clean(c.Old)
		default:
			line += secrets.clean(c.Old) + " -> " + secrets.clean(c.New)
		}
		if c.State != "" {
			line += " (" + c.State + ")"
		}
		if length += len(line); length > mostHistoryText {
			break
		}
		lines = append(lines, line)
	}
	return lines
}

// keep keeps the text of files that are in force.
func (l *Limits) keep(f *Files) {
	text := ""
	if f.size() <= mostText {
		text = f.text()
	}
	l.text.Store(&text)
}

func (f *Files) size() (n int) {
	if f.File != nil {
		n = len(f.File.Data)
	}
	for i := range f.More {
		n += len(f.More[i].Data)
	}
	return n
}

// text is that of all files without passwords, with a line before each that says which it is where there are several.
func (f *Files) text() string {
	if f.File != nil && len(f.More) == 0 {
		return withoutPasswords(string(f.File.Data))
	}
	var b strings.Builder
	add := func(file *File) {
		b.WriteString("# " + file.Name + "\n")
		b.WriteString(withoutPasswords(string(file.Data)))
		if !strings.HasSuffix(b.String(), "\n") {
			b.WriteByte('\n')
		}
	}
	if f.File != nil {
		add(f.File)
	}
	for i := range f.More {
		add(&f.More[i])
	}
	return b.String()
}

// Text is that of the files in force as they were read, so that what comes from the environment is ${NAME}, and without
// passwords. It is "" if there is no file, or if they are too long. In the place of a file from which a password cannot be
// taken out there is a line that says so.
func (l *Limits) Text() string {
	text := l.text.Load()
	if text == nil || *text == "" {
		return ""
	}
	return l.Clean(*text)
}
