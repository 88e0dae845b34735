package httpserver_test

import (
	"testing"

	"github.com/weirhq/weir/examples/integrations/httpserver"
	"github.com/weirhq/weir/examples/integrations/internal/servertest"
)

func TestLimitsWithServeMux(t *testing.T) { servertest.Run(t, httpserver.New) }
