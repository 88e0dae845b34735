// Command sbom writes what a program of Go is built of: its modules with their versions and checksums, as a document of SPDX
// 2.3 in JSON. It reads what the linker has written into the program, and nothing else. The same program makes the same
// document.
package main

import (
	"cmp"
	"crypto/sha256"
	"debug/buildinfo"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"runtime/debug"
	"slices"
	"strings"
)

// Of SPDX, with its own names.
//
//nolint:tagliatelle // the names are those of SPDX
type (
	document struct {
		Version       string         `json:"spdxVersion"`
		License       string         `json:"dataLicense"`
		ID            string         `json:"SPDXID"`
		Name          string         `json:"name"`
		Namespace     string         `json:"documentNamespace"`
		Creation      creation       `json:"creationInfo"`
		Packages      []module       `json:"packages"`
		Relationships []relationship `json:"relationships"`
	}
	creation struct {
		Created  string   `json:"created"`
		Creators []string `json:"creators"`
	}
	module struct {
		ID               string      `json:"SPDXID"`
		Name             string      `json:"name"`
		Version          string      `json:"versionInfo,omitempty"`
		DownloadLocation string      `json:"downloadLocation"`
		FilesAnalyzed    bool        `json:"filesAnalyzed"`
		Checksums        []checksum  `json:"checksums,omitempty"`
		References       []reference `json:"externalRefs,omitempty"`
		Concluded        string      `json:"licenseConcluded"`
		Declared         string      `json:"licenseDeclared"`
		Copyright        string      `json:"copyrightText"`
	}
	checksum struct {
		Algorithm string `json:"algorithm"`
		Value     string `json:"checksumValue"`
	}
	reference struct {
		Category string `json:"referenceCategory"`
		Type     string `json:"referenceType"`
		Locator  string `json:"referenceLocator"`
	}
	relationship struct {
		From string `json:"spdxElementId"`
		Type string `json:"relationshipType"`
		To   string `json:"relatedSpdxElement"`
	}
)

const (
	unknown = "NOASSERTION"
	program = "SPDXRef-Program"
)

func main() {
	output := flag.String("o", "", "file to write (default: standard output)")
	flag.Parse()
	if flag.NArg() != 1 {
		fmt.Fprintln(os.Stderr, "sbom: one program must be given: sbom [-o FILE] PROGRAM")
		os.Exit(2)
	}
	if err := write(*output, flag.Arg(0)); err != nil {
		fmt.Fprintln(os.Stderr, "sbom:", err)
		os.Exit(1)
	}
}

func write(output, path string) error {
	info, err := buildinfo.ReadFile(path)
	if err != nil {
		return err
	}
	content, err := os.ReadFile(path) //nolint:gosec // it is the choice of who calls this
	if err != nil {
		return err
	}
	d, err := describe(info, filepath.Base(path), sha256.Sum256(content))
	if err != nil {
		return err
	}
	text, err := json.MarshalIndent(d, "", "  ")
	if err != nil {
		return err
	}
	text = append(text, '\n')
	if output == "" {
		_, err = os.Stdout.Write(text)
		return err
	}
	return os.WriteFile(output, text, 0o644) //nolint:gosec // it is for everybody to read
}

// describe makes the document of a program.
func describe(info *debug.BuildInfo, name string, sum [sha256.Size]byte) (*document, error) {
	if info.Main.Path == "" {
		return nil, errors.New("the program does not say what it is built of")
	}
	created := "1970-01-01T00:00:00Z"
	for _, s := range info.Settings {
		if s.Key == "vcs.time" {
			created = s.Value
		}
	}
	digest := hex.EncodeToString(sum[:])
	main := of(&info.Main)
	main.ID, main.Name = program, info.Path
	main.Checksums = []checksum{{"SHA256", digest}}
	d := &document{
		Version: "SPDX-2.3", License: "CC0-1.0", ID: "SPDXRef-DOCUMENT", Name: name,
		Namespace:     "https://" + info.Path + "/spdx/" + digest,
		Creation:      creation{Created: created, Creators: []string{"Tool: sbom"}},
		Packages:      []module{main},
		Relationships: []relationship{{"SPDXRef-DOCUMENT", "DESCRIBES", program}},
	}
	deps := append([]*debug.Module{{Path: "stdlib", Version: strings.TrimPrefix(info.GoVersion, "go")}}, info.Deps...)
	slices.SortFunc(deps, func(a, b *debug.Module) int { return cmp.Compare(a.Path, b.Path) })
	for i, m := range deps {
		if m.Replace != nil {
			m = m.Replace
			if strings.HasPrefix(m.Path, ".") { // a module of this repository
				m = &debug.Module{Path: deps[i].Path}
			}
		}
		p := of(m)
		p.ID = fmt.Sprintf("SPDXRef-Module-%d", i+1)
		d.Packages = append(d.Packages, p)
		d.Relationships = append(d.Relationships, relationship{program, "DEPENDS_ON", p.ID})
	}
	return d, nil
}

// of describes a module.
func of(m *debug.Module) module {
	p := module{
		Name: m.Path, Version: m.Version, DownloadLocation: unknown, Concluded: unknown, Declared: unknown, Copyright: unknown,
	}
	locator := "pkg:golang/" + m.Path
	if m.Version != "" && m.Version != "(devel)" {
		locator += "@" + strings.ReplaceAll(m.Version, "+", "%2B")
		if m.Path != "stdlib" {
			p.DownloadLocation = "https://proxy.golang.org/" + escaped(m.Path) + "/@v/" + escaped(m.Version) + ".zip"
		}
	}
	p.References = []reference{{"PACKAGE-MANAGER", "purl", locator}}
	// That of go.sum: the sum of the sums of the files.
	if text, ok := strings.CutPrefix(m.Sum, "h1:"); ok {
		if sum, err := base64.StdEncoding.DecodeString(text); err == nil {
			p.Checksums = []checksum{{"SHA256", hex.EncodeToString(sum)}}
		}
	}
	return p
}

// escaped is how proxies of modules write capital letters.
func escaped(text string) string {
	var b strings.Builder
	for _, c := range text {
		if c >= 'A' && c <= 'Z' {
			b.WriteByte('!')
			c += 'a' - 'A'
		}
		b.WriteRune(c)
	}
	return b.String()
}
