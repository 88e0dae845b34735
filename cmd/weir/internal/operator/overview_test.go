package operator_test

import (
	"strings"
	"testing"

	"github.com/weirhq/weir/cmd/weir/internal/operator"
	"github.com/weirhq/weir/cmd/weir/internal/terminal"
)

// TestConfigurationTellsHowRulesCharge: of a rule there is what it applies, and whether its requests are charged afterwards.
func TestConfigurationTellsHowRulesCharge(t *testing.T) {
	var text strings.Builder
	operator.WriteConfiguration(&text, terminal.Output{}, &operator.Configuration{Rules: []operator.Rule{
		{Name: "ask", Limits: []string{"tokens"}, Match: "path /ask", Source: "weir.yaml:4:5"},
		{Name: "spent", Limits: []string{"tokens"}, Match: "path /spent", Source: "weir.yaml:5:5", Afterwards: true, Final: true},
	}})
	for _, want := range []string{"ask    tokens  ", "spent  tokens (charged afterwards) (final)  weir.yaml:5:5  path /spent\n"} {
		if !strings.Contains(text.String(), want) {
			t.Errorf("%s\nlacks\n%s", text.String(), want)
		}
	}
}
