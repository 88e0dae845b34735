package front_test

import (
	"testing"

	"github.com/weirhq/weir/cmd/weir/internal/front"
)

func TestGRPCMessage(t *testing.T) {
	for text, want := range map[string]string{
		"":                     "",
		"The limit is 5 ~ now": "The limit is 5 ~ now",
		"100 % ünfit\n":        "100 %25 %C3%BCnfit%0A",
		"a\xffb\x7f":           "a%EF%BF%BDb%7F",
	} {
		if got := front.GRPCMessage(text); got != want {
			t.Errorf("%q is %q, want %q", text, got, want)
		}
	}
}
