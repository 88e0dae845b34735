package config

import (
	"bufio"
	"fmt"
	"io"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/weirhq/weir"
	"github.com/weirhq/weir/config/yamlread"
	"github.com/weirhq/weir/internal/limits"
	"github.com/weirhq/weir/policy"
)

// explainWidth is how many columns an explanation has.
const explainWidth = 80

// mostListed is how many tiers or keys of a policy are listed.
const mostListed = 20

// Explain writes the effective configuration in words: every policy with its defaults filled in, and every rule in its order.
// Lines have at most 80 columns, except for words that are longer. What came from the environment is shown as it is written
// in the file.
func (f *File) Explain(w io.Writer) {
	b := bufio.NewWriter(w)
	defer b.Flush() //nolint:errcheck // an error of the writer has no reader
	fmt.Fprintf(b, "%s: %s, %s\n", f.Name, plural(len(f.policies), "policy"), plural(len(f.rules), "rule"))
	f.explainStore(b)
	f.explainCluster(b)
	for _, p := range f.policies {
		fmt.Fprintf(b, "\npolicy %s\n", p.Name)
		f.explainPolicy(b, p)
	}
	if len(f.rules) > 0 {
		fmt.Fprint(b, "\nrules, in their order\n")
	}
	for i, r := range f.rules {
		f.explainRule(b, i, r)
	}
	if len(f.Warnings) > 0 {
		fmt.Fprint(b, "\nwarnings\n")
	}
	for _, m := range f.Warnings {
		wrap(b, "  ", "    ", m.String())
	}
}

// show is a value as it may be shown: what is written in the file, if it came from the environment.
func (f *File) show(path, value string) string {
	if written, env := f.shown[path]; env {
		return written
	}
	return value
}

// labelWidth is that of the names of the settings of a policy.
const labelWidth = 19

func line(w io.Writer, label, text string) {
	indent := strings.Repeat(" ", max(1, labelWidth-utf8.RuneCountInString(label)))
	wrap(w, "  "+label+indent, strings.Repeat(" ", 2+labelWidth), text)
}

func (f *File) explainPolicy(w io.Writer, p *placedPolicy) {
	line(w, "mode", f.show(p.at.Path+".mode", p.Mode.String()))
	f.explainPreset(w, p)
	names := policy.LimitNames(p.Limits)
	if len(p.live.limits) == 0 {
		line(w, keyLimits, unset)
	}
	for i, l := range p.live.limits {
		name := names[i]
		if l.Name == "" && f.shows(l.at.Path) {
			name = ""
		}
		line(w, strings.TrimSpace("limit "+f.show(l.at.Path+".name", name)), f.spellLimit(l))
	}
	key := "none: all requests share one state"
	if p.Key != nil {
		key = p.Key.String()
	}
	line(w, "key", key)
	cost := "that of the request, usually 1"
	if p.Cost != nil {
		cost = p.Cost.String()
	}
	line(w, "cost", cost)
	for i, l := range p.candidate.limits {
		label := ""
		if i == 0 {
			label = "candidate"
		}
		line(w, label, f.spellLimit(l))
	}
	if p.TierBy != nil {
		line(w, "tiers", "by "+p.TierBy.String())
		f.explainAlternatives(w, "tier", p.tiers)
	}
	if len(p.keys) > 0 {
		line(w, "keys", plural(len(p.keys), "key")+" with limits of their own")
		f.explainAlternatives(w, "key", p.keys)
	}
	if p.Parent != "" {
		line(w, "parent", f.show(p.at.Path+".parent", p.Parent)+" applies as well")
	}
	queue := "none: no request waits"
	if p.QueueLimit > 0 {
		wait := p.MaxWait
		if wait == 0 {
			wait = time.Second
		}
		queue = fmt.Sprintf("%s permits, %s, a request waits at most %s", f.show(p.at.Path+".queue.limit",
			yamlread.Count(p.QueueLimit)),
			f.show(p.at.Path+".queue.order", limits.OrderText(p.NewestFirst)), f.show(p.at.Path+".queue.max_wait",
				yamlread.ShortDuration(wait)))
	}
	line(w, "queue", queue)
	f.explainKeys(w, p)
	line(w, "lockout", f.spellLockout(p))
	f.explainSharing(w, p)
	if p.priority.Node != nil {
		line(w, "priority", f.show(p.priority.Path, p.Priority.String())+": only for a program that sheds load")
	}
}

// spellLockout is when keys are locked out, in words.
func (f *File) spellLockout(p *placedPolicy) string {
	l := p.Lockout
	if l == nil {
		return unset
	}
	path, row := p.at.Path+".lockout.", ""
	if l.InARow {
		row = "in a row "
	}
	if written, env := f.shown[path+"in_a_row"]; env {
		row = "(in a row: " + written + ") "
	}
	return fmt.Sprintf("for %s, after %s refusals %swithin %s",
		f.show(path+"for", yamlread.ShortDuration(l.For)), f.show(path+"refusals", strconv.Itoa(l.Refusals)), row,
		f.show(path+"within", yamlread.ShortDuration(l.Within)))
}

// explainKeys writes how many keys are tracked.
func (f *File) explainKeys(w io.Writer, p *placedPolicy) {
	keys := p.MaxKeys
	if keys == 0 {
		keys = 1_000_000
	}
	where := "all, in the store"
	switch p.Durability {
	case policy.DurabilityCluster:
		where = "all, in the cluster"
	case policy.DurabilityFile:
		where = "all, in the file"
	case policy.DurabilityMemory:
	}
	switch tracked := f.show(p.at.Path+".max_keys", strconv.Itoa(keys)); {
	case !p.Shared():
		line(w, "keys tracked", tracked+"; a new one beyond: "+f.show(p.at.Path+".when_full",
			limits.WhenFullText(p.AdmitWhenFull)))
	case p.Lockout != nil || len(p.Candidate) > 0:
		line(w, "keys tracked", where+"; "+tracked+" in this process, for lockouts and candidates")
	default:
		line(w, "keys tracked", where)
	}
}

// explainAlternatives lists the limits of tiers or keys.
func (f *File) explainAlternatives(w io.Writer, what string, all []namedLimits) {
	for i, a := range all {
		if i == mostListed {
			line(w, "", fmt.Sprintf("and %d more", len(all)-i))
			return
		}
		words := make([]string, 0, len(a.limits))
		for _, l := range a.limits {
			words = append(words, f.spellLimit(l))
		}
		line(w, "  "+what, yamlread.Shorten(a.name)+": "+strings.Join(words, "; "))
	}
}

// shows reports whether something of a limit came from the environment.
func (f *File) shows(path string) bool {
	for shown := range f.shown {
		if shown == path || strings.HasPrefix(shown, path+".") || short(path, keyBurst) == shown {
			return true
		}
	}
	return false
}

// short is the path of the key beside limit, if path is that of the short form.
func short(path, key string) string {
	if before, isShort := strings.CutSuffix(path, ".limit"); isShort {
		return before + "." + key
	}
	return ""
}

// spellLimit is a limit in words.
func (f *File) spellLimit(l placedLimit) string {
	if len(f.shown) == 0 || !f.shows(l.at.Path) {
		return l.String()
	}
	words := []string{f.show(l.at.Path+".algorithm", l.Algorithm().String())}
	if l.Rate() != (weir.Rate{}) {
		words = append(words, f.show(l.at.Path, f.show(l.at.Path+".rate", l.Rate().String())))
	}
	if l.permits != 0 { // a burst that was left out is that of the rate, which may be hidden
		what, path := "burst ", l.at.Path+".burst"
		if l.Algorithm() != weir.AlgorithmTokenBucket {
			what, path = "permits ", l.at.Path+".permits"
		}
		if beside := short(l.at.Path, keyBurst); beside != "" {
			path = beside
		}
		words = append(words, what+f.show(path, yamlread.Count(l.Permits())))
	}
	if l.segments != 0 {
		words = append(words, "segments "+f.show(l.at.Path+".segments", strconv.Itoa(l.segments)))
	}
	if l.Algorithm() == weir.AlgorithmCalendarWindow {
		c := l.Calendar()
		zone := "UTC"
		if c.Zone != nil {
			zone = c.Zone.String()
		}
		words = append(words, "every "+f.show(l.at.Path+".every", c.Unit.String()), "zone "+f.show(l.at.Path+".zone", zone))
		for _, field := range []struct {
			key string
			n   int
		}{{keyMonth, int(c.Month)}, {keyDay, c.Day}, {keyWeekday, c.Weekday}, {keyHour, c.Hour}, {keyMinute, c.Minute}} {
			if field.n != 0 {
				words = append(words, field.key+" "+f.show(l.at.Path+"."+field.key, strconv.Itoa(field.n)))
			}
		}
	}
	return strings.Join(words, ", ")
}

func (f *File) explainRule(w io.Writer, i int, r *placedRule) {
	number := fmt.Sprintf("%4d  ", i+1)
	path := r.at.Path + ".match."
	words := Conditions(&r.Rule, func(key string, values []string) string {
		shown := make([]string, len(values))
		for i, s := range values {
			shown[i] = f.show(path+key, f.show(path+key+"["+strconv.Itoa(i)+"]", s))
		}
		return yamlread.OneOf(shown)
	})
	if len(words) == 0 {
		words = []string{"all requests"}
	}
	wrap(w, number, "        ", f.show(r.at.Path+".name", r.Name)+": "+strings.Join(words, "; "))
	var does []string
	for _, u := range r.uses {
		text := f.show(u.at.Path, u.Policy)
		if u.Key != nil {
			text += " by " + u.Key.String()
		}
		if u.Cost != nil {
			text += " at a cost of " + u.Cost.String()
		}
		does = append(does, text)
	}
	if r.Exempt {
		does = append(does, "exempt from all limits")
	}
	if r.Deny {
		does = append(does, denial(r.Mode))
	}
	if r.Afterwards {
		does = append(does, "charged afterwards: what is refused is owed")
	}
	if r.Final {
		does = append(does, "no further rules")
	}
	if len(does) == 0 {
		does = []string{"nothing"}
	}
	wrap(w, "      -> ", "         ", strings.Join(does, "; "))
}

// denial is what a rule does that denies.
func denial(m policy.Mode) string {
	switch m {
	case policy.ModeShadow:
		return "denied in shadow: counted, and allowed"
	case policy.ModeOff:
		return "off: would be denied"
	default:
		return "denied, whatever other rules say"
	}
}

// Conditions are those of a rule in words. The function listed joins the values of one that has several.
func Conditions(r *policy.Rule, listed func(key string, values []string) string) []string {
	var words []string
	texts := func(key string, all []string) {
		if len(all) > 0 {
			words = append(words, key+" "+listed(key, all))
		}
	}
	m := &r.Match
	texts(keyMethod, m.Methods)
	texts(keyHost, m.Hosts)
	texts(keyPath, m.Paths)
	texts("route", m.Routes)
	texts("protocol", m.Protocols)
	networks := make([]string, len(m.Clients))
	for i, p := range m.Clients {
		networks[i] = p.String()
		if p.IsSingleIP() {
			networks[i] = p.Addr().String()
		}
	}
	texts("client", networks)
	for _, h := range m.Headers {
		switch {
		case h.Absent:
			words = append(words, "no header "+h.Name)
		case h.Value == "*":
			words = append(words, "header "+h.Name)
		default:
			words = append(words, "header "+h.Name+": "+strconv.Quote(h.Value))
		}
	}
	if r.When != nil {
		words = append(words, "when "+strings.TrimSpace(r.When.String()))
	}
	return words
}

// wrap writes a text in lines of at most 80 columns, the first of which begins with first and the others with next.
func wrap(w io.Writer, first, next, text string) {
	used := utf8.RuneCountInString(first)
	fmt.Fprint(w, first)
	fresh := true
	for word := range strings.FieldsSeq(text) {
		length := utf8.RuneCountInString(word)
		switch {
		case fresh:
		case used+1+length > explainWidth:
			fmt.Fprint(w, "\n", next)
			used = utf8.RuneCountInString(next)
		default:
			fmt.Fprint(w, " ")
			used++
		}
		fmt.Fprint(w, word)
		used += length
		fresh = false
	}
	fmt.Fprintln(w)
}

// newestFirstWord is the order of a queue that serves the last to come first, as a file has it.
const newestFirstWord = "newest-first"
