package config_test

import (
	"testing"

	"github.com/weirhq/weir/config"
)

func TestWholeFormat(t *testing.T) {
	f, err := config.Load("testdata/whole.yaml", config.Options{})
	if err != nil {
		t.Fatal(err)
	}
	for _, w := range f.Warnings {
		t.Error(w)
	}
	t.Logf("%+v", f.Set)
}
