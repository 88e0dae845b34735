module github.com/weirhq/weir/cmd/weir

go 1.26

require (
	github.com/agnivade/levenshtein v1.2.2
	github.com/spf13/pflag v1.0.10
	github.com/weirhq/weir v0.0.0
)

replace github.com/weirhq/weir => ../..
