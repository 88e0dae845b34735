package durable_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/weirhq/weir"
	"github.com/weirhq/weir/durable"
)

// fileVariable has the test binary take permits of a limit in the file that it names, until there are none.
const fileVariable = "WEIR_TEST_FILE"

func TestMain(m *testing.M) {
	if path := os.Getenv(fileVariable); path != "" {
		if err := takeAll(path); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	os.Exit(m.Run())
}

const (
	filePermits = 3000
	fileCallers = 8
)

// takeAll writes a line for each permit that was granted, and one when there are no more.
func takeAll(path string) error {
	k, err := durable.OpenKeyed(path, year(filePermits), durable.KeyedOptions{})
	if err != nil {
		return err
	}
	var work sync.WaitGroup
	for range fileCallers {
		work.Go(func() {
			for {
				switch d := k.Take("k", 1); {
				case d.Allowed:
					_, _ = os.Stdout.WriteString("granted\n")
				case d.Reason == weir.ReasonLimited:
					return
				default:
					_, _ = fmt.Fprintln(os.Stdout, d)
					return
				}
			}
		})
	}
	work.Wait()
	_, err = os.Stdout.WriteString("refused\n")
	return err
}

// TestKilledProcessesGrantNothingTwice: a process that takes permits is killed again and again, whatever it does at that moment. All of
// them together are granted the limit at most, and lose less than a tenth of it by each kill.
func TestKilledProcessesGrantNothingTwice(t *testing.T) {
	for seed := range seeds(3, 2) {
		if !t.Run(fmt.Sprint(seed), func(t *testing.T) { killed(t, rand.New(rand.NewPCG(seed, 13))) }) {
			return
		}
	}
}

func killed(t *testing.T, r *rand.Rand) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "limits")
	granted, kills := 0, 0
	for done := false; !done; {
		cmd := exec.CommandContext(t.Context(), os.Args[0])
		cmd.Env = append(os.Environ(), fileVariable+"="+path)
		cmd.Stderr = os.Stderr
		out, err := cmd.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		lines, after := bufio.NewScanner(out), 1+r.IntN(500)
		for lines.Scan() { // also what was written before it was killed
			switch line := lines.Text(); line {
			case "granted":
				granted++
			case "refused":
				done = true
			default:
				t.Errorf("it says %q", line)
			}
			if after--; after == 0 {
				kills++
				_ = cmd.Process.Kill()
			}
		}
		_ = cmd.Wait() // it was killed
		if after > 0 && !done {
			t.Fatal("it has ended by itself")
		}
	}
	t.Logf("%d of %d were granted, with %d kills", granted, filePermits, kills)
	if least := filePermits - kills*(filePermits/10-1+fileCallers); granted > filePermits || granted < least {
		t.Errorf("%d were granted, want from %d to %d", granted, least, filePermits)
	}
}

// TestFileIsUsedByOneProcess: neither this process nor another one opens a file that is open.
func TestFileIsUsedByOneProcess(t *testing.T) {
	path := filepath.Join(t.TempDir(), "limits")
	f := must(durable.OpenFile(path, durable.FileOptions{}))
	if _, err := durable.OpenFile(path, durable.FileOptions{}); !errors.Is(err, durable.ErrInUse) || !strings.Contains(err.Error(), path) {
		t.Errorf("opened twice: %v", err)
	}
	cmd := exec.CommandContext(t.Context(), os.Args[0])
	cmd.Env = append(os.Environ(), fileVariable+"="+path)
	if out, err := cmd.CombinedOutput(); err == nil || !strings.Contains(string(out), durable.ErrInUse.Error()) {
		t.Errorf("another process has opened it: %s", out)
	}
	if err := f.Close(); err != nil {
		t.Error(err)
	}
	f = must(durable.OpenFile(path, durable.FileOptions{}))
	if err := f.Close(); err != nil {
		t.Error(err)
	}
}

// TestFileCannotBeUsed: an error names the file, or the option.
func TestFileCannotBeUsed(t *testing.T) {
	dir := t.TempDir()
	if err := os.Mkdir(filepath.Join(dir, "directory"), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "text"), []byte("something else entirely"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "empty"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for path, want := range map[string]string{
		"": "OpenFile.path", filepath.Join(dir, "none", "limits"): "no such file", filepath.Join(dir, "directory"): "directory",
		filepath.Join(dir, "text"): "does not begin as a file of limits does", filepath.Join(dir, "empty"): "is damaged at byte 0",
	} {
		f, err := durable.OpenFile(path, durable.FileOptions{})
		if err == nil {
			_ = f.Close()
		}
		if err == nil || !strings.Contains(err.Error(), path) || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", path, err, want)
		}
	}
}

// BenchmarkFileOwner is grants of one busy key by so many callers, with K = 1 and adaptive, in a file and in memory.
func BenchmarkFileOwner(b *testing.B) {
	kept := map[string]func(b *testing.B) durable.Engine{
		"file": func(b *testing.B) durable.Engine {
			f := must(durable.OpenFile(filepath.Join(b.TempDir(), "limits"), durable.FileOptions{}))
			b.Cleanup(func() { _ = f.Close() })
			return f.Engine()
		},
		"memory": func(*testing.B) durable.Engine { return must(durable.NewMemory(durable.MemoryOptions{})).Engine() },
	}
	for _, where := range []string{"file", "memory"} {
		for _, reserve := range []int64{1, 0} {
			for _, callers := range []int{1, 32, 256} {
				b.Run(fmt.Sprintf("%s/K=%d/callers=%d", where, reserve, callers), func(b *testing.B) {
					o := must(durable.NewOwner(must(kept[where](b).Campaign(b.Context(), "here")), durable.OwnerOptions{Reserve: reserve}))
					b.Cleanup(func() { _ = o.Stop(context.Background()) })
					grantAll(b, o, callers)
				})
			}
		}
	}
}
