package bench

// The loops of this file ask for one permit and want to know no more than yes or no. Each names its limiter's type, so
// that the compiler sees the same call as it would in a program: one loop over an interface or a func would add an
// indirect call to some and keep it from inlining others.

// key is the one key that stores of many keys are asked for.
const key = "192.0.2.1"

func weirAllow(b budget) Subject {
	return Subject{By: byWeir, Call: "TokenBucket.Allow()", New: func() (Loop, func()) {
		l := b.weir()
		return func(n int) (granted int) {
			for range n {
				if l.Allow() {
					granted++
				}
			}
			return granted
		}, nil
	}}
}

func xtimeAllow(b budget) Subject {
	return Subject{By: byXTime, Call: "Limiter.Allow()", New: func() (Loop, func()) {
		l := b.xtime()
		return func(n int) (granted int) {
			for range n {
				if l.Allow() {
					granted++
				}
			}
			return granted
		}, nil
	}}
}

// uberTake counts every call as granted: it can do nothing else.
func uberTake(b budget) Subject {
	return Subject{By: byUber, Call: "Limiter.Take()", New: func() (Loop, func()) {
		l := b.uber()
		return func(n int) (granted int) {
			for range n {
				l.Take()
				granted++
			}
			return granted
		}, nil
	}}
}

func jujuTake(b budget) Subject {
	return Subject{By: byJuju, Call: "Bucket.TakeAvailable(1)", New: func() (Loop, func()) {
		l := b.juju()
		return func(n int) (granted int) {
			for range n {
				granted += int(l.TakeAvailable(1))
			}
			return granted
		}, nil
	}}
}

func failsafeSmooth(b budget) Subject {
	return Subject{By: byFailsafe, Call: "NewSmooth, TryAcquirePermit()", New: func() (Loop, func()) {
		l := b.smooth()
		return func(n int) (granted int) {
			for range n {
				if l.TryAcquirePermit() {
					granted++
				}
			}
			return granted
		}, nil
	}}
}

func failsafeBursty(b budget) Subject {
	return Subject{By: byFailsafe, Call: "NewBursty, TryAcquirePermit()", New: func() (Loop, func()) {
		l := b.bursty()
		return func(n int) (granted int) {
			for range n {
				if l.TryAcquirePermit() {
					granted++
				}
			}
			return granted
		}, nil
	}}
}

func golimiterTake(b budget) Subject {
	return Subject{By: byGoLimiter, Call: "Store.Take(ctx, key)", New: func() (Loop, func()) {
		s, ctx := b.golimiter(), waitingContext
		return func(n int) (granted int) {
			for range n {
				if _, _, _, ok, err := s.Take(ctx, key); ok && err == nil {
					granted++
				}
			}
			return granted
		}, func() { _ = s.Close(ctx) }
	}}
}

// drained is the subject with its one permit taken before the measurement.
func drained(s Subject) Subject {
	fresh := s.New
	s.New = func() (Loop, func()) {
		loop, stop := fresh()
		loop(1)
		return loop, stop
	}
	return s
}
