package load

import (
	"math"
	"math/rand/v2"
	"strconv"
)

const (
	uniform = "uniform"
	zipf    = "zipf"
)

// keySource draws keys at random: a prefix and a number from 0. What it draws follows from its seed alone.
type keySource struct {
	prefix string
	n      uint64
	zipf   *zipfian // nil for a uniform distribution
	random *rand.Rand
	text   []byte
}

// newKeySource returns the source of one connection.
func newKeySource(o *options, connection int) *keySource {
	s := &keySource{
		prefix: o.keyPrefix,
		n:      uint64(o.keys),
		random: rand.New(rand.NewPCG(uint64(o.seed), uint64(connection))), //nolint:gosec // to be repeated
	}
	s.text = append(make([]byte, 0, len(s.prefix)+20), s.prefix...)
	if o.distribution == zipf {
		s.zipf = newZipfian(float64(o.keys), o.zipfS)
	}
	return s
}

// next returns a key. It is valid until the next call.
func (s *keySource) next() []byte {
	s.text = strconv.AppendUint(s.text[:len(s.prefix)], s.number(), 10)
	return s.text
}

func (s *keySource) number() uint64 {
	if s.zipf != nil {
		return s.zipf.draw(s.random)
	}
	return s.random.Uint64N(s.n)
}

// zipfian draws numbers from 0 to n - 1 so that number k comes with a probability in proportion to 1 / (k+1)^s, for any s above
// 0. It rejects and inverts, as W. Hörmann and G. Derflinger describe ("Rejection-inversion to generate variates from monotone
// discrete distributions", 1996), so that it needs no table: the histogram of the distribution lies below a curve whose
// integral has an inverse. math/rand/v2 has a Zipf for exponents above 1 only, and what is usual in load tests is 0.99.
type zipfian struct {
	n, s       float64
	first      float64 // the integral up to 1.5, less the column of 1
	last       float64 // the integral up to n + 0.5
	acceptance float64 // a column is accepted at once where it is not further than this from its middle
}

func newZipfian(n, s float64) *zipfian {
	z := &zipfian{n: n, s: s}
	z.first = z.integral(1.5) - 1
	z.last = z.integral(n + 0.5)
	z.acceptance = 2 - z.inverse(z.integral(2.5)-z.column(2))
	return z
}

func (z *zipfian) draw(random *rand.Rand) uint64 {
	for {
		u := z.last + random.Float64()*(z.first-z.last)
		x := z.inverse(u)
		k := min(max(math.Floor(x+0.5), 1), z.n)
		if k-x <= z.acceptance || u >= z.integral(k+0.5)-z.column(k) {
			return uint64(k) - 1
		}
	}
}

// column is 1 / x^s.
func (z *zipfian) column(x float64) float64 { return math.Exp(-z.s * math.Log(x)) }

// integral is that of 1 / x^s, up to a constant: (x^(1-s) - 1) / (1-s), and log(x) for s = 1.
func (z *zipfian) integral(x float64) float64 {
	l := math.Log(x)
	return expm1Over((1-z.s)*l) * l
}

// inverse is that of integral.
func (z *zipfian) inverse(y float64) float64 {
	t := max(y*(1-z.s), -1)
	return math.Exp(log1pOver(t) * y)
}

// small is below which the first terms of a series are as good as the function.
const small = 1e-8

// expm1Over is (e^x - 1) / x.
func expm1Over(x float64) float64 {
	if math.Abs(x) < small {
		return 1 + x/2
	}
	return math.Expm1(x) / x
}

// log1pOver is log(1 + x) / x.
func log1pOver(x float64) float64 {
	if math.Abs(x) < small {
		return 1 - x/2
	}
	return math.Log1p(x) / x
}
