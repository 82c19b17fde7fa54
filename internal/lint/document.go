package lint

import (
	"go/ast"
	"go/token"
	"strings"
)

// CheckDocumented wants a comment on every exported name outside tests: functions,
// types, methods of exported types, constants and variables (one comment for their
// group will do), methods of interfaces, and the fields of configurations.
func CheckDocumented(t *Tree) []Fault {
	var faults []Fault
	for _, f := range t.goFiles(func(f *File) bool { return !strings.HasSuffix(f.Path, "_test.go") }) {
		for _, decl := range f.Go.Decls {
			switch d := decl.(type) {
			case *ast.FuncDecl:
				faults = append(faults, f.undocumentedFunc(d)...)
			case *ast.GenDecl:
				faults = append(faults, f.undocumentedGroup(d)...)
			}
		}
	}
	return faults
}

func (f *File) undocumentedFunc(fn *ast.FuncDecl) []Fault {
	if !fn.Name.IsExported() || fn.Doc != nil {
		return nil
	}
	if fn.Recv != nil && !ast.IsExported(receiver(fn)) {
		return nil
	}
	return []Fault{f.undocumented(fn.Name)}
}

// receiver returns the name of a method's type, without star and type parameters.
func receiver(fn *ast.FuncDecl) string {
	name := ""
	ast.Inspect(fn.Recv.List[0].Type, func(n ast.Node) bool {
		if id, ok := n.(*ast.Ident); ok && name == "" {
			name = id.Name
		}
		return name == ""
	})
	return name
}

func (f *File) undocumentedGroup(d *ast.GenDecl) []Fault {
	var faults []Fault
	for _, spec := range d.Specs {
		switch s := spec.(type) {
		case *ast.ValueSpec:
			if d.Doc == nil && s.Doc == nil && s.Comment == nil {
				faults = append(faults, f.undocumentedNames(s.Names)...)
			}
		case *ast.TypeSpec:
			// A group's comment does not describe each of its types; only a lone
			// type takes its comment from the declaration.
			lone := d.Lparen == token.NoPos && d.Doc != nil
			if s.Name.IsExported() && !lone && s.Doc == nil && s.Comment == nil {
				faults = append(faults, f.undocumented(s.Name))
			}
			faults = append(faults, f.undocumentedMembers(s)...)
		}
	}
	return faults
}

// undocumentedMembers looks into exported interfaces, which are contracts, and
// into configurations, whose fields are what users read.
func (f *File) undocumentedMembers(s *ast.TypeSpec) []Fault {
	if !s.Name.IsExported() {
		return nil
	}
	var members *ast.FieldList
	switch t := s.Type.(type) {
	case *ast.InterfaceType:
		members = t.Methods
	case *ast.StructType:
		if !strings.HasSuffix(s.Name.Name, "Config") && !strings.HasSuffix(s.Name.Name, "Options") {
			return nil
		}
		members = t.Fields
	default:
		return nil
	}
	var faults []Fault
	for _, m := range members.List {
		if m.Doc == nil && m.Comment == nil {
			faults = append(faults, f.undocumentedNames(m.Names)...)
		}
	}
	return faults
}

func (f *File) undocumentedNames(names []*ast.Ident) []Fault {
	var faults []Fault
	for _, name := range names {
		if name.IsExported() {
			faults = append(faults, f.undocumented(name))
		}
	}
	return faults
}

func (f *File) undocumented(name *ast.Ident) Fault {
	return f.fault(f.line(name.Pos()), "exported %s has no comment: say what the reader cannot see", name.Name)
}
