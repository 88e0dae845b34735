package bench

import (
	"fmt"
	"testing"
	"time"
)

// BenchmarkRow measures the rows of the table, each subject by itself. To compare subjects or versions:
//
//	go test -run '^$' -bench Row -count 10 | tee new.txt
//	benchstat -col /by new.txt
//	benchstat old.txt new.txt
func BenchmarkRow(b *testing.B) {
	for _, r := range Rows() {
		benchmarkRow(b, r)
	}
}

// BenchmarkRules measures the rows of the rule engine in the same way.
func BenchmarkRules(b *testing.B) {
	for _, rule := range ruleRows() {
		r, end, err := rule.row(DefaultSettings().RuleBatches)
		if err != nil {
			b.Fatal(err)
		}
		benchmarkRow(b, r)
		end()
	}
}

func benchmarkRow(b *testing.B, r Row) {
	b.Helper()
	for i, s := range r.subjects() {
		by := s.By
		if r.isFloor(i) {
			by = "floor-" + by
		}
		b.Run(fmt.Sprintf("row=%s/goroutines=%d/by=%s", r.Name, r.Goroutines, by), func(b *testing.B) {
			b.ReportAllocs()
			loop, stop := s.New()
			if stop != nil {
				defer stop()
			}
			b.ResetTimer()
			var m sample
			if r.Goroutines == 1 {
				m = alone(loop, b.N)
			} else {
				m = together(loop, r.Goroutines, b.N, DefaultSettings().Meet)
			}
			b.StopTimer()
			if err := r.verify(s, m); err != nil && !r.isFloor(i) {
				b.Fatal(err)
			}
			if r.Goroutines > 1 { // without the time in which they met
				b.ReportMetric(m.nanos(), "ns/op")
				b.ReportMetric(m.cpu, "cpu/wall")
			}
		})
	}
}

// BenchmarkAdmission measures how much 64 goroutines are granted over what is allowed, for a second.
func BenchmarkAdmission(b *testing.B) {
	for _, a := range AskedLimiters() {
		for _, perSecond := range AdmissionRates() {
			b.Run(fmt.Sprintf("call=%s/rate=%d/by=%s", a.Call, perSecond, a.By), func(b *testing.B) {
				ratio := 0.0
				for range b.N {
					m, err := a.Measure(b.Context(), perSecond, time.Second)
					if err != nil {
						b.Fatal(err)
					}
					ratio += m.Ratio
				}
				b.ReportMetric(ratio/float64(b.N), "granted/allowed")
				b.ReportMetric(0, "ns/op")
			})
		}
	}
}

// BenchmarkWaiters measures 1000 waiters, half of which give up.
func BenchmarkWaiters(b *testing.B) {
	for _, c := range crowds {
		for _, q := range cancelable(QueuedLimiters()) {
			b.Run(fmt.Sprintf("burst=%d/by=%s", c.budget.burst, q.By), func(b *testing.B) {
				var last, cpu, allocs float64
				for range b.N {
					r, err := c.once(b.Context(), q)
					if err != nil {
						b.Fatal(err)
					}
					last, cpu, allocs = last+r.Last, cpu+r.CPU, allocs+r.Allocs
				}
				n := float64(b.N)
				b.ReportMetric(last/n, "last-sec")
				b.ReportMetric(cpu/n, "cpu-µs/wait")
				b.ReportMetric(allocs/n, "allocs/wait")
				b.ReportMetric(0, "ns/op")
			})
		}
	}
}

// BenchmarkStream measures 64 goroutines that wait again and again.
func BenchmarkStream(b *testing.B) {
	run := func(name string, s streamed) {
		b.Run(name+"/by="+s.result.By, func(b *testing.B) {
			var rate, cpu, allocs float64
			for range b.N {
				r, err := stream(b.Context(), time.Second/relayPart, s.start)
				if err != nil {
					b.Fatal(err)
				}
				rate, cpu, allocs = rate+r.PerSecond, cpu+r.CPU, allocs+r.Allocs
			}
			n := float64(b.N)
			b.ReportMetric(rate/n, "waits/sec")
			b.ReportMetric(cpu/n, "cpu-µs/wait")
			b.ReportMetric(allocs/n, "allocs/wait")
			b.ReportMetric(0, "ns/op")
		})
	}
	for _, budget := range streams {
		for _, s := range streamsOf(budget) {
			run(fmt.Sprintf("rate=%d/burst=%d", budget.permits, budget.burst), s)
		}
	}
	for _, s := range streamsOfRelays() {
		run("relay", s)
	}
}
