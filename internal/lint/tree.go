package lint

import (
	"bytes"
	"errors"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// Fault is one place that breaks a rule.
type Fault struct {
	Path string
	Line int
	Text string // what is wrong, and what to do instead
}

// String formats the fault as compilers do, so that editors can jump to it.
func (f Fault) String() string { return fmt.Sprintf("%s:%d: %s", f.Path, f.Line, f.Text) }

// File is one text file of the tree.
type File struct {
	Path string // slash-separated, from the root of the tree
	Text string
	Go   *ast.File // nil when it is not Go
	fset *token.FileSet
}

// Tree is what the checks look at: no generated files, no testdata, no binaries.
type Tree struct {
	Files []*File
}

// skippedFolders hold nothing that was written by hand for this project.
var skippedFolders = []string{".git", "bin", "node_modules", "testdata", "vendor"}

// textSuffixes are the files whose words are checked.
var textSuffixes = []string{
	".go", ".md", ".sql", ".sh", ".yaml", ".yml", ".mod", ".work", ".html", ".tmpl",
	"Makefile", ".ci/run", ".gitignore",
}

// Root finds the top of the checkout, the folder with go.work, above the current
// one.
func Root() (string, error) {
	dir, err := os.Getwd()
	if err != nil {
		return "", err
	}
	for {
		if _, err := os.Stat(filepath.Join(dir, "go.work")); err == nil {
			return dir, nil
		}
		parent := filepath.Dir(dir)
		if parent == dir {
			return "", errors.New("find go.work: run this inside a checkout of the project")
		}
		dir = parent
	}
}

// Load reads the tree below root.
func Load(root string) (*Tree, error) {
	sources := map[string]string{}
	err := filepath.WalkDir(root, func(path string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if entry.IsDir() {
			if slices.Contains(skippedFolders, entry.Name()) {
				return fs.SkipDir
			}
			return nil
		}
		if !entry.Type().IsRegular() || !isText(path) {
			return nil
		}
		text, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		name, err := filepath.Rel(root, path)
		sources[filepath.ToSlash(name)] = string(text)
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("read tree: %w", err)
	}
	return Parse(sources)
}

func isText(path string) bool {
	return slices.ContainsFunc(textSuffixes, func(s string) bool { return strings.HasSuffix(filepath.ToSlash(path), s) })
}

// Parse makes a tree from sources by path. It leaves out generated Go files and
// binaries.
func Parse(sources map[string]string) (*Tree, error) {
	t := &Tree{}
	var faults []error
	for path, text := range sources {
		if bytes.IndexByte([]byte(text), 0) >= 0 {
			continue
		}
		f := &File{Path: path, Text: text, fset: token.NewFileSet()}
		if strings.HasSuffix(path, ".go") {
			var err error
			f.Go, err = parser.ParseFile(f.fset, path, text, parser.ParseComments|parser.SkipObjectResolution)
			if err != nil {
				faults = append(faults, err)
				continue
			}
			if ast.IsGenerated(f.Go) {
				continue
			}
		}
		t.Files = append(t.Files, f)
	}
	slices.SortFunc(t.Files, func(a, b *File) int { return strings.Compare(a.Path, b.Path) })
	return t, errors.Join(faults...)
}

// Lines counts the file's lines.
func (f *File) Lines() int {
	n := strings.Count(f.Text, "\n")
	if !strings.HasSuffix(f.Text, "\n") {
		n++
	}
	return n
}

// Test reports whether the file exists for tests only.
func (f *File) Test() bool { return strings.HasSuffix(f.Path, "_test.go") || f.support() }

// supportFolders hold packages that are tests, although other tests import them.
var supportFolders = []string{"apps/tests", "storetest"}

// helperFolders hold what the tests stand on. Their code is neither product nor test,
// so it counts as neither.
var helperFolders = []string{"internal/deptest", "internal/lint", "internal/testserver"}

func (f *File) support() bool { return f.below(supportFolders) }

func (f *File) helper() bool { return f.below(helperFolders) }

func (f *File) below(folders []string) bool {
	return slices.ContainsFunc(folders, func(dir string) bool { return strings.HasPrefix(f.Path, dir+"/") })
}

func (f *File) line(pos token.Pos) int { return f.fset.Position(pos).Line }

func (f *File) fault(line int, format string, args ...any) Fault {
	return Fault{Path: f.Path, Line: line, Text: fmt.Sprintf(format, args...)}
}

// goFiles returns the Go files that keep accepts.
func (t *Tree) goFiles(keep func(*File) bool) []*File {
	var files []*File
	for _, f := range t.Files {
		if f.Go != nil && keep(f) {
			files = append(files, f)
		}
	}
	return files
}

func product(f *File) bool { return !f.Test() }

func anyFile(*File) bool { return true }
