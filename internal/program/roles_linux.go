package program

import (
	"github.com/kern-run/kern/internal/program/confine"
	"github.com/kern-run/kern/internal/program/lineage"
)

// roles lists every role. The function of a role has its description.
//
//	kern ── supervisor (keeper) ── supervisor ── a program
//	                                  └── jail builder ── jail reaper     kern exec --sandbox jail
//	     ── jail init ── a program                                      the sandbox jail
//	     ── jail userns                                                 lends it a workspace
var roles = []role{
	{roleSupervisor, supervise},
	{confine.RoleBuilder, confine.Build},
	{confine.RoleReaper, confine.Reap},
	{confine.RoleInit, confine.Init},
	{confine.RoleUserns, confine.HoldNamespace},
	{confine.RoleProbe, confine.Probe}, // tries the walls of a jail from inside
}

const (
	roleSupervisor = lineage.SupervisorName
	selfPath       = "/proc/self/exe"
)
