package oncegrpc

import (
	"maps"
	"slices"

	"google.golang.org/protobuf/reflect/protodesc"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/descriptorpb"
)

// schemaOf is what defines the messages of a type: the types in it, without the rest of
// their files, and of their options those that say how a field is read. It is hashed for
// every request, so it is short.
func schemaOf(desc protoreflect.MessageDescriptor) *descriptorpb.FileDescriptorSet {
	s := &schema{files: map[string]*schemaFile{}}
	s.add(desc)
	set := &descriptorpb.FileDescriptorSet{}
	for _, path := range slices.Sorted(maps.Keys(s.files)) {
		set.File = append(set.File, s.files[path].describe())
	}
	return set
}

// schema collects types.
type schema struct{ files map[string]*schemaFile }

// schemaFile is what is needed of a file.
type schemaFile struct {
	file  protoreflect.FileDescriptor
	types map[string]bool // at its top
	uses  map[string]bool // other files
}

// add adds the type at the top of a file that a type is in, with all that it needs.
func (s *schema) add(d protoreflect.Descriptor) *schemaFile {
	file := d.ParentFile()
	for d.Parent() != protoreflect.Descriptor(file) {
		d = d.Parent()
	}
	f := s.files[file.Path()]
	if f == nil {
		f = &schemaFile{file: file, types: map[string]bool{}, uses: map[string]bool{}}
		s.files[file.Path()] = f
	}
	if f.types[string(d.Name())] {
		return f
	}
	f.types[string(d.Name())] = true
	if m, ok := d.(protoreflect.MessageDescriptor); ok {
		s.addFields(f, m)
	}
	return f
}

func (s *schema) addFields(f *schemaFile, m protoreflect.MessageDescriptor) {
	for i := range m.Fields().Len() {
		field := m.Fields().Get(i)
		var used protoreflect.Descriptor
		if e := field.Enum(); e != nil {
			used = e
		} else if inner := field.Message(); inner != nil {
			used = inner
		} else {
			continue
		}
		if other := s.add(used); other != f {
			f.uses[other.file.Path()] = true
		}
	}
	for i := range m.Messages().Len() {
		s.addFields(f, m.Messages().Get(i))
	}
}

// describe is the file with the types that are needed.
func (f *schemaFile) describe() *descriptorpb.FileDescriptorProto {
	p := protodesc.ToFileDescriptorProto(f.file)
	lean := &descriptorpb.FileDescriptorProto{
		Name: p.Name, Package: p.Package, Syntax: p.Syntax, Edition: p.Edition, //nolint:protogetter // absent stays absent
		Dependency: slices.Sorted(maps.Keys(f.uses)),
	}
	if features := p.GetOptions().GetFeatures(); features != nil {
		lean.Options = &descriptorpb.FileOptions{Features: features}
	}
	for _, m := range p.GetMessageType() {
		if f.types[m.GetName()] {
			trim(m)
			lean.MessageType = append(lean.MessageType, m)
		}
	}
	for _, e := range p.GetEnumType() {
		if f.types[e.GetName()] {
			lean.EnumType = append(lean.EnumType, e)
		}
	}
	return lean
}

// trim leaves away what does not say how a message is read.
func trim(m *descriptorpb.DescriptorProto) {
	m.Extension, m.ReservedName, m.ReservedRange = nil, nil, nil
	for _, r := range m.GetExtensionRange() {
		r.Options = nil
	}
	if o := m.GetOptions(); o != nil {
		m.Options = &descriptorpb.MessageOptions{
			MapEntry: o.MapEntry, MessageSetWireFormat: o.MessageSetWireFormat, Features: o.GetFeatures(),
			DeprecatedLegacyJsonFieldConflicts: o.DeprecatedLegacyJsonFieldConflicts, //nolint:staticcheck // old files need it
		}
	}
	for _, field := range m.GetField() {
		field.JsonName = nil
		features := field.GetOptions().GetFeatures()
		if field.Options = nil; features != nil {
			field.Options = &descriptorpb.FieldOptions{Features: features}
		}
	}
	for _, inner := range m.GetNestedType() {
		trim(inner)
	}
}
