package adminguard

import (
	"io/fs"
	"log/slog"
	"os"
	"sync"
	"time"
)

// TokenFile has the tokens of a file, which is read again when it changes: so that somebody can be locked out, or let in, without
// an end of the server, which would lose its state. It is safe for concurrent use.
type TokenFile struct {
	path string
	log  *slog.Logger

	mu     sync.Mutex
	looked time.Time
	seen   fs.FileInfo // nil if the file was not there
	tokens []Token
}

// every is how often the file is looked at, at most.
const every = time.Second

// OpenTokens reads the tokens of a file as [ReadTokens] does. Logger is told when they have changed, and when they cannot be
// used.
func OpenTokens(path string, logger *slog.Logger) (*TokenFile, error) {
	f := &TokenFile{path: path, log: logger, looked: time.Now(), seen: stat(path)}
	var err error
	f.tokens, err = ReadTokens(path)
	return f, err
}

// Tokens are those of the file, which is looked at once a second at most. If it cannot be used those before stay.
func (f *TokenFile) Tokens() []Token {
	f.mu.Lock()
	defer f.mu.Unlock()
	now := time.Now()
	if now.Sub(f.looked) < every {
		return f.tokens
	}
	f.looked = now
	seen := stat(f.path)
	if isSame(seen, f.seen) {
		return f.tokens
	}
	f.seen = seen
	tokens, err := ReadTokens(f.path)
	if err != nil {
		f.log.Error("the admin tokens cannot be used, those before stay", "error", err.Error())
		return f.tokens
	}
	f.tokens = tokens
	f.log.Info("admin tokens loaded", "file", f.path, "tokens", len(tokens))
	return tokens
}

// stat is how a file looks, nil if it is not there.
func stat(path string) fs.FileInfo {
	info, err := os.Stat(path)
	if err != nil {
		return nil
	}
	return info
}

func isSame(a, b fs.FileInfo) bool {
	if a == nil || b == nil {
		return a == nil && b == nil
	}
	return os.SameFile(a, b) && a.Size() == b.Size() && a.ModTime().Equal(b.ModTime())
}
