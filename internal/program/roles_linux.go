package program

import "github.com/kern-run/kern/internal/program/confine"

// roles are all roles. Each is described where its function is.
var roles = []role{
	{roleSupervisor, supervise},
	{confine.RoleStage, confine.Stage},
	{confine.RoleHolder, confine.Hold},
}

const (
	roleSupervisor = "kern-supervisor"
	selfPath       = "/proc/self/exe"
)
