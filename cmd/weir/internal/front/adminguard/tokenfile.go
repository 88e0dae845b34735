package adminguard

import (
	"log/slog"

	"github.com/weirhq/weir/cmd/weir/internal/front"
)

// OpenTokens reads the tokens of a file as [ReadTokens] does, and again when it changes: so that a token can be revoked or added
// while the server runs. Logger logs when they have changed, and when they cannot be used: then those before stay.
func OpenTokens(path string, logger *slog.Logger) (*front.Reread[[]Token], error) {
	read := func() ([]Token, error) { return ReadTokens(path) }
	return front.NewReread(read, func(now []Token, err error) {
		if err != nil {
			logger.Error("the admin tokens cannot be used, those before stay", "error", err.Error())
			return
		}
		logger.Info("admin tokens loaded", "file", path, "tokens", len(now))
	}, path)
}
