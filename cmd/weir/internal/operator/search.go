package operator

import (
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/weirhq/weir/cmd/weir/internal/terminal"
)

// Search is what a server knows of a word: the address of a client, a network, or a value of requests such as a user or a key of
// an API.
type Search struct {
	// Word is the word as it was given, spelled as keys are, and Address the address or network that it was read as, "" if it is
	// none.
	Word    string `json:"word"`
	Address string `json:"address,omitempty"`
	// Keys are those that were found, at most 256: those that are locked out or refused first, those that nothing is kept of
	// last. More is how many were left out.
	Keys []FoundKey `json:"keys"`
	More int        `json:"more"`
	// Unsearched are the policies of which there may be keys of the word that were not found. Policies is how many policies there
	// are.
	Unsearched []Unsearched `json:"unsearched"`
	Policies   int          `json:"policies"`
	// Refusals are the last ones that name the word, as the client, in a key, or in the path or host.
	Refusals Refusals `json:"refusals"`
	// Others tells that there are other servers, which know of limits that they keep themselves what is not in it.
	Others bool `json:"others"`
}

// FoundKey is a key that a word leads to.
type FoundKey struct {
	Key

	// How is how it does: "key" for a key that is the word, "made" for the one that the policy makes of it, "part" for one that
	// has it as a part, "all" for the one that all requests share, "refused" for that of a refusal which names it.
	How string `json:"how"`
	// Kept is where the limits of the policy are: "local" for this server alone, or "coherent", "leased", "optimistic" or
	// "cluster".
	Kept string `json:"kept"`
	// Error is why the state is not known, "" if it is.
	Error string `json:"error,omitempty"`
}

// Known reports whether anything is kept of the key, or may be.
func (k *FoundKey) Known() bool {
	if k.Error != "" || k.LockedFor != 0 || k.Override != nil {
		return true
	}
	for i := range k.Limits {
		if l := &k.Limits[i]; l.Tracked || l.Refused > 0 || l.Waiters > 0 {
			return true
		}
	}
	return false
}

// Refuses reports whether the next request of the key is refused, as far as that is known.
func (k *FoundKey) Refuses() bool {
	if k.Mode != "enforce" {
		return false
	}
	if k.LockedFor != 0 {
		return true
	}
	for i := range k.Limits {
		if !k.Limits[i].Allowed {
			return true
		}
	}
	return false
}

// Unsearched is a policy of which there may be keys of a word that were not found.
type Unsearched struct {
	Policy string `json:"policy"`
	Why    string `json:"why"`
}

// mostSearchedRefusals is how many refusals a search lists.
const mostSearchedRefusals = 5

// writeSearch writes what is known of a word; now tells how long ago refusals were.
func writeSearch(w io.Writer, out terminal.Output, s *Search, now time.Time) {
	verdict, refused := searchVerdict(s, now)
	if refused {
		verdict = out.Red(verdict)
	}
	fmt.Fprintf(w, "%s: %s\n", out.Bold(quoted(s.Word)), verdict)
	var idle []string
	for i := range s.Keys {
		k := &s.Keys[i]
		if !k.Known() {
			idle = append(idle, fmt.Sprintf("%s (key %s)", terminal.Printable(k.Policy), quoted(k.Key.Key)))
			continue
		}
		WriteKey(w, out, &k.Key)
		if about := aboutFound(k); about != "" {
			fmt.Fprintf(w, "  %s\n", about)
		}
	}
	if s.More > 0 {
		fmt.Fprintf(w, "and %s\n", terminal.Plural(s.More, "more key", "more keys"))
	}
	if len(idle) > 0 {
		fmt.Fprintf(w, "nothing is kept of it by %s\n", strings.Join(idle, ", "))
	}
	for _, u := range s.Unsearched {
		fmt.Fprintf(w, "not searched: policy %s: %s\n", terminal.Printable(u.Policy), terminal.Printable(u.Why))
	}
	last := s.Refusals.Refusals
	if len(last) > 0 {
		fmt.Fprintf(w, "the last refusals that name it, of %s that the server has noted:\n", terminal.Number(s.Refusals.Kept))
	}
	for i := range last[:min(len(last), mostSearchedRefusals)] {
		WriteRefusal(w, out, &last[i], now)
	}
	if s.Refusals.Missed > 0 {
		fmt.Fprintf(w, "%s not noted, as there were too many at a time\n",
			terminal.Plural(s.Refusals.Missed, "refusal was", "refusals were"))
	}
	if s.Others {
		fmt.Fprintf(w, "other servers know of their own limits, lockouts and refusals: ask each with --server\n")
	}
}

// aboutFound is what else is known of a key that was found.
func aboutFound(k *FoundKey) string {
	var all []string
	switch k.How {
	case "all":
		all = append(all, "all requests share it")
	case "part":
		all = append(all, "the word is a part of it")
	case "refused":
		all = append(all, "it is the key of a refusal that names the word")
	}
	if k.Error != "" {
		all = append(all, "its state is not known: "+terminal.Printable(k.Error))
	}
	return strings.Join(all, "; ")
}

// searchVerdict is what a search comes to in words, and whether the word is being refused.
func searchVerdict(s *Search, now time.Time) (verdict string, refused bool) {
	refusing, ofAll, known := 0, 0, 0
	for i := range s.Keys {
		switch k := &s.Keys[i]; {
		case !k.Refuses():
		case k.How == "all":
			ofAll++
		default:
			refusing++
		}
		if s.Keys[i].Known() {
			known++
		}
	}
	left := ""
	if n := len(s.Unsearched); n > 0 {
		left = fmt.Sprintf("; %d of %s cannot be searched for it", n, terminal.Plural(s.Policies, "policy", "policies"))
	}
	switch {
	case refusing > 0:
		return fmt.Sprintf("refused now by %s%s", terminal.Plural(refusing, "key", "keys"), left), true
	case ofAll > 0:
		return fmt.Sprintf("no key of its own is refused now, but %s that all requests share%s",
			terminal.Plural(ofAll, "key", "keys"), left), false
	case len(s.Refusals.Refusals) > 0:
		last := s.Refusals.Refusals[0].Time
		return fmt.Sprintf("refused last at %s%s%s", Time(last), ago(last, now), left), true
	case known > 0:
		return "no policy that was searched refuses it now" + left, false
	}
	return "no policy is known to track it" + left, false
}
