package kern

import (
	"cmp"
	"os"
	"path/filepath"

	"github.com/kern-run/kern/internal/sys"
	"github.com/kern-run/kern/model"
)

// opener opens the models that programs name.
type opener struct{ models model.Config }

// openModel opens the model of a program: a script from the text that was
// recorded, any other from this host's configuration.
func (o *opener) openModel(p *sys.Program) (model.Model, error) {
	if p.Script != "" {
		return model.ParseScript(p.Model, []byte(p.Script))
	}
	c := o.models
	c.Dir = p.Dir
	return model.Open(p.Model, c)
}

// childModel reads the model that a model chose for a child. A script must
// stand in the folder of the agent.
func (o *opener) childModel(parent *sys.Program, ref string) (sys.Program, error) {
	p := sys.Program{Model: ref, Dir: parent.Dir}
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
	m, err := o.openModel(&p)
	if err != nil {
		return p, err
	}
	p.Facts = sys.Recorded(m.Facts())
	return p, nil
}
