package summary

import (
	"cmp"
	"fmt"
	"strconv"
	"strings"
)

// ratio is a line of the table of ratios: some work of weir beside its floor and its best peer.
type ratio struct {
	work string
	read func(r rawTables) (comparison, error)
}

// comparison is what such a line shows. What was not measured is "".
type comparison struct{ weir, floor, ratio, peer, peerRatio string }

// ratios are the lines.
func ratios() []ratio {
	const perSecond = "requests/s"
	keys := func(work, row, goroutines string) ratio {
		return call(work, "Nanoseconds a call", "Nanoseconds a call", row, goroutines)
	}
	one := func(work, row, goroutines string) ratio { return call(work, "One call", "Every call", row, goroutines) }
	redis := func(work, load, callers string) ratio {
		at := cell{"Redis: " + load, map[string]string{"x": callers}, "dec./s"}
		return served(work, at, "weir coherent", "GCRA script (floor)", "redis_rate",
			"redis_rate, pipelined", "ulule", "ulule, pipelined", "throttled", "throttled, pipelined")
	}
	resp := func(work, load, pipeline string) ratio {
		at := cell{"Servers: " + load, map[string]string{"pipeline": pipeline}, perSecond}
		return served(work, at, "weir", "bare Go RESP (floor)", "Redis INCR", "GCRA script")
	}
	flying := func(work, load, calls, floor string, peers ...string) ratio {
		return served(work, cell{"Servers: " + load, map[string]string{"in flight": calls}, perSecond}, "weir", floor, peers...)
	}
	return []ratio{
		one("allow", "allow, draining", "1"),
		one("allow, 2 goroutines", "allow, draining", "2"),
		one("refuse", "refuse", "1"),
		one("one hot limiter, 2 goroutines", "allow, one hot limiter", "2"),
		one("one hot limiter, 64 goroutines", "allow, one hot limiter", "64"),
		one("TryAcquire, with the decision", "TryAcquire", "1"),
		one("reserve, then commit less", "TryReserve + Commit, less", "1"),
		one("concurrency, take and release", "concurrency, try + release", "1"),
		one("chain of two limits", "chain of two, TryAcquire", "1"),
		keys("a key of 1M", "1M keys, uniform", "1"),
		keys("a key of 10M", "10M keys, uniform", "1"),
		keys("a key of 1M, in batches of 64", "1M keys, uniform, batches of 64", "1"),
		ruled("3 limits among 10,000 rules", "3 limits", "10k"),
		redis("Redis, 1024 keys, 32 callers", "many keys", "32"),
		redis("Redis, one key, 256 callers", "hot key", "256"),
		resp("CL.THROTTLE, pipeline of 64", "RESP", "64"),
		resp("the same with 1M keys", "RESP, all keys resident", "64"),
		flying("Envoy RLS, 256 in flight", "RLS", "256", "bare grpc-go (floor)", "grpc-go and Redis"),
		flying("POST /v1/check", "HTTP", "16", "bare net/http (floor)"),
	}
}

// call is a line of a table of rows: how weir compares with its first floor and its best peer, whose figure stands in another
// table below every.
func call(work, heading, every, row, goroutines string) ratio {
	return ratio{work, func(r rawTables) (c comparison, err error) {
		want := map[string]string{rowColumn: row, "go": goroutines}
		if c, err = r.compared(heading, want); err != nil {
			return c, err
		}
		if c.peer, err = r.find(cell{heading, want, "best peer"}); err != nil || c.peer == "" || c.peer == "none" {
			c.peer = ""
			return c, err
		}
		theirs, err := r.find(cell{every, map[string]string{rowColumn: row, "goroutines": goroutines, "by": c.peer}, "ns a call"})
		if err != nil {
			return c, err
		}
		c.peerRatio, err = over(theirs, strings.TrimSuffix(c.weir, nanos))
		return c, err
	}}
}

// ruled is a line of the table of rules, which have no peers.
func ruled(work, request, rules string) ratio {
	return ratio{work, func(r rawTables) (comparison, error) {
		return r.compared("Rules", map[string]string{"request": request, "rules": rules, "go": "1"})
	}}
}

// compared reads what a row says about weir and the floor.
func (r rawTables) compared(heading string, want map[string]string) (c comparison, err error) {
	for column, to := range map[string]*string{"weir": &c.weir, "floor": &c.floor, "ratio": &c.ratio} {
		if *to, err = r.find(cell{heading, want, column}); err != nil {
			return c, err
		}
	}
	if c.weir != "" {
		c.weir += nanos
	}
	return c, nil
}

// nanos is the unit of times.
const nanos = " ns"

// served is a line of figures that are higher the better: how many times as much weir does.
func served(work string, at cell, ours, floor string, peers ...string) ratio {
	return ratio{work, func(r rawTables) (c comparison, err error) {
		of := func(by string) (string, error) { return r.find(at.by(by)) }
		if c.weir, err = of(ours); err != nil || c.weir == "" {
			return c, err
		}
		theirs, err := of(floor)
		if err != nil {
			return c, err
		}
		c.floor = strings.TrimSuffix(floor, " (floor)")
		if c.ratio, err = over(c.weir, theirs); err != nil {
			return c, err
		}
		best := 0.0
		for _, p := range peers {
			text, err := of(p)
			if err != nil {
				return c, err
			}
			n, err := strconv.ParseFloat(text, 64)
			if err != nil {
				return c, fmt.Errorf("summary: %s of %s is %q: must be a number", at.column, p, text)
			}
			if n > best {
				best, c.peer = n, p
				if c.peerRatio, err = over(c.weir, text); err != nil {
					return c, err
				}
			}
		}
		c.weir += "/s"
		return c, nil
	}}
}

// over is a quotient of two figures.
func over(a, b string) (string, error) {
	x, err := strconv.ParseFloat(a, 64)
	if err != nil {
		return "", fmt.Errorf("summary: %q: must be a number", a)
	}
	y, err := strconv.ParseFloat(b, 64)
	if err != nil || y == 0 {
		return "", fmt.Errorf("summary: %q: must be a number that is not 0", b)
	}
	return fmt.Sprintf("%.2f", x/y), nil
}

// ratioTable is the table of all ratios.
func ratioTable(r rawTables) (string, error) {
	var b strings.Builder
	b.WriteString("| work | weir | floor | x floor | best peer | x best peer |\n| --- | ---: | --- | ---: | --- | ---: |\n")
	for _, line := range ratios() {
		c, err := line.read(r)
		if err != nil {
			return "", err
		}
		for _, text := range []string{line.work, c.weir, c.floor, c.ratio, c.peer, c.peerRatio} {
			b.WriteString("| " + cmp.Or(text, "-") + " ")
		}
		b.WriteString("|\n")
	}
	return b.String(), nil
}
