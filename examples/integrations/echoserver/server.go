// Package echoserver limits the routes of a server with the framework echo, each client and route by itself.
package echoserver

import (
	"log/slog"
	"net/http"

	"github.com/labstack/echo/v5"
	"github.com/labstack/echo/v5/middleware"

	"github.com/weirhq/weir"
	"github.com/weirhq/weir/httplimit"
)

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
	// WrapMiddleware sets the Pattern of the request to the path of the route, such as "/items/:id".
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

	e := echo.New()
	e.Logger = slog.New(slog.DiscardHandler)
	e.Use(middleware.Recover(), numbered)
	e.GET("/healthz", func(c *echo.Context) error { return c.String(http.StatusOK, "ok\n") })
	limits := []echo.MiddlewareFunc{echo.WrapMiddleware(limit), echo.WrapMiddleware(atATime), served}
	e.GET("/items/:id", func(c *echo.Context) error { return c.String(http.StatusOK, "item "+c.Param("id")+"\n") }, limits...)
	e.GET("/search", func(c *echo.Context) error {
		return c.String(http.StatusOK, "results for "+c.QueryParam("q")+"\n")
	}, limits...)
	e.GET("/panic", func(*echo.Context) error { panic("a mistake") }, limits...)
	admin := e.Group("/admin", authorized)
	admin.GET("/report", func(c *echo.Context) error { return c.String(http.StatusOK, "report\n") }, limits...)
	return e, nil
}

// numbered gives each request a number, those that are refused as well.
func numbered(next echo.HandlerFunc) echo.HandlerFunc {
	return func(c *echo.Context) error {
		c.Response().Header().Set("X-Request-ID", c.Request().RemoteAddr)
		return next(c)
	}
}

// authorized lets requests with the token pass. What it refuses is not charged.
func authorized(next echo.HandlerFunc) echo.HandlerFunc {
	return func(c *echo.Context) error {
		if c.Request().Header.Get("X-Token") != "secret" {
			return echo.NewHTTPError(http.StatusUnauthorized, "the token is missing")
		}
		return next(c)
	}
}

// served marks the responses to requests that were allowed.
func served(next echo.HandlerFunc) echo.HandlerFunc {
	return func(c *echo.Context) error {
		c.Response().Header().Set("X-Served", "yes")
		return next(c)
	}
}
