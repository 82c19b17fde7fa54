package cli

import (
	"fmt"
	"runtime/debug"
)

// versionCmd prints what was built.
type versionCmd struct {
	JSON bool `name:"json" env:"-" help:"Print JSON."`
}

// Run prints the version.
func (c *versionCmd) Run(std Streams) error {
	version, revision, goVersion := "unknown", "", ""
	if info, ok := debug.ReadBuildInfo(); ok {
		version, goVersion = info.Main.Version, info.GoVersion
		for _, s := range info.Settings {
			if s.Key == "vcs.revision" {
				revision = s.Value
			}
		}
	}
	if c.JSON {
		return printJSON(std.Out, map[string]string{"version": version, "revision": revision, "go": goVersion})
	}
	fmt.Fprintf(std.Out, "onlyonce %s %s %s\n", version, revision, goVersion)
	return nil
}
