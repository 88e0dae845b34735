package chiserver_test

import (
	"testing"

	"github.com/weirhq/weir/examples/integrations/chiserver"
	"github.com/weirhq/weir/examples/integrations/internal/servertest"
)

func TestLimitsWithChi(t *testing.T) { servertest.Run(t, chiserver.New) }
