package top

import (
	"bytes"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/weirhq/weir/cmd/weir/internal/operator"
	"github.com/weirhq/weir/cmd/weir/internal/screentest"
	"github.com/weirhq/weir/policy"
)

// pressed is what a key is tried with: what has to be pressed before it, and what is to be seen then.
type pressed struct {
	before func(s *screentest.Screen)
	after  func(s *screentest.Screen, f *fake)
}

var paneShown = regexp.MustCompile(`\[\d [a-z]+\]`)

// place is where a screen is, which Esc changes unless it is the first list: a list with its filter, or what the last line says.
func place(screen string) string {
	screen = strings.TrimRight(screen, " \n")
	last := screen[strings.LastIndexByte(screen, '\n')+1:]
	for _, elsewhere := range []string{"Esc back", "filter:", "Enter next", "y do it"} {
		if strings.HasPrefix(last, elsewhere) {
			return elsewhere
		}
	}
	pane := paneShown.FindString(screen)
	if pane == "" || !strings.Contains(last, "p pause") {
		return ""
	}
	if strings.Contains(screen, "  with ") {
		pane += " filtered"
	}
	return pane
}

// first shows the first pane as it is in the beginning, from any other state. What is changed meanwhile by the answers of the server is
// not taken for what a key has done: a second Esc too soon would make both of them another key.
func first(s *screentest.Screen) {
	at := ""
	elsewhere := func(before string) {
		s.Until("another place than "+before, func(text string) bool {
			at = place(text)
			return at != before && at != ""
		})
	}
	for elsewhere(""); at != "[1 policies]"; elsewhere(at) {
		s.Press("esc")
	}
	s.Press("1", "g")
	s.Shows("[1 policies]", "> login", "p pause")
}

// shown presses keys after each of which something is to be seen: pairs of a key and a text.
func shown(pairs ...string) func(s *screentest.Screen) {
	return func(s *screentest.Screen) {
		for i := 0; i < len(pairs); i += 2 {
			s.Press(pairs[i])
			s.Shows(pairs[i+1])
		}
	}
}

func seen(all ...string) func(*screentest.Screen, *fake) {
	return func(s *screentest.Screen, _ *fake) {
		s.Shows(all...)
	}
}

var (
	none     = func(*screentest.Screen) {}
	manyKeys = shown("j", "> per-client", "2", "  client-0", "g", "> client-000")
	inHelp   = shown("?", "In a list:")
	inFilter = shown("/", "filter: ", "ten", "filter: ten")
	inForm   = shown("3", ">   4m", "o", "override 192.0.2.7 of login")
	inKey    = shown("2", "> 192.0.2.7", "enter", `key "192.0.2.7" of policy login`)
	asked    = shown("3", ">   4m", "u", "unlock 192.0.2.7 of login", "a reason\r", "Do it? y or n")
)

// tried has what each key is tried with, by mode and key.
func tried() map[mode]map[string]pressed {
	ended := func(s *screentest.Screen, f *fake) {
		if err := s.Ended(); err != nil {
			f.t.Error(err)
		}
	}
	backInList := func(s *screentest.Screen, _ *fake) {
		s.Shows("> login", "p pause")
		s.Lacks("In a list:")
	}
	cancelled := func(s *screentest.Screen, f *fake) {
		s.Shows("nothing was changed", "[3 lockouts]", "p pause")
		if done := f.done(); len(done) > 0 {
			f.t.Errorf("%q", done)
		}
	}
	paused := func(s *screentest.Screen, f *fake) {
		s.Shows("PAUSED")
		f.change(func(f *fake) { f.overview.Config.Version++ })
		s.Press("p")
		s.Shows("live")
	}
	dropped := func(s *screentest.Screen, _ *fake) {
		s.Shows("per-client", "> tenant", "p pause")
		s.Lacks("filter: ")
	}
	return map[mode]map[string]pressed{
		listMode: {
			"?": {none, seen("keys", "In a list:", "list the keys")}, "f1": {none, seen("In a list:")},
			"q": {none, ended}, "ctrl+c": {none, ended},
			"1":   {shown("3", "[3 lockouts]"), seen("[1 policies]", "tenant")},
			"2":   {none, seen("[2 keys]", "of login", "192.0.2.9", "#5f")},
			"3":   {none, seen("[3 lockouts]", "192.0.2.66")},
			"4":   {none, seen("[4 overrides]", "acme", "100/s, burst 200", "launch day")},
			"5":   {none, seen("[5 refusals]", "login/1m", "POST /login")},
			"tab": {none, seen("[2 keys]")}, "shift+tab": {none, seen("[5 refusals]")},
			"up": {shown("G", "> tenant"), seen("> per-client")}, "k": {shown("G", "> tenant"), seen("> per-client")},
			"down": {none, seen("> per-client")}, "j": {none, seen("> per-client")},
			"pgdown": {manyKeys, seen("> client-017")}, "ctrl+f": {manyKeys, seen("> client-017")},
			"pgup":   {then(manyKeys, shown("G", "> client-099")), seen("> client-082")},
			"ctrl+b": {then(manyKeys, shown("G", "> client-099")), seen("> client-082")},
			"home":   {shown("G", "> tenant"), seen("> login")}, "g": {shown("G", "> tenant"), seen("> login")},
			"end": {none, seen("> tenant")}, "G": {none, seen("> tenant")},
			"enter": {shown("2", "> 192.0.2.7"), seen(`key "192.0.2.7" of policy login`, "locked out for another 4 minutes", "0 of 5 remaining")},
			"d":     {none, seen("policy login: enforce", "limit 1m: 5/min, burst 5", "50 allowed, 5 refused", "key: client.ip")},
			"s":     {none, seen("queued▼")},
			"S":     {none, seen("refused/s▲", "> login")},
			"/":     {none, seen("filter: ")},
			"p":     {none, paused}, "space": {none, paused},
			"u":   {shown("3", ">   4m"), seen("unlock 192.0.2.7 of login", "> reason")},
			"o":   {shown("3", ">   4m"), seen("override 192.0.2.7 of login", "> limit 1m", "5/min, burst 5", "limit 1h", "20/h", "10m", "reason")},
			"r":   {shown("4", ">   9m"), seen("restore acme of per-client", "> reason")},
			"esc": {shown("2", "[2 keys]"), seen("[1 policies]")},
		},
		textMode: {
			"esc": {inHelp, backInList}, "enter": {inHelp, backInList}, "?": {inHelp, backInList}, "f1": {inHelp, backInList},
			"d": {inHelp, backInList}, "q": {inHelp, ended}, "ctrl+c": {inHelp, ended},
			"u":    {inKey, seen("unlock 192.0.2.7 of login", "> reason")},
			"o":    {inKey, seen("override 192.0.2.7 of login", "> limit 1m", "5/min, burst 5", "limit 1h", "20/h", "10m", "reason")},
			"r":    {inKey, seen("restore 192.0.2.7 of login", "> reason")},
			"down": {inHelp, gone("In a list:")}, "j": {inHelp, gone("In a list:")},
			"up":     {then(inHelp, without("j")), seen("In a list:")},
			"k":      {then(inHelp, without("j")), seen("In a list:")},
			"pgdown": {inHelp, gone("list the keys")}, "ctrl+f": {inHelp, gone("list the keys")},
			"pgup":   {then(inHelp, without("pgdown")), seen("In a list:")},
			"ctrl+b": {then(inHelp, without("pgdown")), seen("In a list:")},
			"end":    {inHelp, seen("do it")}, "G": {inHelp, seen("do it")},
			"home": {then(inHelp, shown("G", "do it")), seen("In a list:")}, "g": {then(inHelp, shown("G", "do it")), seen("In a list:")},
		},
		filterMode: {
			"enter": {inFilter, seen("with ten", "> tenant", "p pause")},
			"esc":   {inFilter, dropped}, "ctrl+c": {inFilter, dropped},
		},
		formMode: {
			"enter": {inForm, seen("> limit 1h")}, "tab": {inForm, seen("> limit 1h")}, "down": {inForm, seen("> limit 1h")},
			"shift+tab": {inForm, seen("> reason")}, "up": {inForm, seen("> reason")},
			"esc": {inForm, cancelled}, "ctrl+c": {inForm, cancelled},
		},
		confirmMode: {
			"y": {asked, func(s *screentest.Screen, f *fake) {
				s.Shows("192.0.2.7 of login is let in again", "p pause")
				if done := f.done(); !slices.Equal(done, []string{operator.UnlockPath + " login 192.0.2.7 a reason"}) {
					f.t.Errorf("%q", done)
				}
			}},
			"n": {asked, cancelled}, "esc": {asked, cancelled}, "ctrl+c": {asked, cancelled},
		},
	}
}

func then(first, second func(*screentest.Screen)) func(*screentest.Screen) {
	return func(s *screentest.Screen) {
		first(s)
		second(s)
	}
}

// without presses a key after which the beginning of the help is not to be seen.
func without(key string) func(*screentest.Screen) {
	return func(s *screentest.Screen) {
		s.Press(key)
		s.Lacks("In a list:")
	}
}

func gone(text string) func(*screentest.Screen, *fake) {
	return func(s *screentest.Screen, _ *fake) {
		s.Lacks(text)
	}
}

// TestEveryKey tries each key of each binding in each of its modes, in a terminal of 80 columns and 24 lines.
func TestEveryKey(t *testing.T) {
	t.Parallel()
	for _, part := range modes {
		t.Run(part.name, func(t *testing.T) {
			t.Parallel()
			everyKey(t, part.mode, tried()[part.mode])
		})
	}
}

// everyKey tries each key of a mode.
func everyKey(t *testing.T, in mode, all map[string]pressed) {
	t.Helper()
	f := newFake(t)
	var s *screentest.Screen
	for i := range bindings {
		b := &bindings[i]
		if b.modes&in == 0 {
			continue
		}
		for _, k := range b.keys {
			try, ok := all[k]
			if !ok {
				t.Errorf("the key %s (%s) is not tried", k, b.what)
				continue
			}
			delete(all, k)
			if s == nil {
				s = start(t, 80, 24, nil, "--server", f.server.URL)
				s.Shows("> login")
			}
			t.Log(k)
			first(s)
			f.mu.Lock()
			f.posted = nil
			f.mu.Unlock()
			try.before(s)
			s.Press(k)
			try.after(s, f)
			switch {
			case k == "q", k == "ctrl+c" && in&(listMode|textMode) != 0:
				s = nil
			case k == "s", k == "S": // the order stays
				s.Press("q")
				_ = s.Ended()
				s = nil
			}
		}
	}
	for k := range all {
		t.Errorf("the key %s is bound to nothing", k)
	}
}

// TestHelpIsTheTable: help has a line for each binding, and so has docs/top.md.
func TestHelpIsTheTable(t *testing.T) {
	doc, err := os.ReadFile("../../../../../docs/top.md")
	if err != nil {
		t.Fatal(err)
	}
	m := &model{}
	m.help()
	help := strings.Join(m.page.lines, "\n")
	for i := range bindings {
		b := &bindings[i]
		if !strings.Contains(help, pad(b.shown, 18)+b.what) {
			t.Errorf("help does not have %s: %s", b.shown, b.what)
		}
		if !strings.Contains(string(doc), "| `"+strings.ReplaceAll(b.shown, " ", "` `")+"` | "+b.what+" |") {
			t.Errorf("docs/top.md does not have | `%s` | %s |", strings.ReplaceAll(b.shown, " ", "` `"), b.what)
		}
		for _, k := range b.keys {
			for j := range bindings[:i] {
				if bindings[j].modes&b.modes != 0 && slices.Contains(bindings[j].keys, k) {
					t.Errorf("%s is bound twice", k)
				}
			}
		}
	}
}

// TestRatesAndOrder: what is allowed and refused in a second, sorted by what is refused most.
func TestRatesAndOrder(t *testing.T) {
	t.Parallel()
	f := newFake(t)
	s := start(t, 140, 30, nil, "--server", f.server.URL, "--filter", "per-", "--sort", "-allowed/s")
	s.Shows("> per-client", "allowed/s▲", "with per-")
	s.Press("esc")
	s.Shows("login")
	// Until the stream is there, changes are not seen one by one.
	f.listened(t)
	f.change(func(f *fake) {
		f.more(1, 1000, 50)
		f.overview.Policies[2].Queued = 17
	})
	s.Until("rates", func(text string) bool {
		return regexp.MustCompile(`per-client +2,000 +100 `).MatchString(text) && regexp.MustCompile(`tenant +0 +0 +17 `).MatchString(text)
	})
	s.Shows("2,100 requests/s: 2,000 allowed, 100 refused; 17 queued, 2 locked out; p99 20µs; 12 MiB")
	s.Press("S", "g")
	s.Shows("> per-client", "allowed/s▼")
	s.Press("q")
	if err := s.Ended(); err != nil {
		t.Error(err)
	}
}

// TestOverride goes through all fields, with mistakes.
func TestOverride(t *testing.T) {
	t.Parallel()
	f := newFake(t)
	s := start(t, 80, 24, nil, "--server", f.server.URL, "--pane", "keys", "--policy", "per-client")
	s.Shows("> client-000")
	s.Press("o")
	s.Shows("override client-000 of per-client", "> limit", "10/s, burst 20")
	s.Press("ctrl+u", "100/s, burst 200", "enter", "ctrl+u", "soon", "enter")
	s.Shows("> reason")
	s.Press("enter")
	s.Shows(`for "soon": must be a duration such as 1m30s, 2h or 30d`)
	s.Press("up", "ctrl+u", "1d", "enter", "enter")
	s.Shows("reason: has 0 bytes: must have from 1 to 1024")
	s.Press("launch é day", "enter")
	s.Shows("override client-000 of per-client: 100/s, burst 200 for 24h: launch é day", "Do it? y or n")
	s.Press("y")
	s.Shows("client-000 of per-client: 100/s, burst 200 for 24h", "p pause")
	s.Press("o")
	s.Shows("> limit")
	s.Press("ctrl+u", "unlimited", "tab", "tab", "incident", "enter")
	s.Shows("override client-000 of per-client: unlimited for 10m: incident")
	s.Press("y")
	s.Shows("client-000 of per-client: unlimited for 10m", "p pause")
	want := []string{
		operator.OverridePath + " per-client client-000 map[:100/s, burst 200] false 86400 launch é day",
		operator.OverridePath + " per-client client-000 map[] true 600 incident",
	}
	if done := f.done(); !slices.Equal(done, want) {
		t.Errorf("%q", done)
	}
	s.Press("u")
	s.Shows("> reason")
	s.Press("fail", "enter")
	s.Shows("Do it?")
	s.Press("y")
	s.Shows("the server cannot do that now")
	s.Press("1", "u")
	s.Shows("a change is of a key")
	s.Press("2", "tab")
	s.Shows("[3 lockouts]")
}

// TestOverrideOfSeveralLimits: either all of them are unlimited or none.
func TestOverrideOfSeveralLimits(t *testing.T) {
	limits := []operator.KeyLimit{{Name: "1m", Holds: "5/min"}, {Name: "1h", Holds: "20/h"}}
	for _, c := range []struct {
		values []string
		want   string
	}{
		{[]string{"6/min", "30/h", "10m", "r"}, ""},
		{[]string{"unlimited", "20/h", "10m", "r"}, ""},
		{[]string{"6/min", "unlimited", "10m", "r"}, "limit: all of them are unlimited, or none"},
		{[]string{"6/min", "", "10m", "r"}, `limit 1h: is empty: must be a limit such as`},
		{[]string{"6/min", "30/h", "0s", "r"}, `for "0s": must be a duration`},
		{[]string{"6/min", "30/h", "10m", strings.Repeat("r", 1025)}, "reason: has 1025 bytes"},
	} {
		o, unlock, err := overrideOf(limits, false, c.values)
		if unlock {
			t.Errorf("%q: unlocks", c.values)
		}
		if c.want == "" && (err != nil || o.For != 600 || o.Unlimited == (o.Limits != nil)) {
			t.Errorf("%q: %+v, %v", c.values, o, err)
		}
		if c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)) {
			t.Errorf("%q: %v", c.values, err)
		}
	}
}

// TestOverrideOfALockedKey: the form says that the key is locked out, and ends that too if it is told to; without, what is done says
// that the key does not pass.
func TestOverrideOfALockedKey(t *testing.T) {
	t.Parallel()
	f := newFake(t)
	s := start(t, 80, 24, nil, "--server", f.server.URL, "--pane", "lockouts")
	s.Shows("> ", "192.0.2.7")
	s.Press("o")
	s.Shows("override 192.0.2.7 of login, which is locked out for another 4 minutes", "unlock    no")
	s.Press("up", "launch", "up", "ctrl+u", "perhaps", "down", "enter")
	s.Shows(`unlock "perhaps": must be yes or no`)
	s.Press("up", "ctrl+u", "no", "enter", "enter")
	s.Shows("for 10m: launch;", "  it stays locked out", "Do it?")
	s.Press("y")
	s.Shows("192.0.2.7 of login: 1h = 20/h; 1m = 5/min, burst 5 for 10m; it is still locked", "out for another 4 minutes: u ends that")
	s.Press("o")
	s.Shows("unlock    no")
	s.Press("ctrl+u", "unlimited", "up", "launch", "up", "ctrl+u", "yes", "down", "enter")
	s.Shows("override 192.0.2.7 of login: unlimited for 10m: launch; and unlock it", "Do it?")
	s.Press("y")
	s.Shows("192.0.2.7 of login: unlimited for 10m, and unlocked; one more would be refused", "  now by limit 1m: limited, retry after 12 seconds")
	want := []string{
		operator.OverridePath + " login 192.0.2.7 map[1h:20/h 1m:5/min, burst 5] false 600 launch",
		operator.OverridePath + " login 192.0.2.7 map[] true 600 launch", operator.UnlockPath + " login 192.0.2.7 launch",
	}
	if done := f.done(); !slices.Equal(done, want) {
		t.Errorf("%q", done)
	}
}

// TestNoKeys: that a process knows of no keys of a policy does not say that there are none, where it does not keep them alone.
func TestNoKeys(t *testing.T) {
	for consistency, want := range map[policy.Consistency]string{
		policy.ConsistencyLocal: "no keys are tracked", policy.ConsistencyLeased: "no key was refused by this process: others are not known",
	} {
		m := &model{pane: keysPane, of: keysPane, policy: "p"}
		m.now = &operator.Overview{Policies: []operator.Policy{{PolicyReport: policy.PolicyReport{Name: "p", Consistency: consistency}}}}
		if got := m.none(); !strings.HasPrefix(got, want) {
			t.Errorf("%v: %s", consistency, got)
		}
	}
}

// TestWrap: no word is lost, and no line is wider than the screen.
func TestWrap(t *testing.T) {
	for _, c := range []struct {
		text  string
		width int
		want  []string
	}{
		{"", 10, []string{""}},
		{"short", 10, []string{"short"}},
		{"a limit that is long", 10, []string{"a limit", "  that is", "  long"}},
		{"  key: 0123456789abcdef", 10, []string{"  key:", "  01234567", "  89abcdef"}},
		{"schön schön", 6, []string{"schön", "  schö", "  n"}},
		{"anything", 1, []string{"…"}},
	} {
		if got := wrap(c.text, c.width, "  "); !slices.Equal(got, c.want) {
			t.Errorf("%q in %d: %q, want %q", c.text, c.width, got, c.want)
		}
	}
}

// TestRefusalInDetail: from the list of refusals to rule, key and numbers with one key.
func TestRefusalInDetail(t *testing.T) {
	t.Parallel()
	f := newFake(t)
	s := start(t, 110, 30, nil, "--server", f.server.URL, "--pane", "refusals")
	s.Shows("> 10:00:00.000", "login/1m")
	s.Press("j", "enter")
	s.Shows("refusal ref001", "POST /login from 192.0.2.7 by http", "limit login/1m: 5/min, burst 5 (decides)",
		`key "192.0.2.7", by rule logins (weir.yaml:9:5)`, "0 of 5 remaining, all are back in 1 minute; costs 1: refuses it: limited, retry after 12 seconds")
	s.Press("esc")
	s.Shows("[5 refusals]", "ref003")
	s.Press("u")
	s.Shows("unlock 192.0.2.7 of login")
}

// TestChangeFromDetails: what is changed is the key whose details are read, also when the list has gone on behind them. Help and
// policies have none.
func TestChangeFromDetails(t *testing.T) {
	t.Parallel()
	f := newFake(t)
	s := start(t, 100, 30, nil, "--server", f.server.URL, "--pane", "lockouts")
	s.Shows("> ", "192.0.2.7")
	s.Press("enter")
	s.Shows(`key "192.0.2.7" of policy login`, "u unlock  o override")
	f.change(func(f *fake) {
		f.lockouts = []operator.Lockout{{Policy: "login", Key: "192.0.2.99", For: 1000}}
		f.overview.Config.Version++
	})
	s.Press("u")
	s.Shows("unlock 192.0.2.7 of login", "> reason")
	s.Press("let in\r")
	s.Shows("Do it? y or n")
	s.Press("y")
	s.Shows("192.0.2.7 of login is let in again", "[3 lockouts]", "192.0.2.99")
	if done := f.done(); !slices.Equal(done, []string{operator.UnlockPath + " login 192.0.2.7 let in"}) {
		t.Errorf("%q", done)
	}
	s.Press("1", "d")
	s.Shows("policy login: enforce", "Esc back")
	s.Lacks("u unlock")
	s.Press("o")
	s.Shows("a change is of a key: Enter lists those of the policy")
	s.Press("esc")
	s.Shows("p pause")
	s.Press("?")
	s.Shows("In a list:")
	s.Press("o")
	s.Shows("there is no key to change")
}

// TestServerRestarts: while the server is gone that is said, and when it is back all goes on.
func TestServerRestarts(t *testing.T) {
	t.Parallel()
	f := newFake(t)
	s := start(t, 200, 24, nil, "--server", f.server.URL)
	s.Shows("live")
	address := f.server.Listener.Addr().String()
	f.stop()
	// That the stream has ended is said for a moment only; for what follows there is room in a line.
	s.Shows("NOT CONNECTED", "nothing listens there", "trying again", "> login")
	f.change(func(f *fake) { f.overview.Version, f.overview.Started = "v10.0", began.Add(2*3600e9) })
	f.serve(address)
	s.Shows("live", "v10.0")
	s.Lacks("trying again")
	f.change(func(f *fake) { f.overview.NotReady = "weir: no owner can be reached" })
	s.Shows("NOT READY", "durable limits cannot be decided: no owner can be reached; the fail of each policy decides")
	f.change(func(f *fake) { f.overview.NotReady = "" })
	s.Shows("live")
	s.Lacks("durable limits")
	f.change(func(f *fake) { f.overview.Draining, f.overview.Config.LastError = true, "weir: weir.yaml:3:1: what" })
	s.Shows("SHUTTING DOWN", "the last reload was refused: weir.yaml:3:1: what")
	s.Press("q")
	if err := s.Ended(); err != nil {
		t.Error(err)
	}
}

// TestResize: the screen is laid out anew, down to one on which nothing can be read.
func TestResize(t *testing.T) {
	t.Parallel()
	f := newFake(t)
	s := start(t, 80, 24, nil, "--server", f.server.URL, "--pane", "keys", "--policy", "per-client")
	s.Shows("> client-000", "client-016")
	s.Lacks("client-017")
	for _, c := range []struct {
		columns, rows int
		last, next    string
	}{{120, 40, "client-032", "client-033"}, {60, 10, "client-002", "client-003"}, {80, 24, "client-016", "client-017"}} {
		s.Resize(c.columns, c.rows)
		s.Shows("> client-000", c.last, "? help")
		s.Lacks(c.next)
	}
	s.Press("G")
	s.Shows("> client-099")
	s.Resize(80, 12)
	s.Shows("> client-099")
	for _, size := range [][2]int{{1, 1}, {3, 2}, {20, 5}} {
		s.Resize(size[0], size[1])
	}
	s.Resize(80, 24)
	s.Shows("> client-099", "? help")
}

// TestColours: the colours of alarms, and none with NO_COLOR.
func TestColours(t *testing.T) {
	t.Parallel()
	f := newFake(t)
	coloured := regexp.MustCompile(`\x1b\[(?:[0-9;]*;)?(?:3[0-7]|4[0-7]|38|48|9[0-7])(?:;[0-9;]*)?m`)
	for environment, want := range map[string]bool{"TERM=xterm-256color": true, "NO_COLOR=1": false} {
		s := start(t, 80, 24, []string{environment}, "--server", f.server.URL, "--pane", "keys")
		s.Shows("> 192.0.2.7")
		s.Press("j")
		s.Shows("> 192.0.2.8")
		s.Press("q")
		_ = s.Ended()
		if got := coloured.MatchString(s.Written()); got != want {
			t.Errorf("%s: colours: %t in %q", environment, got, s.Written())
		}
	}
}

// TestHostileNames: names that clients choose do not get at the terminal.
func TestHostileNames(t *testing.T) {
	t.Parallel()
	f := newFake(t)
	evil := "a\x1b]0;evil\x07\x1b[2J\u202e\u009b31m"
	f.change(func(f *fake) {
		f.keys["login"] = []operator.Key{key("login", evil, 5, 0, 5, 1)}
		f.refusals = f.refusals[:1]
		f.refusals[0].Path, f.refusals[0].Limits[0].Key = "/"+evil, evil
		f.lockouts[0].Key = evil
	})
	s := start(t, 120, 24, nil, "--server", f.server.URL)
	for _, k := range []string{"2", "3", "5"} {
		s.Press(k)
		s.Shows("["+k, "evil")
		s.Press("enter")
		s.Shows("Esc back", "evil")
		s.Press("esc")
		s.Shows("p pause")
	}
	s.Press("u")
	s.Shows("unlock ", "evil")
	s.Press("why", "enter", "y")
	s.Shows("evil", "is let in again")
	s.Press("q")
	_ = s.Ended()
	for _, bad := range []string{"\x1b]0;evil", "\u202e", "\u009b"} {
		if strings.Contains(s.Written(), bad) {
			t.Errorf("%q was written to the terminal", bad)
		}
	}
	if done := f.done(); len(done) != 1 || !strings.Contains(done[0], evil) {
		t.Errorf("%q", done)
	}
}

// TestEndsBySignal leaves the terminal as it was.
func TestEndsBySignal(t *testing.T) {
	t.Parallel()
	f := newFake(t)
	s := start(t, 80, 24, nil, "--server", f.server.URL)
	s.Shows("> login")
	s.Signal(syscall.SIGTERM)
	if err := s.Ended(); err == nil {
		t.Error("it ends as if it had been told to by a key")
	}
}

// run runs the command without a terminal.
func run(t *testing.T, args ...string) (stdout, stderr string, status int) {
	t.Helper()
	cmd := command(t, nil, args...)
	var out, failures bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &failures
	err := cmd.Run()
	if exit := (*exec.ExitError)(nil); err != nil && !errors.As(err, &exit) {
		t.Fatal(err)
	}
	return out.String(), failures.String(), cmd.ProcessState.ExitCode()
}

// TestOnce: a frame as text, with all rows.
func TestOnce(t *testing.T) {
	t.Parallel()
	f := newFake(t)
	f.tick()
	out, _, status := run(t, "--once", "--server", f.server.URL)
	want := `20.0 requests/s: 14.0 allowed, 6.00 refused; 0 queued, 2 locked out; p99 20µs; 12 MiB

policy       allowed/s  refused/s▼   queued   keys   locked out  mode      refused   allowed  limits
login             14.0        6.00        0     40            2  enforce         8        57  1m: 5/min, burst 5; 1h: 20/h
per-client           0           0        0     40            0  enforce       900     5,000  10/s, burst 20
tenant               0           0        0     40            0  enforce         0       700  1000/day
`
	if out != want || status != 0 {
		t.Errorf("%d\n%s\nwant\n%s", status, out, want)
	}
	f.tick()
	out, _, status = run(t, "--once", "--server", f.server.URL, "--pane", "keys", "--policy", "per-client", "--sort", "-refused")
	lines := strings.Split(out, "\n")
	if status != 0 || len(lines) != 104 || !strings.HasPrefix(lines[3], "client-099") || !strings.Contains(lines[2], "refused▲") {
		t.Errorf("%d %d\n%s", status, len(lines), out)
	}
	f.tick()
	out, _, status = run(t, "--once", "--server", f.server.URL, "--pane", "overrides", "--filter", "nothing")
	if status != 0 || !strings.Contains(out, "nothing has this text") {
		t.Errorf("%d\n%s", status, out)
	}
}

// TestOnceOfAServerWithoutFigures: other events do not keep the command waiting.
func TestOnceOfAServerWithoutFigures(t *testing.T) {
	t.Parallel()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "text/event-stream")
		for r.Context().Err() == nil {
			if _, err := io.WriteString(w, "event: audit\ndata: {}\n\n"); err != nil {
				return
			}
		}
	}))
	t.Cleanup(server.Close)
	for timeout := 100 * time.Millisecond; ; timeout *= 2 { // until the server begins to answer before the timeout
		_, failed, status := run(t, "--once", "--server", server.URL, "--timeout", timeout.String())
		if status == 1 && strings.Contains(failed, "does not answer as weir serve does: it sends no figures") {
			break
		}
		if status != 1 || !strings.Contains(failed, "has not answered within") && !strings.Contains(failed, "has said nothing for") {
			t.Fatalf("%d\n%s", status, failed)
		}
	}
}

func TestMisuse(t *testing.T) {
	t.Parallel()
	f := newFake(t)
	for _, c := range []struct {
		args   []string
		want   string
		status int
	}{
		{[]string{"--server", f.server.URL}, "top needs a terminal for its input and output: give --once", 2},
		{[]string{"--once", "--sort", "refused/sec"}, `--sort "refused/sec": must be a column of policies: policy, allowed/s, refused/s`, 2},
		{[]string{"--once", "--sort", "keyz"}, `did you mean "keys"?`, 2},
		{[]string{"--once", "--server", "http://127.0.0.1:1"}, "http://127.0.0.1:1 is not reachable: nothing listens there", 1},
	} {
		if out, text, status := run(t, c.args...); status != c.status || !strings.Contains(text, c.want) || out != "" {
			t.Errorf("%q: %d %s%s", c.args, status, out, text)
		}
	}
	s := start(t, 80, 24, nil, "--server", "http://127.0.0.1:1")
	if err := s.Ended(); err == nil {
		t.Error("it has ended as if all were well")
	}
	s.Shows("is not reachable")
}
