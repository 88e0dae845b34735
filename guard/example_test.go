package guard_test

import (
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/weirhq/weir/guard"
	"github.com/weirhq/weir/manualclock"
)

// Slow down an address that comes too fast, and lock it out for ten seconds if it goes on.
func ExampleGuard() {
	options := guard.DefaultOptions()
	options.CapacityTokens, options.RefillTokensPerSecond = 2, 1
	options.HardLockout = 10 * time.Second
	clock := manualclock.New(0)
	options.Clock = clock // leave it out for the clock of the process
	g, err := guard.New(options)
	if err != nil {
		fmt.Println(err)
		return
	}
	defer g.Close()
	for range 5 {
		d, addressErr := g.Check("192.0.2.1:4711")
		fmt.Println(d.Allowed, d.Reason, d.RetryAfter, addressErr)
	}
	clock.Advance(10 * time.Second)
	d, err := g.Check("192.0.2.1:4712") // another port, the same address
	fmt.Println(d.Allowed, err)
	// Output:
	// true none 0s <nil>
	// true none 0s <nil>
	// false soft-throttle 1s <nil>
	// false soft-throttle 1s <nil>
	// false hard-lockout 10s <nil>
	// true <nil>
}

// The functions below are the code of docs/guard.md, line by line.

func docsGuard(conn net.Conn) error {
	options := guard.DefaultOptions()
	options.Name, options.HardLockout, options.LockoutFactor = "door", 10*time.Second, 2
	g, err := guard.New(options)
	if err != nil {
		return err // names the option, its value and the range
	}
	defer g.Close()

	return docsGuardCheck(g, conn)
}

var errSlowDown = errors.New("slow down")

func slowDown(net.Conn, time.Duration) error { return errSlowDown }

func serve(net.Conn) error { return nil }

func docsGuardCheck(g *guard.Guard, conn net.Conn) error {
	d, err := g.Check(conn.RemoteAddr().String())
	switch {
	case err != nil: // the connection has no address
		return err
	case d.Reason.Hard(): // locked out, or the table is full: close the connection
		return conn.Close()
	case !d.Allowed:
		return slowDown(conn, d.RetryAfter)
	}
	return serve(conn)
}

func docsGuardReport(w io.Writer, g *guard.Guard) {
	fmt.Fprint(w, g.Report())
}

func docsGuardOperate(g *guard.Guard) error {
	g.Unblock("192.0.2.1") // ends the lockout, and forgets violations and earlier lockouts; tokens stay as they are
	g.Reset("192.0.2.1")   // makes it a new endpoint
	if err := g.SetMaxTrackedEndpoints(50_000); err != nil {
		return err
	}
	done := g.Cleanup() // now, instead of at the next CleanupInterval
	if done.Skipped || !done.Complete {
		return fmt.Errorf("%+v", done)
	}
	return nil
}

// docsGuardSession is the session of docs/guard.md: its lines, and the report after five seconds.
func docsGuardSession(t *testing.T, g *guard.Guard, clock *manualclock.Clock) (session, report string) {
	t.Helper()
	var text strings.Builder
	text.WriteString("at       endpoint         answer         left  retry after\n")
	start := clock.Now()
	ask := func(at time.Duration, endpoint string) {
		clock.Set(start + int64(at))
		d, err := g.Check(endpoint)
		if err != nil {
			t.Fatal(err)
		}
		fmt.Fprintf(&text, "%-7v  %-15s  %-13v  %4d  %v\n", at, endpoint, d.Reason, d.Remaining, d.RetryAfter)
	}
	ask(0, "192.0.2.1:4001")
	for port := range 10 {
		check(t, g, "192.0.2.1:"+strconv.Itoa(4002+port))
	}
	for i, at := range []time.Duration{0, 0, 200 * ms, 200 * ms, 250 * ms, 300 * ms, 5 * time.Second} {
		ask(at, "192.0.2.1:"+strconv.Itoa(4012+i))
	}
	ask(5*time.Second, "192.0.2.2:4001")
	var reported strings.Builder
	docsGuardReport(&reported, g)
	ask(10300*ms, "192.0.2.1:4019")
	return text.String(), reported.String()
}

// TestGuardDocs runs the code of docs/guard.md, and holds the document to it, to what the guard answers, and to its options.
func TestGuardDocs(t *testing.T) {
	conn, other := net.Pipe()
	defer conn.Close()
	defer other.Close()
	if err := docsGuard(conn); err != nil {
		t.Error(err)
	}
	g, clock := on(t, func(o *guard.Options) {
		o.Name, o.HardLockout, o.LockoutFactor = "door", 10*time.Second, 2
	})
	session, report := docsGuardSession(t, g, clock)
	if err := docsGuardOperate(g); err != nil {
		t.Error(err)
	}

	text, err := os.ReadFile("../docs/guard.md")
	if err != nil {
		t.Fatal(err)
	}
	page := string(text)
	for name, want := range map[string]string{"session": session, "report": report} {
		if !strings.Contains(page, "```text\n"+want+"```\n") {
			t.Errorf("docs/guard.md has another %s than\n%s", name, want)
		}
	}
	source, err := os.ReadFile("example_test.go")
	if err != nil {
		t.Fatal(err)
	}
	code := lines(string(source))
	for _, block := range strings.Split(page, "```go\n")[1:] {
		block, _, _ = strings.Cut(block, "```")
		for _, line := range lines(block) {
			if !slices.Contains(code, line) {
				t.Errorf("this line of docs/guard.md is not in a test: %s", line)
			}
		}
	}
	docsGuardOptions(t, page)
}

var guardOptionRow = regexp.MustCompile("(?m)^\\| `(\\w+)` \\| ([^|]*?) ?\\| ([^|]*?) ?\\| [^|]+ \\|$")

// docsGuardOptions compares the table of options with the defaults, and tries both ends of each range.
func docsGuardOptions(t *testing.T, page string) {
	t.Helper()
	_, page, _ = strings.Cut(page, "## Options\n")
	page, _, _ = strings.Cut(page, "\n## ")
	rows := guardOptionRow.FindAllStringSubmatch(page, -1)
	if fields := reflect.TypeFor[guard.Options]().NumField(); len(rows) != fields {
		t.Errorf("docs/guard.md has %d options, there are %d", len(rows), fields)
	}
	for _, row := range rows {
		name, byDefault, accepted := row[1], row[2], row[3]
		o := guard.DefaultOptions()
		field := reflect.ValueOf(&o).Elem().FieldByName(name)
		if !field.IsValid() {
			t.Errorf("docs/guard.md has an option %s", name)
			continue
		}
		if byDefault == "" {
			if !field.IsZero() {
				t.Errorf("%s is %v by default, docs/guard.md does not say so", name, field)
			}
			continue
		}
		if !setGuardOption(field, byDefault, 0) || !reflect.DeepEqual(o, guard.DefaultOptions()) {
			t.Errorf("%s is not %s by default", name, byDefault)
		}
		least, most, both := strings.Cut(accepted, " to ")
		if !both {
			most = strings.TrimPrefix(accepted, "at most ")
		}
		for i, end := range []string{least, most} {
			beyond := 2*i - 1
			if i == 0 && !both {
				continue
			}
			for _, far := range []int{0, beyond} {
				o = guard.DefaultOptions()
				if name == "MaxLockout" {
					o.HardLockout, o.LockoutFactor = time.Second, 2
				}
				if other := reflect.ValueOf(o).FieldByName(strings.Trim(end, "`")); other.IsValid() {
					end = fmt.Sprint(other)
				}
				if !setGuardOption(reflect.ValueOf(&o).Elem().FieldByName(name), end, far) {
					t.Errorf("%s: %q is no range", name, accepted)
					continue
				}
				g, err := guard.New(o)
				if err == nil {
					_ = g.Close()
				}
				if (err == nil) != (far == 0) {
					t.Errorf("%s %s, and %d more: %v", name, end, far, err)
				}
			}
		}
	}
}

// setGuardOption makes field what text says, and a little more or less if far is not 0.
func setGuardOption(field reflect.Value, text string, far int) bool {
	if field.Type() == reflect.TypeFor[time.Duration]() {
		d, err := time.ParseDuration(text)
		field.SetInt(int64(d) + int64(far))
		return err == nil
	}
	n, err := strconv.ParseFloat(text, 64)
	if field.CanFloat() {
		field.SetFloat(n * (1 + float64(far)/1000))
	} else {
		field.SetInt(int64(n) + int64(far))
	}
	return err == nil
}
