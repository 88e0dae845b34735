// Package gubernator moves from gubernator to weir.
package gubernator

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
)

// After asks weir serve, where a request to GetRateLimits went before.
type After struct{ Server string } // http://127.0.0.1:7070

// UnderLimit takes hits from a limit of the file for a unique key.
func (a *After) UnderLimit(ctx context.Context, name, uniqueKey string, hits int64) (bool, error) {
	body, err := json.Marshal(map[string]any{"policy": name, "key": uniqueKey, "cost": hits})
	if err != nil {
		return false, err
	}
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, a.Server+"/v1/check", bytes.NewReader(body))
	if err != nil {
		return false, err
	}
	answer, err := http.DefaultClient.Do(r)
	if err != nil {
		return false, err
	}
	defer func() { _ = answer.Body.Close() }()
	if answer.StatusCode != http.StatusOK && answer.StatusCode != http.StatusTooManyRequests {
		return false, fmt.Errorf("%s of %s: %s", uniqueKey, name, answer.Status)
	}
	var decision struct {
		Allowed bool `json:"allowed"`
	}
	err = json.NewDecoder(answer.Body).Decode(&decision)
	return decision.Allowed && err == nil, err
}
