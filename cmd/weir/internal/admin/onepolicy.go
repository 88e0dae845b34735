package admin

import "context"

// Policy is what the server says of a policy, nil if there is none with the name.
func (c *Client) Policy(ctx context.Context, name string) (*Policy, error) {
	var all []Policy
	if err := c.Get(ctx, PoliciesPath, nil, &all); err != nil {
		return nil, err
	}
	for i := range all {
		if all[i].Name == name {
			return &all[i], nil
		}
	}
	return nil, nil //nolint:nilnil // none is an answer
}
