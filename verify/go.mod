module github.com/weirhq/weir/verify

go 1.26

require (
	github.com/dunglas/httpsfv v1.1.2
	github.com/weirhq/weir v0.0.0
)

require (
	github.com/anishathalye/porcupine v1.3.1 // indirect
	go.uber.org/goleak v1.3.0 // indirect
)

replace github.com/weirhq/weir => ..
