package main_test

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"strconv"
	"strings"
	"testing"

	"github.com/weirhq/weir/internal/race"
	"github.com/weirhq/weir/internal/respclient"
)

// pipeline sends the same command for many keys, a thousand at a time, and calls each with every reply.
func pipeline(
	t *testing.T, address string, keys []string, command func(key string) []string, each func(key string, r respclient.Reply),
) {
	t.Helper()
	conn := connect(t, address)
	replies := respclient.NewReader(conn)
	for len(keys) > 0 {
		some := keys[:min(len(keys), 1000)]
		keys = keys[len(some):]
		var b []byte
		for _, key := range some {
			b = respclient.AppendCommand(b, command(key)...)
		}
		if _, err := conn.Write(b); err != nil {
			t.Fatal(err)
		}
		for _, key := range some {
			r, err := replies.Read()
			if err != nil {
				t.Fatal(err)
			}
			each(key, r)
		}
	}
}

// names returns n keys that are new.
func names(n int) []string {
	all := make([]string, n)
	for i := range all {
		all[i] = strconv.FormatUint(rand.Uint64(), 36) + strconv.Itoa(i)
	}
	return all
}

// resident is how many bytes of memory a process has, where the system tells.
func resident(t *testing.T, pid int) (bytes int64, known bool) {
	t.Helper()
	return memoryOf(t, pid, "VmRSS:")
}

// memoryOf is a number of bytes that the system tells of a process.
func memoryOf(t *testing.T, pid int, name string) (bytes int64, known bool) {
	t.Helper()
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return 0, false
	}
	for line := range strings.Lines(string(text)) {
		if fields := strings.Fields(line); len(fields) == 3 && fields[0] == name {
			n, err := strconv.ParseInt(fields[1], 10, 64)
			if err != nil {
				t.Fatal(err)
			}
			return n << 10, true
		}
	}
	return 0, false
}

// tracked is how many keys a server says that it knows, for a command.
func (s *attacked) tracked(command string) int {
	s.t.Helper()
	var status struct {
		Policies []struct {
			Keys int `json:"keys"`
		} `json:"policies"`
		RESP struct {
			Throttle struct {
				Keys int `json:"keys"`
			} `json:"throttle"`
		} `json:"resp"`
	}
	_, text := s.request("GET", "/v1/status", "")
	if err := json.Unmarshal([]byte(text), &status); err != nil {
		s.t.Fatal(err)
	}
	if command == "CL.THROTTLE" {
		return status.RESP.Throttle.Keys
	}
	return status.Policies[0].Keys
}

// TestAttackKeyFlooding: an attacker that invents keys fills the table and no more. That resets no limit, keys that were there
// stay, and memory does not grow.
func TestAttackKeyFlooding(t *testing.T) {
	t.Parallel()
	const (
		room      = 5_000
		customers = 100
	)
	// What is noted of refusals, and what the garbage collector leaves. The keys that found no room would need more.
	mostGrowth, flood := int64(4<<20), 100_000
	if race.Enabled {
		mostGrowth, flood = 100<<20, 25_000 // it has memory of its own, and takes its time
	}
	s := attack(t, "--limit", "2/day", "--burst", "2", "--max-keys", strconv.Itoa(room), "--resp-keys", strconv.Itoa(room))
	for name, c := range map[string]struct {
		flood   int
		command func(key string) []string
		granted func(r respclient.Reply) bool
		refused func(r respclient.Reply) bool
	}{
		"WEIR.TAKE": {
			flood:   flood,
			command: func(key string) []string { return []string{"WEIR.TAKE", "default", key} },
			granted: func(r respclient.Reply) bool { return len(r.Elems) == 7 && r.Elems[0].Value == "0" },
			refused: func(r respclient.Reply) bool {
				return len(r.Elems) == 7 && r.Elems[0].Value == "1" && r.Elems[5].Value == "limited"
			},
		},
		"CL.THROTTLE": {
			flood:   15_000,
			command: func(key string) []string { return []string{"CL.THROTTLE", key, "1", "2", "86400"} },
			granted: func(r respclient.Reply) bool { return len(r.Elems) == 5 && r.Elems[0].Value == "0" },
			refused: func(r respclient.Reply) bool { return len(r.Elems) == 5 && r.Elems[0].Value == "1" },
		},
	} {
		count := func(keys []string) (granted int) {
			t.Helper()
			pipeline(t, s.resp, keys, c.command, func(key string, r respclient.Reply) {
				switch {
				case c.granted(r):
					granted++
				case r.Err() != nil || len(r.Elems) == 0:
					t.Fatalf("%s %s: %s", name, key, r.Value)
				}
			})
			return granted
		}
		old := names(customers)
		if got := count(old); got != customers {
			t.Fatalf("%s: %d customers of %d were served before the attack", name, got, customers)
		}
		invented := names(c.flood)
		got := count(invented[:2*room])
		before, known := resident(t, s.cmd.Process.Pid)
		got += count(invented[2*room:])
		after, _ := resident(t, s.cmd.Process.Pid)
		if got > room-customers || got < (room-customers)*9/10 {
			t.Errorf("%s: %d invented keys were granted something: there is room for %d", name, got, room-customers)
		}
		if tracked := s.tracked(name); tracked > room || tracked == 0 {
			t.Errorf("%s: %d keys are tracked", name, tracked)
		}
		if known && after-before > mostGrowth {
			t.Errorf("%s: memory grows from %d to %d MiB with keys for which there is no room", name, before>>20, after>>20)
		}
		// They come again: those that have a place have one permit left, the others nothing.
		invented = invented[:room]
		if again := count(invented); again > got {
			t.Errorf("%s: %d invented keys were granted something when they came again, %d before", name, again, got)
		}
		if again := count(invented); again != 0 {
			t.Errorf("%s: %d keys have more than their quota", name, again)
		}
		if again := count(old); again != customers {
			t.Errorf("%s: %d customers of %d still have their second permit", name, again, customers)
		}
		pipeline(t, s.resp, old, c.command, func(key string, r respclient.Reply) {
			if !c.refused(r) {
				t.Errorf("%s: customer %s is given a new quota by the attack", name, key)
			}
		})
	}
	if a, text := s.check(`{"key":"one more"}`); a.status != 429 || !strings.Contains(text, `"reason":"table-full"`) {
		t.Errorf("a new key over HTTP: %d %s", a.status, text)
	}
	s.end()
}
