// Package reap finds every descendant of this process, whatever it did to escape,
// and kills it.
//
// A process that called [Adopt] is a child subreaper: a descendant that loses its
// parent becomes its child, so it can be found and waited for. [KillDescendants]
// kills, again and again, until [Wait] reports that nothing is left. A process that
// was started from a thread after [Confine] cannot signal this one, where the
// system can forbid that. Elsewhere, and if this process dies of something else, a
// second process above it inherits everything and kills it: [Keep].
package reap
