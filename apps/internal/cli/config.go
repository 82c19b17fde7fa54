package cli

import (
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"regexp"
	"slices"
	"strings"

	"github.com/alecthomas/kong"
	"github.com/goccy/go-yaml"
)

// configFile is the YAML file of serve and processor: their flags, and the
// merchants as a mapping.
type configFile struct {
	Listen           *string             `yaml:"listen"`
	Store            *string             `yaml:"store"`
	Processor        *string             `yaml:"processor"`
	ProcessorJournal *string             `yaml:"processor-journal"`
	ProcessorTimeout *string             `yaml:"processor-timeout"`
	ProcessorMemory  *string             `yaml:"processor-memory"`
	ProcessorLookup  *string             `yaml:"processor-lookup"`
	ProcessorVisible *string             `yaml:"processor-visible"`
	RecoverGrace     *string             `yaml:"recover-grace"`
	CatchUpTimeout   *string             `yaml:"catch-up-timeout"`
	Journal          *string             `yaml:"journal"`
	Lease            *string             `yaml:"lease"`
	Retention        *string             `yaml:"retention"`
	DrainTimeout     *string             `yaml:"drain-timeout"`
	Events           *string             `yaml:"events"`
	LogFormat        *string             `yaml:"log-format"`
	LogLevel         *string             `yaml:"log-level"`
	Merchants        map[string][]string `yaml:"merchants"`
}

// flags are the file's values by the names of the flags.
func (c configFile) flags() map[string]*string {
	return map[string]*string{
		"listen": c.Listen, "store": c.Store, "processor": c.Processor, "processor-journal": c.ProcessorJournal,
		"processor-timeout": c.ProcessorTimeout, "processor-memory": c.ProcessorMemory, "processor-lookup": c.ProcessorLookup,
		"processor-visible": c.ProcessorVisible, "recover-grace": c.RecoverGrace, "catch-up-timeout": c.CatchUpTimeout, "journal": c.Journal, "lease": c.Lease, "retention": c.Retention,
		"drain-timeout": c.DrainTimeout, "events": c.Events, "log-format": c.LogFormat, "log-level": c.LogLevel,
	}
}

// loadConfig reads a configuration file. Fields it does not know are refused
// with line and column. ${NAME} in a value is the environment's.
func loadConfig(r io.Reader) (kong.Resolver, error) {
	text, err := io.ReadAll(r)
	if err != nil {
		return nil, fmt.Errorf("read configuration: %w", err)
	}
	var file configFile
	if err := yaml.UnmarshalWithOptions(text, &file, yaml.Strict()); err != nil && !errors.Is(err, io.EOF) {
		return nil, &usageError{"read configuration: " + strings.TrimSpace(yaml.FormatError(err, false, true)), "onlyonce serve --help lists what can be set; the file has the flags' names without --"}
	}
	values, err := file.values()
	if err != nil {
		return nil, err
	}
	return kong.ResolverFunc(func(_ *kong.Context, _ *kong.Path, flag *kong.Flag) (any, error) {
		for _, name := range flag.Envs {
			if _, set := os.LookupEnv(name); set {
				return nil, nil // the environment comes before the file
			}
		}
		if value, ok := values[flag.Name]; ok {
			return value, nil
		}
		return nil, nil
	}), nil
}

func (c configFile) values() (map[string]string, error) {
	values := map[string]string{}
	for name, value := range c.flags() {
		if value == nil {
			continue
		}
		expanded, err := expand(*value)
		if err != nil {
			return nil, &usageError{fmt.Sprintf("read configuration: %s: %v", name, err), "set the variable, or write the value into the file"}
		}
		values[name] = expanded
	}
	var merchants []string
	for _, name := range slices.Sorted(maps.Keys(c.Merchants)) {
		for _, key := range c.Merchants[name] {
			merchants = append(merchants, name+"="+key)
		}
	}
	if len(merchants) > 0 {
		values["merchant"] = strings.Join(merchants, ",")
	}
	return values, nil
}

var variable = regexp.MustCompile(`\$\{[A-Za-z_][A-Za-z0-9_]*\}`)

func expand(value string) (string, error) {
	var missing error
	expanded := variable.ReplaceAllStringFunc(value, func(found string) string {
		name := strings.Trim(found, "${}")
		text, set := os.LookupEnv(name)
		if !set {
			missing = fmt.Errorf("the variable %s is not set", name)
		}
		return text
	})
	return expanded, missing
}
