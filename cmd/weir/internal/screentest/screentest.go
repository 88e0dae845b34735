// Package screentest runs programs in a terminal, and looks at its screen. It never sleeps: it waits until the screen is as it
// should be.
package screentest

import (
	"fmt"
	"os"
	"os/exec"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/creack/pty"
	"github.com/hinshun/vt10x"
	"golang.org/x/term"
)

// Screen is a terminal that the command runs in.
type Screen struct {
	t    testing.TB
	cmd  *exec.Cmd
	pty  *os.File
	tty  *os.File
	mode *term.State // of the terminal before
	ends chan error

	mu      sync.Mutex
	vt      vt10x.Terminal
	written strings.Builder
	held    string        // of what was written: a part of a frame, which is not shown
	changed chan struct{} // closed when something was written
}

// What is written arrives in pieces of any size. A terminal that is asked whether it shows what is between two marks at once, and
// not in part, says that it does so, as a test that has seen a part of a frame would press the next key too early.
const (
	frameAsks, frameKnows = "\x1b[?2026$p", "\x1b[?2026;2$y"
	frameBegins           = "\x1b[?2026h"
	frameEnds             = "\x1b[?2026l"
)

// Patience is how long a screen may take to show what it should. It is never waited for if all is well.
const Patience = 2 * time.Minute

// Start runs a command in a terminal of so many columns and rows, and kills it at the end of the test.
func Start(tb testing.TB, cmd *exec.Cmd, columns, rows int) *Screen {
	tb.Helper()
	s := &Screen{
		t: tb, cmd: cmd, ends: make(chan error, 1), changed: make(chan struct{}),
		vt: vt10x.New(vt10x.WithSize(columns, rows)),
	}
	var err error
	if s.pty, s.tty, err = pty.Open(); err != nil {
		tb.Fatal(err)
	}
	if err = pty.Setsize(s.tty, size(columns, rows)); err != nil {
		tb.Fatal(err)
	}
	if s.mode, err = term.GetState(int(s.tty.Fd())); err != nil {
		tb.Fatal(err)
	}
	s.cmd.Stdin, s.cmd.Stdout, s.cmd.Stderr = s.tty, s.tty, s.tty
	s.cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Setctty: true}
	if err := s.cmd.Start(); err != nil {
		tb.Fatal(err)
	}
	read := make(chan struct{})
	go func() {
		defer close(read)
		piece := make([]byte, 1<<16)
		for {
			n, err := s.pty.Read(piece)
			if s.take(string(piece[:n]), err != nil) {
				_, _ = s.pty.WriteString(frameKnows) // the program may have ended since it asked
			}
			if err != nil {
				return
			}
		}
	}()
	go func() { s.ends <- s.cmd.Wait() }()
	tb.Cleanup(func() {
		_ = s.cmd.Process.Kill()
		_ = s.tty.Close()
		_ = s.pty.Close()
		<-read
	})
	return s
}

// take takes what was written, of which the last piece is shown as it is. It reports whether the terminal was asked for frames.
func (s *Screen) take(piece string, last bool) (asked bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	before := s.written.Len()
	s.written.WriteString(piece)
	asked = strings.Contains(s.written.String()[max(0, before-len(frameAsks)+1):], frameAsks)
	s.held += piece
	shown := len(s.held)
	if at := strings.LastIndex(s.held, frameBegins); at >= 0 && !strings.Contains(s.held[at:], frameEnds) {
		shown = at
	}
	for n := 1; n < len(frameBegins) && shown == len(s.held); n++ {
		if strings.HasSuffix(s.held, frameBegins[:n]) {
			shown -= n
		}
	}
	if last {
		shown = len(s.held)
	}
	_, _ = s.vt.Write([]byte(s.held[:shown]))
	s.held = s.held[shown:]
	close(s.changed)
	s.changed = make(chan struct{})
	return asked
}

// Look returns what is on the screen, and what is closed when it changes.
func (s *Screen) Look() (text string, changed chan struct{}) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.vt.String(), s.changed
}

// Until waits until the screen is as it should be, and returns it.
func (s *Screen) Until(what string, is func(text string) bool) string {
	s.t.Helper()
	late := time.After(Patience)
	for {
		text, changed := s.Look()
		if is(text) {
			return text
		}
		select {
		case <-changed:
		case err := <-s.ends:
			s.ends <- err
			s.t.Fatalf("it has ended (%v) before: %s\n%s", err, what, text)
		case <-late:
			s.t.Fatalf("not on the screen: %s\n%s", what, text)
		}
	}
}

// Shows waits until the screen has all of these texts.
func (s *Screen) Shows(all ...string) string {
	s.t.Helper()
	return s.Until(fmt.Sprintf("%q", all), func(text string) bool {
		for _, want := range all {
			if !strings.Contains(text, want) {
				return false
			}
		}
		return true
	})
}

// Lacks waits until the screen does not have this text.
func (s *Screen) Lacks(text string) {
	s.t.Helper()
	s.Until("no "+text, func(all string) bool { return !strings.Contains(all, text) })
}

// Press sends what a terminal sends when keys are pressed.
func (s *Screen) Press(keys ...string) {
	s.t.Helper()
	for _, k := range keys {
		if code, ok := codes[k]; ok {
			k = code
		}
		if _, err := s.pty.WriteString(k); err != nil {
			s.t.Fatal(err)
		}
	}
}

// codes are what a terminal sends for keys that are no letters.
var codes = map[string]string{
	"up": "\x1b[A", "down": "\x1b[B", "pgup": "\x1b[5~", "pgdown": "\x1b[6~", "home": "\x1b[H", "end": "\x1b[F",
	"tab": "\t", "shift+tab": "\x1b[Z", "enter": "\r", "esc": "\x1b", "f1": "\x1bOP", "space": " ",
	"ctrl+c": "\x03", "ctrl+b": "\x02", "ctrl+f": "\x06", "backspace": "\x7f", "ctrl+u": "\x15",
}

// Ended waits until the command has, and reports whether it has left the terminal as it was.
func (s *Screen) Ended() error {
	s.t.Helper()
	var err error
	select {
	case err = <-s.ends:
	case <-time.After(Patience):
		text, _ := s.Look()
		s.t.Fatalf("it goes on:\n%s", text)
	}
	state, stateErr := term.GetState(int(s.tty.Fd()))
	if stateErr != nil || *state != *s.mode {
		s.t.Errorf("the terminal is not as it was: %v", stateErr)
	}
	// What was written last may not be read yet.
	late := time.After(Patience)
	for {
		s.mu.Lock()
		left, changed := s.open(), s.changed
		s.mu.Unlock()
		if left == "" {
			return err
		}
		select {
		case <-changed:
		case <-late:
			s.t.Errorf("%s", left)
			return err
		}
	}
}

// Resize makes the terminal larger or smaller, and tells the command.
func (s *Screen) Resize(columns, rows int) {
	s.t.Helper()
	s.mu.Lock()
	s.vt.Resize(columns, rows)
	s.mu.Unlock()
	if err := pty.Setsize(s.pty, size(columns, rows)); err != nil {
		s.t.Fatal(err)
	}
}

func size(columns, rows int) *pty.Winsize {
	return &pty.Winsize{Rows: uint16(rows), Cols: uint16(columns)}
}

// Written is all that the command has written.
func (s *Screen) Written() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.written.String()
}

// Signal sends the command a signal.
func (s *Screen) Signal(sig os.Signal) {
	s.t.Helper()
	if err := s.cmd.Process.Signal(sig); err != nil {
		s.t.Fatal(err)
	}
}

// open is what was begun and is not ended of what a program changes of a terminal: the other screen, a hidden cursor, brackets
// around what is pasted, and a frame.
func (s *Screen) open() string {
	written := s.written.String()
	for begun, ended := range map[string]string{
		"\x1b[?1049h": "\x1b[?1049l", "\x1b[?25l": "\x1b[?25h", "\x1b[?2004h": "\x1b[?2004l",
		frameBegins: frameEnds,
	} {
		if strings.LastIndex(written, begun) > strings.LastIndex(written, ended) {
			return fmt.Sprintf("%q is not taken back by %q", begun, ended)
		}
	}
	return ""
}
