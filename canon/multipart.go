package canon

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"io"
	"mime"
	"mime/multipart"
	"net/textproto"
	"strings"
	"unicode/utf8"
)

var errMultipart = errors.New("multipart body cannot be read")

// parseMultipart reads the parts of a form into the list of fields. A part is
// its file name, its type and the digest of its content; under a policy that
// can only change the content of a part without a file name.
func (s *scratch) parseMultipart(body []byte, boundary string) error {
	if len(body) > maxBody {
		return errBodySize
	}
	s.fields.reset(0)
	r := multipart.NewReader(bytes.NewReader(body), boundary)
	for {
		// Not NextPart: it undoes one transfer encoding and not the others.
		p, err := r.NextRawPart()
		if err == io.EOF { // not errors.Is: a body that was cut short has an error that wraps io.EOF
			return nil
		}
		if err != nil {
			return errors.Join(errMultipart, err)
		}
		if err := s.addPart(p); err != nil {
			return err
		}
	}
}

// part is what counts of a part, besides its content.
type part struct {
	name, file string
	isFile     bool
	media      string
	encoding   string
}

// addPart adds a part to the list.
func (s *scratch) addPart(p *multipart.Part) error {
	head, err := parsePart(p.Header)
	if err != nil {
		return err
	}
	marks, counts := s.fieldMarks([]byte(head.name))
	if head.isFile {
		marks &^= markDecimal | markUpper
	}
	if marks&(markDecimal|markUpper) != 0 && counts {
		content, err := io.ReadAll(p)
		if err != nil {
			return errors.Join(errMultipart, err)
		}
		s.addContent(head, content, marks)
		return nil
	}
	h := sha256.New()
	if _, err := io.Copy(h, p); err != nil {
		return errors.Join(errMultipart, err)
	}
	if counts {
		s.addDigest(head, 's', h.Sum(nil))
	}
	return nil
}

// addContent adds a part without a file name, under the marks on it.
func (s *scratch) addContent(head part, content []byte, marks uint8) {
	kind := byte('s')
	if utf8.Valid(content) {
		text := s.marked(nil, content, marks)
		if text[0] == '"' {
			content = unquoted(text)
		} else {
			kind, content = 'n', text
		}
	}
	sum := sha256.Sum256(content)
	s.addDigest(head, kind, sum[:])
}

// addDigest adds a part, given the digest of its content, which is a string (s)
// or a decimal number (n).
func (s *scratch) addDigest(head part, kind byte, sum []byte) {
	s.beginField([]byte(head.name))
	text := append(s.fields.text, '[')
	if head.isFile {
		text = append(quote(text, head.file), ',')
	}
	text = append(quote(text, head.media), ',')
	text = append(quote(text, head.encoding), ',', '"', kind)
	text = append(hex.AppendEncode(text, sum), '"', ']')
	s.fields.text = text
	s.endField()
}

// parsePart reads the header of a part. What a reader could take in two ways is
// an error.
func parsePart(h textproto.MIMEHeader) (part, error) {
	disposition := h["Content-Disposition"]
	if len(disposition) != 1 || len(h["Content-Type"]) > 1 || len(h["Content-Transfer-Encoding"]) > 1 {
		return part{}, errMultipart
	}
	kind, params, err := mime.ParseMediaType(disposition[0])
	name, named := params["name"]
	if err != nil || kind != "form-data" || !named {
		return part{}, errMultipart
	}
	file, isFile := params["filename"]
	if strings.Contains(disposition[0], "*") {
		// There are two ways to say a file name, and readers that know one.
		file, isFile = disposition[0], true
	}
	p := part{
		name: name, file: file, isFile: isFile,
		media:    parseMedia(map[string][]string(h)).text,
		encoding: strings.ToLower(h.Get("Content-Transfer-Encoding")),
	}
	switch p.encoding {
	case "7bit", "8bit", "binary":
		p.encoding = ""
	}
	for _, text := range []string{p.name, p.file, p.media, p.encoding} {
		if !utf8.ValidString(text) {
			return part{}, errMultipart
		}
	}
	return p, nil
}
