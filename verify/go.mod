module github.com/weirhq/weir/verify

go 1.26

require github.com/weirhq/weir v0.0.0

replace github.com/weirhq/weir => ..
