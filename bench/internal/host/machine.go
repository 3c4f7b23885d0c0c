// Package host asks the machine what a benchmark needs to know of it:
// processor time, noise, and what it is.
package host

import (
	"os"
	"runtime"
	"runtime/debug"
	"slices"
	"strings"
)

// A Machine says where figures were taken and with what.
type Machine struct {
	OS         string   `json:"os"`
	Arch       string   `json:"arch"`
	CPU        string   `json:"cpu,omitempty"`
	Kernel     string   `json:"kernel,omitempty"`
	Cores      int      `json:"cores"`
	GOMAXPROCS int      `json:"gomaxprocs"`
	Go         string   `json:"go"`
	Revision   string   `json:"revision,omitempty"`
	Modules    []Module `json:"modules"`
}

// A Module is a dependency of the running binary.
type Module struct {
	Path    string `json:"path"`
	Version string `json:"version"`
}

// Describe returns this machine, and those modules of the binary that are in
// paths.
func Describe(paths []string) Machine {
	m := Machine{
		OS: runtime.GOOS, Arch: runtime.GOARCH, Cores: runtime.NumCPU(),
		GOMAXPROCS: runtime.GOMAXPROCS(0), Go: runtime.Version(),
		CPU:    procField("/proc/cpuinfo", "model name"),
		Kernel: firstLine("/proc/sys/kernel/osrelease"),
	}
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return m
	}
	for _, s := range info.Settings {
		if s.Key == "vcs.revision" {
			m.Revision = s.Value
		}
	}
	for _, d := range info.Deps {
		if slices.Contains(paths, d.Path) {
			m.Modules = append(m.Modules, Module{d.Path, d.Version})
		}
	}
	return m
}

// procField returns the first value of a "name : value" file, or nothing.
func procField(path, name string) string {
	b, err := os.ReadFile(path)
	if err != nil {
		return ""
	}
	for line := range strings.Lines(string(b)) {
		if k, v, ok := strings.Cut(line, ":"); ok && strings.TrimSpace(k) == name {
			return strings.TrimSpace(v)
		}
	}
	return ""
}

func firstLine(path string) string {
	b, _ := os.ReadFile(path)
	line, _, _ := strings.Cut(string(b), "\n")
	return strings.TrimSpace(line)
}
