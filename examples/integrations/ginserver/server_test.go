package ginserver_test

import (
	"testing"

	"github.com/weirhq/weir/examples/integrations/ginserver"
	"github.com/weirhq/weir/examples/integrations/internal/servertest"
)

func TestLimitsWithGin(t *testing.T) { servertest.Run(t, ginserver.New) }
