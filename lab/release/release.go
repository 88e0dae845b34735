package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"strings"
)

// The path of the module in the root of the repository, which is also where the others are found.
const rootPath = "github.com/weirhq/weir"

// development lists the modules that are never tagged: nothing outside of the repository needs them.
var development = []string{
	"docs/site", "durable/etcd/go-cmp", "examples/integrations", "examples/migrating", "examples/postgres", "lab",
}

// versionForm is what a tag may be. A second major version would need other module paths.
var versionForm = regexp.MustCompile(`^v[01](\.(0|[1-9]\d*)){2}(-[a-z]+(\.[0-9a-z]+)*)?$`)

var (
	errVersion = errors.New("must be v0.MINOR.PATCH or v1.MINOR.PATCH, or that with -rc.1 or the like")
	errTagged  = errors.New("is tagged already")
	errChanged = errors.New("there are changes that are not committed")
	errCycle   = errors.New("these modules require each other in a circle, or one that is not released")
	errChart   = errors.New("must have one line with version: 0.0.0 and one with appVersion: latest")
	errSum     = errors.New("the sum has changed between the first tag and the last")
)

// work is a release in the making.
type work struct {
	clone, scratch, version string
	modules                 []*module      // those without requirements first
	sums                    map[string]sum // by path, of what has been tagged
	served                  string         // the modules as a proxy serves them
}

// release makes the commit and the tags of a version in a clone of the repository, has the go command read the modules from
// there as it reads those of any server, and only then puts the tags into the repository.
func release(ctx context.Context, out io.Writer, repository, version, proxy string) error {
	if !versionForm.MatchString(version) {
		return fmt.Errorf("version %q: %w", version, errVersion)
	}

	if err := untouched(ctx, repository, version); err != nil {
		return err
	}

	scratch, err := os.MkdirTemp("", "weir-release-")
	if err != nil {
		return err
	}

	defer func() { _ = os.RemoveAll(scratch) }()

	w := &work{clone: filepath.Join(scratch, "clone"), scratch: scratch, version: version, sums: map[string]sum{}}

	return w.release(ctx, out, repository, proxy)
}

func (w *work) release(ctx context.Context, out io.Writer, repository, proxy string) error {
	if err := w.prepare(ctx, repository); err != nil {
		return err
	}

	if err := w.tagAll(ctx); err != nil {
		return err
	}

	if proxy != "" {
		if err := w.serve(proxy); err != nil {
			return err
		}
	}

	var others []string

	fetch := []string{"fetch", "--quiet", "--no-tags", w.clone}

	for _, m := range w.released() {
		tag := m.tag(w.version)
		fetch = append(fetch, "refs/tags/"+tag+":refs/tags/"+tag)

		if tag != w.version {
			others = append(others, tag)
		}
	}

	if _, err := git(ctx, repository, fetch...); err != nil {
		return err
	}

	// GitHub starts no workflow for more than three tags at once.
	_, err := fmt.Fprintf(out, "tagged %s; push the modules, and last the tag that starts the workflow:\n\n"+
		"    git push --atomic origin %s\n    git push origin %s\n",
		w.version, strings.Join(others, " "), w.version)

	return err
}

// untouched expects a repository without changes, in which the version is not tagged yet.
func untouched(ctx context.Context, repository, version string) error {
	status, err := git(ctx, repository, "status", "--porcelain")
	if err != nil {
		return err
	}

	if status != "" {
		return fmt.Errorf("%s: %w:\n%s", repository, errChanged, status)
	}

	tagged, err := git(ctx, repository, "tag", "--list", version, "*/"+version)
	if err != nil {
		return err
	}

	if tagged != "" {
		return fmt.Errorf("%s %w: %s", version, errTagged, strings.Join(strings.Fields(tagged), ", "))
	}

	return nil
}

// prepare clones the repository, reads its modules and writes the chart.
func (w *work) prepare(ctx context.Context, repository string) error {
	if _, err := git(ctx, repository, "clone", "--quiet", "--no-tags", ".", w.clone); err != nil {
		return err
	}

	modules, err := readModules(ctx, w.clone)
	if err != nil {
		return err
	}

	w.modules = modules

	// The chart lies in the module in the root, so it is written before that has its tag.
	return w.writeChart()
}

func (w *work) released() []*module {
	var released []*module

	for _, m := range w.modules {
		if !m.development() {
			released = append(released, m)
		}
	}

	return released
}

// tagAll writes the modules level by level, since a module has the sums of those that it requires, and these are known when
// those have been tagged. In the end there is one commit with everything, and all tags are on it: a sum is that of the files of
// one module, which the later levels do not change.
func (w *work) tagAll(ctx context.Context) error {
	base, err := git(ctx, w.clone, "rev-parse", "HEAD")
	if err != nil {
		return err
	}

	todo := w.released()
	for len(todo) > 0 {
		var level, later []*module

		for _, m := range todo {
			if m.ready(w.sums) {
				level = append(level, m)
			} else {
				later = append(later, m)
			}
		}

		if len(level) == 0 {
			return fmt.Errorf("%s: %w", strings.Join(paths(todo), ", "), errCycle)
		}

		if err := w.write(ctx, level); err != nil {
			return err
		}

		if err := w.tag(ctx, level); err != nil {
			return err
		}

		if todo = later; len(todo) == 0 {
			break // all of it is read below
		}

		if err := w.read(ctx, level); err != nil {
			return err
		}
	}

	for _, m := range w.modules {
		if m.development() {
			if err := m.require(ctx, w.clone, w.version); err != nil {
				return err
			}
		}
	}

	if _, err := git(ctx, w.clone, "reset", "--quiet", "--soft", base); err != nil {
		return err
	}

	if err := w.tag(ctx, w.released()); err != nil {
		return err
	}

	return w.read(ctx, w.released())
}

// write makes the files of modules those of the version.
func (w *work) write(ctx context.Context, level []*module) error {
	for _, m := range level {
		if err := m.require(ctx, w.clone, w.version); err != nil {
			return err
		}

		if err := m.drop(ctx, w.clone); err != nil {
			return err
		}

		if err := m.addSums(w.clone, w.version, w.sums); err != nil {
			return err
		}
	}

	return nil
}

// writeChart gives the chart of Helm the version, and the image that belongs to it. Neither begins with a v.
func (w *work) writeChart() error {
	name := filepath.Join(w.clone, "deploy", "helm", "weir", "Chart.yaml")

	text, err := os.ReadFile(name) //nolint:gosec // a file of the repository
	if err != nil {
		return err
	}

	const version, image = "\nversion: 0.0.0\n", "\nappVersion: latest\n"

	number := strings.TrimPrefix(w.version, "v")
	written := strings.NewReplacer(version, "\nversion: "+number+"\n", "appVersion: latest", "appVersion: "+number)

	if strings.Count(string(text), version) != 1 || strings.Count(string(text), image) != 1 {
		return fmt.Errorf("%s: %w", name, errChart)
	}

	return os.WriteFile(name, []byte(written.Replace(string(text))), 0o644) //nolint:gosec // it is for all to read
}

// tag commits what there is, and puts the tags of modules on it.
func (w *work) tag(ctx context.Context, modules []*module) error {
	message := "release " + w.version + "\n\nThe modules require each other at this version, and replace none."
	if _, err := git(ctx, w.clone, "commit", "--quiet", "--all", "--allow-empty", "--message", message); err != nil {
		return err
	}

	for _, m := range modules {
		message := m.path + " " + w.version
		if _, err := git(ctx, w.clone, "tag", "--force", "--annotate", "--message", message, m.tag(w.version)); err != nil {
			return err
		}
	}

	return nil
}

// read has the go command read modules from the clone, as from a server, and keeps their sums.
func (w *work) read(ctx context.Context, modules []*module) error {
	cache, err := os.MkdirTemp(w.scratch, "modules-")
	if err != nil {
		return err
	}

	sums, err := download(ctx, cache, w.clone, paths(modules), w.version)
	if err != nil {
		return err
	}

	for path, s := range sums {
		if before, ok := w.sums[path]; ok && before != s {
			return fmt.Errorf("%s: %w: %v and %v", path, errSum, before, s)
		}

		w.sums[path] = s
	}

	// What else is there is of the go command alone.
	for _, own := range []string{"cache/vcs", "cache/lock"} {
		if err := os.RemoveAll(filepath.Join(cache, filepath.FromSlash(own))); err != nil {
			return err
		}
	}

	w.served = filepath.Join(cache, "cache", "download")

	return nil
}

// serve makes a directory with what the go command has read last.
func (w *work) serve(proxy string) error {
	// A directory that is there already may have another version of the same name.
	if err := os.Mkdir(proxy, 0o755); err != nil { //nolint:gosec // modules are for all to read
		return err
	}

	return os.CopyFS(proxy, os.DirFS(w.served))
}
