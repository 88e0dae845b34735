package live

import (
	"context"

	"github.com/weirhq/weir/policy"
)

// Check is a request that stands for a check, with its memory: for callers that must not allocate for each. The zero value is
// ready. It is not safe for concurrent use.
type Check struct {
	// Request is what [Check.Ask] has made.
	Request policy.Request

	asked check
	paths map[string]string // of policies that were asked before
}

// mostPaths is how many policies a Check remembers.
const mostPaths = 64

// Ask makes Request what [CheckRequest] makes of a request.
func (c *Check) Ask(ctx context.Context, name, key []byte, cost int64) {
	path, known := c.paths[string(name)]
	if !known {
		CheckRequest(ctx, &c.Request, name, key, cost)
		if path = c.Request.Path; len(c.paths) >= mostPaths || c.paths == nil {
			c.paths = make(map[string]string)
		}
		c.paths[string(name)] = path
	}
	c.asked = check{key: key, cost: cost}
	c.Request = policy.Request{Protocol: checkProtocol, Path: path, Header: &c.asked, Context: ctx}
}

// Forget drops what the last check referred to.
func (c *Check) Forget() {
	c.asked, c.Request = check{}, policy.Request{}
}
