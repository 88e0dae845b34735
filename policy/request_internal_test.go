package policy

import (
	"testing"

	"github.com/weirhq/weir"
)

// panicking is a condition that panics, if it is to.
type panicking bool

func (p panicking) Holds(*Request) (bool, error) {
	if p {
		panic("condition")
	}
	return true, nil
}

func (panicking) String() string { return "panicking" }

// TestRequestKeepsNothingOfAVerdict looks at requests after calls, whose verdicts are used for others then.
func TestRequestKeepsNothingOfAVerdict(t *testing.T) {
	for _, panics := range []bool{false, true} {
		for _, deny := range []bool{false, true} {
			rule := Rule{Name: "r", When: panicking(panics), Deny: deny}
			if !deny {
				rule.Limits = []Use{{Policy: "p"}}
			}
			e, err := NewEngine(&Set{
				Policies: []Policy{{Name: "p", Limits: []Limit{{Limit: weir.TokenBucket(weir.PerSecond(1), 1)}}}}, Rules: []Rule{rule},
			}, EngineOptions{})
			if err != nil {
				t.Fatal(err)
			}
			var v Verdict
			r := Request{Method: "get", Path: "/a;b"} // can be read in several ways
			for name, call := range map[string]func(){
				"Take":    func() { e.Take(&r, &v) },
				"Peek":    func() { e.Peek(&r, &v) },
				"TakeAll": func() { e.TakeAll(t.Context(), []*Request{&r, &r}, &v) },
				"Denies":  func() { e.Denies(&r) },
			} {
				func() {
					defer func() {
						if said := recover(); said != nil && !panics {
							t.Error(said)
						}
					}()
					call()
				}()
				if r.seen != nil {
					t.Errorf("panics %v, denies %v: %s leaves a view", panics, deny, name)
				}
			}
		}
	}
}
