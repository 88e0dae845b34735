package serverflags

import (
	"context"
	"time"

	"github.com/spf13/cobra"

	"github.com/weirhq/weir/cmd/weir/internal/admin"
)

// completeWithin is how long a shell waits for the names of policies.
const completeWithin = time.Second

// CompletePolicies lets shells complete --policy of cmd by the names that the server knows, and by nothing if it does not
// answer.
func (s *Server) CompletePolicies(cmd *cobra.Command) {
	_ = cmd.RegisterFlagCompletionFunc("policy", // there is such a flag
		func(cmd *cobra.Command, _ []string, _ string) ([]cobra.Completion, cobra.ShellCompDirective) {
			client, err := s.Client()
			if err != nil {
				return nil, cobra.ShellCompDirectiveNoFileComp
			}
			defer client.Close()
			ctx, cancel := context.WithTimeout(cmd.Context(), completeWithin)
			defer cancel()
			var policies []admin.Policy
			if err := client.Get(ctx, admin.PoliciesPath, nil, &policies); err != nil {
				return nil, cobra.ShellCompDirectiveNoFileComp
			}
			names := make([]cobra.Completion, len(policies))
			for i := range policies {
				names[i] = policies[i].Name
				if len(policies[i].Limits) > 0 {
					names[i] = cobra.CompletionWithDesc(policies[i].Name, policies[i].Limits[0].Holds)
				}
			}
			return names, cobra.ShellCompDirectiveNoFileComp
		})
}
