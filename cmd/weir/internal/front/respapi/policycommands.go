package respapi

// policyCommands answer for the policies of the configuration.
type policyCommands struct{}

func newPolicyCommands(Options) (*policyCommands, error) { return &policyCommands{}, nil }

func (*policyCommands) commands() []command { return nil }
