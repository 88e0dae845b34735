package reference

import (
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"
)

// ManPages returns the text of each manual page by the name of its file: one for each command below root with all that is below
// it, and one for root itself. The same commands give the same pages, wherever and whenever that is.
func ManPages(root *cobra.Command) map[string]string {
	pages := make(map[string]string)
	var others []string
	for _, cmd := range root.Commands() {
		if !cmd.IsAvailableCommand() {
			continue
		}
		name := manName(cmd)
		others = append(others, name)
		pages[name+".1"] = manPage(cmd, []string{root.Name()})
	}
	pages[root.Name()+".1"] = manPage(root, others)
	return pages
}

// manName is the name of the page of a command.
func manName(cmd *cobra.Command) string { return strings.ReplaceAll(cmd.CommandPath(), " ", "-") }

func manPage(cmd *cobra.Command, others []string) string {
	var b strings.Builder
	name := manName(cmd)
	fmt.Fprintf(&b, ".TH %s 1 \"\" weir \"weir manual\"\n", roff(strings.ToUpper(name)))
	fmt.Fprintf(&b, ".SH NAME\n%s \\- %s\n", roff(name), roff(cmd.Short))
	fmt.Fprintf(&b, ".SH SYNOPSIS\n.B %s\n.SH DESCRIPTION\n", roff(cmd.UseLine()))
	manText(&b, cmd.Long)
	manFlags(&b, ".SH OPTIONS", flags(cmd))
	if cmd.HasParent() {
		for _, sub := range below(cmd) {
			fmt.Fprintf(&b, ".SH %s\n.B %s\n.PP\n", roff(strings.ToUpper(sub.CommandPath())), roff(sub.UseLine()))
			manText(&b, sub.Long)
			manFlags(&b, ".SS Options", flags(sub))
			manExamples(&b, ".SS Examples", sub.Example)
		}
	}
	manExamples(&b, ".SH EXAMPLES", cmd.Example)
	b.WriteString(".SH SEE ALSO\n")
	for i, other := range slices.Sorted(slices.Values(others)) {
		if i > 0 {
			b.WriteString(",\n")
		}
		fmt.Fprintf(&b, "\\fB%s\\fP(1)", roff(other))
	}
	b.WriteString("\n")
	return b.String()
}

// manText writes the text of a help: what is indented there keeps its lines.
func manText(b *strings.Builder, text string) {
	code, apart := false, false
	for line := range strings.SplitSeq(strings.TrimSpace(text), "\n") {
		line = strings.TrimRight(line, " \t\r")
		indented := strings.HasPrefix(line, "  ") || strings.HasPrefix(line, "\t")
		if line == "" {
			apart = true
			continue
		}
		if code && !indented {
			b.WriteString(".fi\n.RE\n")
		}
		switch {
		case apart && code && indented:
			b.WriteString(".sp\n")
		case apart:
			b.WriteString(".PP\n")
		}
		if !code && indented {
			b.WriteString(".RS 2\n.nf\n")
		}
		apart, code = false, indented
		b.WriteString(roff(strings.TrimPrefix(strings.TrimPrefix(line, "\t"), "  ")) + "\n")
	}
	if code {
		b.WriteString(".fi\n.RE\n")
	}
}

func manFlags(b *strings.Builder, heading string, all []flag) {
	if len(all) == 0 {
		return
	}
	b.WriteString(heading + "\n")
	for _, f := range all {
		usage := f.usage
		if fallback := strings.Trim(f.fallback, "`"); fallback != "" {
			usage += " (default: " + fallback + ")"
		}
		fmt.Fprintf(b, ".TP\n.B %s\n%s\n", roff(f.name), roff(usage))
	}
}

func manExamples(b *strings.Builder, heading, text string) {
	if text == "" {
		return
	}
	b.WriteString(heading + "\n.nf\n")
	for line := range strings.SplitSeq(strings.TrimRight(text, "\n"), "\n") {
		b.WriteString(roff(strings.TrimPrefix(line, "  ")) + "\n")
	}
	b.WriteString(".fi\n")
}

// literally writes characters so that they are shown as they are.
var literally = strings.NewReplacer(`\`, `\e`, "-", `\-`, "^", `\(ha`, "~", `\(ti`, "`", `\(ga`, "'", `\(aq`, `"`, `\(dq`)

// roff writes a line so that none of its characters is read as an instruction.
func roff(text string) string {
	text = literally.Replace(text)
	if strings.HasPrefix(text, ".") {
		return `\&` + text
	}
	return text
}
