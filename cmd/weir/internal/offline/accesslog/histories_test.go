//go:build !race

package accesslog

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
)

func TestJSONAgainstReference(t *testing.T) {
	random := rand.New(rand.NewPCG(3, 4))
	var names []string
	for _, field := range jsonFields {
		names = append(names, field.names...)
	}
	quoted := func(s string) string {
		s = strings.ReplaceAll(strings.ReplaceAll(s, `\`, `\\`), `"`, `\"`)
		s = strings.ReplaceAll(s, "\t", `\t`)
		if s != "" && s[0] < 0x80 && s[0] != '\\' && random.IntN(8) == 0 {
			s = fmt.Sprintf(`\u%04x`, s[0]) + s[1:]
		}
		return `"` + s + `"`
	}
	scalar := func() string {
		switch random.IntN(8) {
		case 0:
			return oneOf(random, []string{"null", "true", "false", "{}", "[]", `{"x":[1,{}]}`, `[["x"]]`, "-1", "0.5e3"})
		case 1:
			return oneOf(random, []string{"1719835200", "1719835200.25", "1719835200123", "1.7198352e9", "200", "0", "99", "512", "7.5"})
		case 2:
			return quoted(oneOf(random, someTimes))
		case 3:
			return quoted(oneOf(random, someClients))
		case 4:
			return quoted(oneOf(random, someTargets))
		case 5:
			return quoted(oneOf(random, someMethods) + " " + oneOf(random, someTargets) + oneOf(random, someEndings))
		case 6:
			return quoted(oneOf(random, someCodes))
		}
		return quoted(oneOf(random, someTexts))
	}
	value := func() string {
		if random.IntN(6) == 0 {
			return "[" + scalar() + ", " + scalar() + "]"
		}
		return scalar()
	}
	records := 0
	const rounds = 20_000
	for range rounds {
		// Half of the lines have a time, since little can be compared without.
		members := []string{`"time":1719835200`, `"other":` + value()}[random.IntN(2):]
		for range 1 + random.IntN(8) {
			name, nested, ok := strings.Cut(oneOf(random, names), ".")
			v := value()
			if ok {
				inner, header, ok := strings.Cut(nested, ".")
				if ok {
					v = `{"x":1,` + quoted(header) + `:` + v + `}`
				}
				v = `{` + quoted(inner) + `: ` + v + `,"y":[` + scalar() + `],"method":"X"}`
			}
			members = append(members, quoted(name)+":"+v)
		}
		random.Shuffle(len(members), func(i, j int) { members[i], members[j] = members[j], members[i] })
		line := "{" + strings.Join(members, ",") + "}"
		if random.IntN(10) == 0 { // break the syntax somewhere
			i := random.IntN(len(line))
			line = line[:i] + oneOf(random, []string{"", `"`, ",", "}", "{", `\`, " "}) + line[min(len(line), i+random.IntN(3)):]
		}
		if !strings.HasPrefix(line, "{") {
			continue
		}
		got, reason := readOne(t, line)
		want, malformed := referenceJSON([]byte(line))
		replaceInvalid(&got)
		if reason == "" {
			records++
		}
		if malformed != (reason != "") || got != want {
			t.Fatalf("%s\n got %+v %s\nwant %+v, malformed %v", line, got, reason, want, malformed)
		}
	}
	if records < rounds/4 {
		t.Errorf("only %d of %d lines were records", records, rounds)
	}
}

func TestTextAgainstReference(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	matches, records := 0, 0
	for range 20_000 {
		line := fmt.Sprintf(`%s %s %s [%s] "%s %s%s" %s %s`,
			oneOf(random, someClients), oneOf(random, []string{"-", "id", "192.0.2.9"}), oneOf(random, []string{"-", "user"}),
			oneOf(random, someTimes), oneOf(random, someMethods), oneOf(random, someTargets), oneOf(random, someEndings),
			oneOf(random, someCodes), oneOf(random, someSizes))
		if random.IntN(4) > 0 {
			line += ` "` + oneOf(random, someTexts) + `" "` + oneOf(random, someTexts) + `"`
		}
		got, reason := readOne(t, line)
		want, malformed, matched := referenceText(line)
		if !matched {
			continue
		}
		matches++
		if reason == "" {
			records++
		}
		if malformed != (reason != "") || got != want {
			t.Fatalf("%q\n got %+v %s\nwant %+v, malformed %v", line, got, reason, want, malformed)
		}
	}
	if matches < 10_000 || records < 5_000 {
		t.Errorf("only %d lines were compared, %d of them records", matches, records)
	}
}
