module github.com/weirhq/weir/store/redis

go 1.26.0

require (
	github.com/redis/rueidis v1.0.79
	github.com/weirhq/weir v0.0.0
)

replace github.com/weirhq/weir => ../..
