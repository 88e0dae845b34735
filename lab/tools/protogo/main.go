// Command protogo generates Go from protocol buffers with nothing but Go: it compiles the .proto files of a directory itself, and
// has protoc-gen-go and protoc-gen-go-grpc write what they write under protoc. lab/tools/go.mod pins all three, so the same files
// come out everywhere.
//
//	go run ./protogo -module MODULE -out DIRECTORY SOURCES
//
// Every file below SOURCES that ends in .proto is compiled, and is known to others by its path below SOURCES. The option
// go_package of each says where its Go goes: a package of MODULE, which is in DIRECTORY. Files there that are as they should be
// are left alone.
package main

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"

	"github.com/bufbuild/protocompile"
	"github.com/bufbuild/protocompile/protoutil"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/descriptorpb"
	"google.golang.org/protobuf/types/pluginpb"
)

// plugins are the generators, as go tool knows them, each with its parameters beside the module.
var plugins = [][2]string{
	{"protoc-gen-go", ""},
	{"protoc-gen-go-grpc", ",require_unimplemented_servers=true"},
}

func main() {
	module := flag.String("module", "", "module path that all packages are below of")
	out := flag.String("out", "", "directory of the module")
	flag.Parse()

	if *module == "" || *out == "" || flag.NArg() != 1 {
		fmt.Fprintln(os.Stderr, "usage: protogo -module MODULE -out DIRECTORY SOURCES")
		os.Exit(2)
	}

	if err := generate(context.Background(), *module, *out, flag.Arg(0)); err != nil {
		fmt.Fprintln(os.Stderr, "protogo:", err)
		os.Exit(1)
	}
}

func generate(ctx context.Context, module, out, sources string) error {
	names, err := protoFiles(sources)
	if err != nil {
		return err
	}

	compiler := protocompile.Compiler{
		Resolver: protocompile.WithStandardImports(&protocompile.SourceResolver{
			ImportPaths: []string{sources},
		}),
		SourceInfoMode: protocompile.SourceInfoStandard,
	}

	files, err := compiler.Compile(ctx, names...)
	if err != nil {
		return err
	}

	request := &pluginpb.CodeGeneratorRequest{FileToGenerate: names}
	added := map[string]bool{}

	for _, file := range files {
		addFile(request, added, file)
	}

	for _, plugin := range plugins {
		request.Parameter = proto.String("module=" + module + plugin[1])

		if err := run(ctx, plugin[0], request, out); err != nil {
			return fmt.Errorf("%s: %w", plugin[0], err)
		}
	}

	return nil
}

// protoFiles returns the .proto files below a directory by their paths below it, in order.
func protoFiles(directory string) ([]string, error) {
	var names []string

	err := filepath.WalkDir(directory, func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() || !strings.HasSuffix(path, ".proto") {
			return err
		}

		name, err := filepath.Rel(directory, path)
		names = append(names, filepath.ToSlash(name))

		return err
	})

	if err == nil && len(names) == 0 {
		err = errors.New("no .proto files below " + directory)
	}

	slices.Sort(names)

	return names, err
}

// addFile adds a file to a request after all that it imports, as generators expect it.
func addFile(request *pluginpb.CodeGeneratorRequest, added map[string]bool, file protoreflect.FileDescriptor) {
	if added[file.Path()] {
		return
	}

	added[file.Path()] = true

	for i := range file.Imports().Len() {
		addFile(request, added, file.Imports().Get(i).FileDescriptor)
	}

	request.ProtoFile = append(request.ProtoFile,
		proto.Clone(protoutil.ProtoFromFileDescriptor(file)).(*descriptorpb.FileDescriptorProto))
}

// run has a generator answer a request, and writes the files that it answers with.
func run(ctx context.Context, plugin string, request *pluginpb.CodeGeneratorRequest, out string) error {
	asked, err := proto.MarshalOptions{Deterministic: true}.Marshal(request)
	if err != nil {
		return err
	}

	cmd := exec.CommandContext(ctx, "go", "tool", plugin)
	cmd.Stdin = bytes.NewReader(asked)
	cmd.Stderr = os.Stderr

	answered, err := cmd.Output()
	if err != nil {
		return err
	}

	var response pluginpb.CodeGeneratorResponse
	if err := proto.Unmarshal(answered, &response); err != nil {
		return err
	}

	if response.Error != nil {
		return errors.New(response.GetError())
	}

	for _, file := range response.GetFile() {
		if err := write(filepath.Join(out, filepath.FromSlash(file.GetName())), []byte(file.GetContent())); err != nil {
			return err
		}
	}

	return nil
}

func write(path string, content []byte) error {
	if before, err := os.ReadFile(path); err == nil && bytes.Equal(before, content) {
		return nil
	}

	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return err
	}

	return os.WriteFile(path, content, 0o644)
}
