package adminguard

import (
	"crypto/sha256"
	"crypto/subtle"
	"fmt"
	"strings"

	"github.com/weirhq/weir/internal/regularfile"
)

// The length of a token, of the name of one, and of their file.
const (
	shortestToken = 16
	longestToken  = 4096
	longestName   = 64
	mostTokens    = 1024
	longestFile   = mostTokens * (longestToken + longestName + 2)
)

// unnamed is the name of a token that has none in its file.
const unnamed = "token"

// Token is a secret that lets its caller in.
type Token struct {
	// Name is that of its caller.
	Name string
	// Sum is the SHA-256 of the token: all have the same length, so that not even that of a token can be measured.
	Sum [sha256.Size]byte
}

// TokenOf returns a token.
func TokenOf(name, token string) Token { return Token{name, sha256.Sum256([]byte(token))} }

// ReadTokens reads the tokens in a file: one token, or lines of a name and a token with a space between them. Empty lines and
// those that begin with # are left out.
func ReadTokens(path string) ([]Token, error) {
	text, err := readFile(path)
	if err != nil {
		return nil, err
	}
	var (
		all   []Token
		names = map[string]bool{}
		lines [][]string
	)
	for line := range strings.Lines(string(text)) {
		if words := strings.Fields(line); len(words) > 0 && !strings.HasPrefix(words[0], "#") {
			lines = append(lines, words)
		}
	}
	if len(lines) == 1 && len(lines[0]) == 1 {
		return []Token{TokenOf(unnamed, lines[0][0])}, checkToken(path, lines[0][0])
	}
	for i, words := range lines {
		switch {
		case len(words) != 2:
			return nil, fmt.Errorf("weir: token: %s: entry %d has %d words: must be NAME TOKEN, or the file one token",
				path, i+1, len(words))
		case len(words[0]) > longestName || !isPrintable(words[0]):
			return nil, fmt.Errorf("weir: token: %s: entry %d: the name must be 1 to %d characters of printable ASCII",
				path, i+1, longestName)
		case names[words[0]]:
			return nil, fmt.Errorf("weir: token: %s: entry %d: the name %q is there twice", path, i+1, words[0])
		case i == mostTokens:
			return nil, fmt.Errorf("weir: token: %s has more than %d tokens", path, mostTokens)
		}
		if err := checkToken(path, words[1]); err != nil {
			return nil, err
		}
		names[words[0]] = true
		all = append(all, TokenOf(words[0], words[1]))
	}
	if len(all) == 0 {
		return nil, checkToken(path, "")
	}
	return all, nil
}

func readFile(path string) ([]byte, error) {
	text, err := regularfile.Read(path, longestFile)
	if err != nil {
		return nil, fmt.Errorf("weir: token: %w", err)
	}
	return text, nil
}

func checkToken(path, token string) error {
	if len(token) < shortestToken || len(token) > longestToken {
		return fmt.Errorf("weir: token: %s has %d bytes: must have from %d to %d", path, len(token), shortestToken, longestToken)
	}
	for i := range len(token) {
		if c := token[i]; c <= ' ' || c > '~' {
			return fmt.Errorf("weir: token: %s has the byte %#x: must be printable ASCII without spaces", path, c)
		}
	}
	return nil
}

func isPrintable(s string) bool {
	for i := range len(s) {
		if s[i] <= ' ' || s[i] > '~' {
			return false
		}
	}
	return s != ""
}

// nameOf is whose token was shown. How long it takes does not depend on the tokens, but on how many there are.
func nameOf(tokens []Token, shown string) (name string, ok bool) {
	got, at := sha256.Sum256([]byte(shown)), -1
	for i := range tokens {
		at = subtle.ConstantTimeSelect(subtle.ConstantTimeCompare(tokens[i].Sum[:], got[:]), i, at)
	}
	if at < 0 {
		return "", false
	}
	return tokens[at].Name, true
}
