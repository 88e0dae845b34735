package echoserver_test

import (
	"testing"

	"github.com/weirhq/weir/examples/integrations/echoserver"
	"github.com/weirhq/weir/examples/integrations/internal/servertest"
)

func TestLimitsWithEcho(t *testing.T) { servertest.Run(t, echoserver.New) }
