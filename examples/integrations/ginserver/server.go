// Package ginserver limits the routes of a server with the framework gin, each client and route by itself.
package ginserver

import (
	"io"
	"net/http"

	"github.com/gin-gonic/gin"

	"github.com/weirhq/weir"
	"github.com/weirhq/weir/httplimit"
)

// Middleware makes a middleware of gin of one of net/http. The requests that it sees have the path of the route as
// their Pattern, such as "/items/:id", so that httplimit.ByPattern(nil) keys by the route.
func Middleware(around func(http.Handler) http.Handler) gin.HandlerFunc {
	return func(c *gin.Context) {
		passed := false
		c.Request.Pattern = c.FullPath()
		around(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
			passed = true
			c.Request = r
			c.Next()
		})).ServeHTTP(c.Writer, c.Request)
		if !passed {
			c.Abort() // it was refused, and has been answered
		}
	}
}

// New returns a server that serves 2 requests at a time. Each client may send 3 requests at once to each route, and one every 10
// seconds for ever.
func New() (http.Handler, error) {
	perRoute, err := weir.NewKeyed[string](weir.TokenBucket(weir.PerMinute(6), 3), weir.KeyedOptions{Name: "per-route"})
	if err != nil {
		return nil, err
	}
	slots, err := weir.NewConcurrency(2, weir.Options{Name: "slots"})
	if err != nil {
		return nil, err
	}
	byClient, err := httplimit.ByClient(httplimit.ClientOptions{})
	if err != nil {
		return nil, err
	}
	limit, err := httplimit.New(httplimit.Options{
		Keyed: perRoute, Key: httplimit.ByAll(byClient, httplimit.ByPattern(nil)),
	})
	if err != nil {
		return nil, err
	}
	atATime, err := httplimit.New(httplimit.Options{Limiter: slots})
	if err != nil {
		return nil, err
	}

	gin.SetMode(gin.ReleaseMode)
	r := gin.New()
	r.HandleMethodNotAllowed = true
	r.Use(gin.RecoveryWithWriter(io.Discard), numbered)
	r.GET("/healthz", func(c *gin.Context) { c.String(http.StatusOK, "ok\n") })
	limited := r.Group("", Middleware(limit), Middleware(atATime), served)
	limited.GET("/items/:id", func(c *gin.Context) { c.String(http.StatusOK, "item %s\n", c.Param("id")) })
	limited.GET("/search", func(c *gin.Context) { c.String(http.StatusOK, "results for %s\n", c.Query("q")) })
	limited.GET("/panic", func(*gin.Context) { panic("a mistake") })
	admin := r.Group("/admin", authorized, Middleware(limit), Middleware(atATime), served)
	admin.GET("/report", func(c *gin.Context) { c.String(http.StatusOK, "report\n") })
	return r, nil
}

// numbered gives each request a number, those that are refused as well.
func numbered(c *gin.Context) { c.Header("X-Request-ID", c.Request.RemoteAddr) }

// authorized lets requests with the token pass. What it refuses is not charged.
func authorized(c *gin.Context) {
	if c.GetHeader("X-Token") != "secret" {
		c.AbortWithStatus(http.StatusUnauthorized)
	}
}

// served marks the responses to requests that were allowed.
func served(c *gin.Context) { c.Header("X-Served", "yes") }
