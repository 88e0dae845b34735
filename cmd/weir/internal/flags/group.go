package flags

import "github.com/spf13/pflag"

// groupAnnotation is the annotation of a flag with the heading under which help lists it.
const groupAnnotation = "weir-group"

// Group adds flags by register, which help lists under a heading of their own.
func Group(fs *pflag.FlagSet, heading string, register func(fs *pflag.FlagSet)) {
	before := make(map[string]bool)
	fs.VisitAll(func(f *pflag.Flag) { before[f.Name] = true })
	register(fs)
	fs.VisitAll(func(f *pflag.Flag) {
		if !before[f.Name] {
			_ = fs.SetAnnotation(f.Name, groupAnnotation, []string{heading}) // the flag is there
		}
	})
}

// First has help list flags before all groups, as the ones that matter.
func First(fs *pflag.FlagSet, names ...string) {
	for _, name := range names {
		_ = fs.SetAnnotation(name, groupAnnotation, nil) // the flag is there
	}
}

// GroupOf is the heading of the group of a flag, "" if it has none.
func GroupOf(f *pflag.Flag) string {
	if heading := f.Annotations[groupAnnotation]; len(heading) > 0 {
		return heading[0]
	}
	return ""
}
