module github.com/weirhq/weir/cmd/weir

go 1.26.0

require (
	github.com/agnivade/levenshtein v1.2.2
	github.com/spf13/cobra v1.10.2
	github.com/spf13/pflag v1.0.10
	github.com/weirhq/weir v0.0.0
	golang.org/x/term v0.47.0
)

require (
	github.com/inconshreveable/mousetrap v1.1.0 // indirect
	golang.org/x/sys v0.49.0 // indirect
)

replace github.com/weirhq/weir => ../..
