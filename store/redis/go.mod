module github.com/weirhq/weir/store/redis

go 1.26.0

require (
	github.com/redis/rueidis v1.0.79
	github.com/weirhq/weir v0.0.0
)

require (
	golang.org/x/net v0.61.0 // indirect
	golang.org/x/sys v0.49.0 // indirect
)

replace github.com/weirhq/weir => ../..
