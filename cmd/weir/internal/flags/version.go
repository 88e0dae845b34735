package flags

import "runtime/debug"

// Version is that of the program, "(devel)" if it is not known.
func Version() string {
	if info, ok := debug.ReadBuildInfo(); ok && info.Main.Version != "" {
		return info.Main.Version
	}
	return "(devel)"
}
