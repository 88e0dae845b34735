module github.com/weirhq/weir/store/redis

go 1.26.0

require github.com/weirhq/weir v0.0.0

replace github.com/weirhq/weir => ../..
