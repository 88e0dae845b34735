package bench

import (
	"fmt"
	"math/rand/v2"
	"net/http"
	"net/netip"
	"strconv"

	"github.com/weirhq/weir/policy"
)

// How many different clients send the requests, and how many of them are in a network that a rule names.
const (
	ruleClients    = 1000
	networkClients = 200
)

// The shapes of the rules, which take turns.
const (
	shapePath = iota
	shapeHost
	shapeHeader
	shapeNetwork
	shapeMethodAndPath
	shapes
)

// network is the network of the j-th rule that names one.
func network(j int) netip.Prefix {
	return netip.PrefixFrom(netip.AddrFrom4([4]byte{10, byte(j >> 8), byte(j), 0}), 24)
}

// ruleMatch says for which requests the i-th rule holds.
func ruleMatch(i int) policy.Match {
	switch i % shapes {
	case shapePath:
		return policy.Match{Paths: []string{fmt.Sprintf("/v1/things%d/{id}", i)}}
	case shapeHost:
		return policy.Match{Hosts: []string{fmt.Sprintf("h%d.example.com", i)}}
	case shapeHeader:
		return policy.Match{Headers: []policy.HeaderMatch{{Name: "X-Api-Key", Value: fmt.Sprintf("key-%d", i)}}}
	case shapeNetwork:
		return policy.Match{Clients: []netip.Prefix{network(i / shapes)}}
	default:
		return policy.Match{Methods: []string{http.MethodPost}, Paths: []string{fmt.Sprintf("/v2/items%d/{id}", i)}}
	}
}

// plainHeader is that of all requests whose header no rule knows.
var plainHeader = http.Header{"Accept": {"*/*"}, "User-Agent": {"bench"}}

// ruleRequest returns a request for which just one of so many rules holds, and which one that is. What else it has, no rule
// knows. Few rules and many see the same clients.
func ruleRequest(rng *rand.Rand, rules int) (r policy.Request, i int) {
	r = policy.Request{
		Protocol: "http", Method: http.MethodGet, Host: "www.example.com", Path: "/about", Header: plainHeader,
	}
	other := rng.IntN(ruleClients - networkClients)
	r.Client = netip.AddrFrom4([4]byte{198, 18, byte(other >> 8), byte(other)})
	i = rng.IntN(rules)
	id := strconv.Itoa(rng.IntN(1_000_000))
	switch i % shapes {
	case shapePath:
		r.Path = fmt.Sprintf("/v1/things%d/%s", i, id)
	case shapeHost:
		r.Host = fmt.Sprintf("h%d.example.com", i)
	case shapeHeader:
		r.Header = http.Header{"Accept": {"*/*"}, "User-Agent": {"bench"}, "X-Api-Key": {fmt.Sprintf("key-%d", i)}}
	case shapeNetwork:
		c := rng.IntN(networkClients)
		j := c * (rules / shapes) / networkClients
		b := network(j).Addr().As4()
		b[3] = byte(1 + c)
		r.Client, i = netip.AddrFrom4(b), shapes*j+shapeNetwork
	default:
		r.Method, r.Path = http.MethodPost, fmt.Sprintf("/v2/items%d/%s", i, id)
	}
	return r, i
}

// rulePart is a batch of requests, and what one goroutine needs to decide on them. It belongs to one goroutine at a time.
type rulePart struct {
	requests []policy.Request
	rules    []string // the name of the rule that applies to each
	keys     []string // what each is counted under
	verdict  policy.Verdict
	hand     byHand
}

// ruleWork is all requests of a row. A goroutine that has decided on a part puts it behind the others.
type ruleWork struct {
	parts chan *rulePart
}

// newRuleWork makes some batches of requests for so many rules, which are counted under key.
func newRuleWork(rules, batches int, key policy.Text) (ruleWork, error) {
	rng := rand.New(rand.NewPCG(5, 6)) //nolint:gosec // the same requests for all
	w := ruleWork{make(chan *rulePart, batches)}
	known := map[string]string{}
	for range batches {
		p := &rulePart{}
		for range batch {
			r, i := ruleRequest(rng, rules)
			text, err := key.AppendTo(nil, &r)
			if err != nil {
				return w, fmt.Errorf("bench: the key %s: %w", key, err)
			}
			if _, ok := known[string(text)]; !ok {
				known[string(text)] = string(text)
			}
			p.requests = append(p.requests, r)
			p.rules = append(p.rules, ruleName(i))
			p.keys = append(p.keys, known[string(text)])
		}
		w.parts <- p
	}
	return w, nil
}

func ruleName(i int) string { return fmt.Sprintf("rule %d", i) }

// subject is one that is asked for part after part of the requests.
func (w ruleWork) subject(by, call string, ask func(p *rulePart, n int) (granted int)) Subject {
	return Subject{By: by, Call: call, New: func() (Loop, func()) {
		return func(n int) int {
			p := <-w.parts
			granted := ask(p, n)
			w.parts <- p
			return granted
		}, nil
	}}
}

// once asks for every request one time.
func (w ruleWork) once(ask func(p *rulePart, n int) (granted int)) (granted int) {
	for range cap(w.parts) {
		p := <-w.parts
		granted += ask(p, batch)
		w.parts <- p
	}
	return granted
}
