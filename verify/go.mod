module github.com/weirhq/weir/verify

go 1.26

require (
	github.com/anishathalye/porcupine v1.3.1
	github.com/dunglas/httpsfv v1.1.2
	github.com/weirhq/weir v0.0.0
	go.uber.org/goleak v1.3.0
	pgregory.net/rapid v1.3.0
)

replace github.com/weirhq/weir => ..
