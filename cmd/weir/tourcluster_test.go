package main_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"
)

// threeNodes are the files of the section of docs/tour.md with three nodes.
const threeNodes = "examples/cluster/node"

// tens returns a number whose ten ports are free, as are those of the two numbers after it. The last of these ports is held until the
// test ends: tests that run beside it, and look at all thirty, take others, also while its servers are down.
func tens(t *testing.T) int {
	t.Helper()
	for range 1000 {
		n := 3 * (370 + rand.IntN(330)) // below the ports of other servers, and those that are given to who does not care
		var all []net.Listener
		for port := 10*n + 29; port >= 10*n; port-- {
			l, err := new(net.ListenConfig).Listen(t.Context(), "tcp", fmt.Sprintf("127.0.0.1:%d", port))
			if err != nil {
				break
			}
			all = append(all, l)
		}
		if len(all) < 30 {
			closeAll(all)
			continue
		}
		closeAll(all[1:])
		t.Cleanup(func() { closeAll(all[:1]) })
		return n
	}
	t.Fatal("there are no free ports")
	return 0
}

func closeAll(all []net.Listener) {
	for _, l := range all {
		_ = l.Close()
	}
}

var (
	realTime     = regexp.MustCompile(`real\t(\d+)m([\d.]+)s`)
	withoutOwner = regexp.MustCompile(`"without_owner_ns":(\d+)`)
)

// example is a file of the repository.
func example(t *testing.T, name string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("..", "..", name))
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// TestTourThreeNodes runs the commands of docs/tour.md with three nodes, at other ports, and kills the owner as it says.
func TestTourThreeNodes(t *testing.T) {
	t.Parallel()
	tour, err := os.ReadFile(tourPage)
	if err != nil {
		t.Fatal(err)
	}
	_, block, found := strings.Cut(string(tour), "## Three nodes\n")
	_, block, fenced := strings.Cut(block, "```console\n")
	block, _, ends := strings.Cut(block, "```")
	if !found || !fenced || !ends {
		t.Fatal("docs/tour.md has no such section")
	}
	base := tens(t)
	moved := strings.NewReplacer(
		"127.0.0.1:707", fmt.Sprintf("127.0.0.1:%d", base), "127.0.0.1:708", fmt.Sprintf("127.0.0.1:%d", base+1),
		"127.0.0.1:709", fmt.Sprintf("127.0.0.1:%d", base+2),
	)
	dir := t.TempDir()
	if err = os.MkdirAll(filepath.Join(dir, "examples", "cluster"), 0o700); err != nil {
		t.Fatal(err)
	}
	for n := 1; n <= 3; n++ {
		name := fmt.Sprintf("%s%d.yaml", threeNodes, n)
		writeConfig(t, filepath.Join(dir, name), moved.Replace(example(t, name)))
	}
	script := strings.Builder{}
	script.WriteString("trap 'kill -9 ${pid[@]} 2> kill.txt' EXIT\n")
	commands := strings.Split("\n"+block, "\n$ ")[1:]
	for _, part := range commands {
		line, _, _ := strings.Cut(part, "\n")
		line = moved.Replace(strings.ReplaceAll(line, "bin/weir serve", program+" serve"))
		if strings.HasPrefix(line, "go build ") {
			continue // the tests have built it
		}
		script.WriteString(line + "\n")
	}
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, "bash", "-c", script.String())
	cmd.Dir, cmd.WaitDelay = dir, time.Minute
	cmd.Env = command(t).Env
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s\nprints\n%s", err, script.String(), out)
	}
	took := realTime.FindStringSubmatch(string(out))
	gone := withoutOwner.FindStringSubmatch(string(out))
	if !regexp.MustCompile(`(?m)^ +100 "reason":"none"$`).Match(out) || took == nil || gone == nil || len(commands) != 6 {
		t.Fatalf("%s\nprints\n%s", script.String(), out)
	}
	minutes, _ := strconv.ParseFloat(took[1], 64)
	seconds, _ := strconv.ParseFloat(took[2], 64)
	if all := 60*minutes + seconds; all < 4 { // (100 - 20) / 20 a second
		t.Errorf("100 permits were granted in %v s", all)
	}
	if ns, _ := strconv.ParseInt(gone[1], 10, 64); ns <= 0 {
		t.Errorf("the owner was not missed:\n%s", out)
	}
	t.Logf("%s s, without an owner for %s ns", took[2], gone[1])
}
