package host

import (
	"cmp"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/kern-run/kern/abi"
	"github.com/kern-run/kern/internal/provider"
	"github.com/kern-run/kern/internal/syscalls"
	"github.com/kern-run/kern/model"
)

// opener opens the models that agents name.
type opener struct {
	models provider.Config
	given  map[string]model.Model // models of the program that embeds the kernel
}

// openModel opens the model of an agent: a script from its recorded text, any other
// model from this host's configuration.
func (o *opener) openModel(p *abi.Agent) (model.Model, error) {
	if m := o.given[p.Model]; m != nil {
		return m, nil
	}
	if p.Script != "" {
		return model.ParseScript(strings.TrimPrefix(p.Model, "script:"), []byte(p.Script))
	}
	c := o.models
	c.Dir = p.Dir
	return provider.Open(p.Model, c)
}

// childModel returns an agent with the model that a model chose for a child. A
// script must lie in the directory of the parent's agent file.
func (o *opener) childModel(parent *abi.Agent, ref string) (abi.Agent, error) {
	p := abi.Agent{Model: ref, Dir: parent.Dir}
	if len(ref) > 7 && ref[:7] == "script:" {
		root, err := os.OpenRoot(cmp.Or(parent.Dir, "."))
		if err != nil {
			return p, err
		}
		defer root.Close()
		b, err := root.ReadFile(filepath.Clean(ref[7:]))
		if err != nil {
			return p, err
		}
		p.Script = string(b)
	}
	err := o.know(&p)
	return p, err
}

// know records in the agent today's facts of its model and of the fallbacks. It
// fails if one of these models cannot be opened.
func (o *opener) know(p *abi.Agent) error {
	m, err := o.openModel(p)
	if err != nil {
		return err
	}
	p.Facts, p.Fallback = syscalls.Recorded(m.Facts()), nil
	for _, ref := range o.models.Fallbacks(p.Model) {
		m, err := o.openModel(&abi.Agent{Model: ref, Dir: p.Dir})
		if err != nil {
			return fmt.Errorf("the model %s falls back to another: %w", p.Model, err)
		}
		p.Fallback = append(p.Fallback, abi.Fallback{Model: ref, Facts: syscalls.Recorded(m.Facts())})
	}
	return nil
}
