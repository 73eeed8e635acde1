package main

import (
	"runtime"
	"runtime/debug"

	"github.com/spf13/cobra"

	"github.com/kern-run/kern/internal/cli"
	"github.com/kern-run/kern/internal/manual"
)

// version is set by the build of a release.
var version = "0.1.0-dev"

func versionCommand(t *cli.Terminal) *cobra.Command {
	var asJSON, licences bool
	cmd := &cobra.Command{
		Use:   "version",
		Short: "Print the version, or the licences of everything in the binary",
		Args:  noArgs,
		RunE: func(*cobra.Command, []string) error {
			if licences {
				return t.Print("%s", manual.Licences)
			}
			return printVersion(t, asJSON)
		},
	}
	cmd.Flags().BoolVar(&licences, "licences", false, "print the licences of Kern, its modules, Go and CPython")
	cmd.Flags().BoolVar(&asJSON, "json", false, "print a JSON object")
	return cmd
}

func printVersion(t *cli.Terminal, asJSON bool) error {
	v := struct {
		Version  string `json:"version"`
		Revision string `json:"revision"`
		Go       string `json:"go"`
		OS       string `json:"os"`
		Arch     string `json:"arch"`
	}{version, revision(), runtime.Version(), runtime.GOOS, runtime.GOARCH}
	if asJSON {
		return t.JSON(v)
	}
	return t.Print("kern %s (revision %s, %s, %s/%s)\n", v.Version, v.Revision, v.Go, v.OS, v.Arch)
}

// revision is the commit that this was built from, if the build knows it.
func revision() string {
	rev, dirty := "unknown", ""
	if i, ok := debug.ReadBuildInfo(); ok {
		for _, s := range i.Settings {
			switch s.Key {
			case "vcs.revision":
				rev = s.Value[:min(12, len(s.Value))]
			case "vcs.modified":
				if s.Value == "true" {
					dirty = "+"
				}
			}
		}
	}
	return rev + dirty
}
