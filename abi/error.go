package abi

import (
	"encoding/json"
	"slices"
	"strings"
	"unicode/utf8"
)

// A Code classifies an Error for programs. Codes are part of the contract:
// never renamed, never reused. [Codes] explains each.
type Code string

// The codes.
const (
	LimitMoney        Code = "LIMIT_MONEY"
	LimitTokens       Code = "LIMIT_TOKENS"
	LimitInputTokens  Code = "LIMIT_INPUT_TOKENS"
	LimitOutputTokens Code = "LIMIT_OUTPUT_TOKENS"
	LimitSteps        Code = "LIMIT_STEPS"
	LimitModelCalls   Code = "LIMIT_MODEL_CALLS"
	LimitToolCalls    Code = "LIMIT_TOOL_CALLS"
	LimitCPU          Code = "LIMIT_CPU"
	LimitChildren     Code = "LIMIT_CHILDREN"
	LimitOutputBytes  Code = "LIMIT_OUTPUT_BYTES"
	LimitWall         Code = "LIMIT_WALL"
	LimitDepth        Code = "LIMIT_DEPTH"
	LimitContext      Code = "LIMIT_CONTEXT"

	WatchdogLoop Code = "WATCHDOG_LOOP"

	InvalidCall      Code = "INVALID_CALL"
	InvalidArguments Code = "INVALID_ARGUMENTS"
	InvalidResult    Code = "INVALID_RESULT"
	UnknownRow       Code = "UNKNOWN_ROW"
	UnknownTool      Code = "UNKNOWN_TOOL"
	UnknownModel     Code = "UNKNOWN_MODEL"
	UnknownPrice     Code = "UNKNOWN_PRICE"
	UnknownProcess   Code = "UNKNOWN_PROCESS"
	NotGranted       Code = "NOT_GRANTED"
	BadKey           Code = "BAD_KEY"
	NotApproved      Code = "NOT_APPROVED"
	Diverged         Code = "DIVERGED"

	ToolFailed  Code = "TOOL_FAILED"
	ToolTimeout Code = "TOOL_TIMEOUT"
	ToolBlocked Code = "TOOL_BLOCKED"
	ToolGone    Code = "TOOL_GONE"

	CodeFailed    Code = "CODE_FAILED"
	CodeTimeout   Code = "CODE_TIMEOUT"
	CodeMemory    Code = "CODE_MEMORY"
	CodeOutput    Code = "CODE_OUTPUT"
	CodeProcesses Code = "CODE_PROCESSES"
	CodeFiles     Code = "CODE_FILES"
	CodeRefused   Code = "CODE_REFUSED"

	FileMissing   Code = "FILE_MISSING"
	FileKind      Code = "FILE_KIND"
	FileTooLarge  Code = "FILE_TOO_LARGE"
	FileRefused   Code = "FILE_REFUSED"
	EditNoMatch   Code = "EDIT_NO_MATCH"
	EditAmbiguous Code = "EDIT_AMBIGUOUS"

	ModelRateLimit  Code = "MODEL_RATE_LIMIT"
	ModelOverloaded Code = "MODEL_OVERLOADED"
	ModelAuth       Code = "MODEL_AUTH"
	ModelBadRequest Code = "MODEL_BAD_REQUEST"
	ModelContext    Code = "MODEL_CONTEXT"
	ModelNetwork    Code = "MODEL_NETWORK"
	ModelMalformed  Code = "MODEL_MALFORMED"

	WorkspaceConflict    Code = "WORKSPACE_CONFLICT"
	WorkspaceLocked      Code = "WORKSPACE_LOCKED"
	WorkspaceRefused     Code = "WORKSPACE_REFUSED"
	WorkspaceQuota       Code = "WORKSPACE_QUOTA"
	WorkspaceBusy        Code = "WORKSPACE_BUSY"
	WorkspaceInDoubt     Code = "WORKSPACE_IN_DOUBT"
	WorkspaceUnsupported Code = "WORKSPACE_UNSUPPORTED"
	WorkspaceMissing     Code = "WORKSPACE_MISSING"
	WorkspaceDamaged     Code = "WORKSPACE_DAMAGED"
	WorkspaceFull        Code = "WORKSPACE_FULL"
	WorkspaceEnded       Code = "WORKSPACE_ENDED"
	InvariantFailed      Code = "INVARIANT_FAILED"

	EmptyAnswer     Code = "EMPTY_ANSWER"
	OutcomeUnknown  Code = "OUTCOME_UNKNOWN"
	ProcessKilled   Code = "PROCESS_KILLED"
	ProcessEnding   Code = "PROCESS_ENDING"
	ProcessExited   Code = "PROCESS_EXITED"
	Interrupted     Code = "INTERRUPTED"
	StorageFull     Code = "STORAGE_FULL"
	StorageBroken   Code = "STORAGE_BROKEN"
	DaemonGone      Code = "DAEMON_GONE"
	ProgramFailed   Code = "PROGRAM_FAILED"
	ProgramGone     Code = "PROGRAM_GONE"
	TooManyRequests Code = "TOO_MANY_REQUESTS"
	DaemonBusy      Code = "DAEMON_BUSY"
	KeyFull         Code = "KEY_FULL"
	Internal        Code = "INTERNAL"
)

// Codes explains every code in one line, in the order of kern help codes.
var Codes = []struct {
	Code    Code
	Meaning string
}{
	{LimitMoney, "the money limit of the process or of an account above it leaves no room"},
	{LimitTokens, "the limit on tokens, in and out together, leaves no room"},
	{LimitInputTokens, "the limit on input tokens leaves no room"},
	{LimitOutputTokens, "the limit on output tokens leaves no room"},
	{LimitSteps, "no step is left"},
	{LimitModelCalls, "no model call is left"},
	{LimitToolCalls, "no tool call is left"},
	{LimitCPU, "no processor time is left"},
	{LimitChildren, "no further process may be started"},
	{LimitOutputBytes, "the tools gave more output than allowed"},
	{LimitWall, "the time is up"},
	{LimitDepth, "a child would be deeper than allowed"},
	{LimitContext, "the request does not fit the context limit or the model's window"},
	{WatchdogLoop, "the process made a loop; the error names the evidence"},
	{InvalidCall, "the call is not valid"},
	{InvalidArguments, "the arguments do not match the schema; the error says where"},
	{InvalidResult, "the tool's result does not match its declared schema"},
	{UnknownRow, "no such system call"},
	{UnknownTool, "no tool of that name"},
	{UnknownModel, "no model of that name"},
	{UnknownPrice, "there is a money limit, and the model's price is not known"},
	{UnknownProcess, "no process with that pid"},
	{NotGranted, "the process may not use this system call"},
	{BadKey, "no process has this key, or requests from this address are not allowed"},
	{NotApproved, "a person said no"},
	{Diverged, "the call was made before with other content"},
	{ToolFailed, "the tool ran and failed"},
	{ToolTimeout, "the tool was stopped at its timeout"},
	{ToolBlocked, "the tool failed several times in a row and is blocked for a while"},
	{ToolGone, "the program that runs the tool went away"},
	{CodeFailed, "the code ended with an exception or an exit code"},
	{CodeTimeout, "the code was stopped at its time limit"},
	{CodeMemory, "the code needed more memory than allowed"},
	{CodeOutput, "the code gave more output than allowed"},
	{CodeProcesses, "the code started more processes than allowed"},
	{CodeFiles, "the code made more files, or larger ones, than allowed"},
	{CodeRefused, "the sandbox cannot run this, or not as safely as asked"},
	{FileMissing, "no such file or directory in the workspace"},
	{FileKind, "the path is a directory, a binary file or something else that the tool does not work on"},
	{FileTooLarge, "the file is larger than the file tools accept"},
	{FileRefused, "the path leads out of the workspace, or to what file tools never touch"},
	{EditNoMatch, "the text to be replaced is not in the file; the error shows what is nearest"},
	{EditAmbiguous, "the text to be replaced occurs several times; the error says where"},
	{ModelRateLimit, "the provider asks to slow down"},
	{ModelOverloaded, "the provider is overloaded"},
	{ModelAuth, "the provider does not accept the key"},
	{ModelBadRequest, "the provider refused the request"},
	{ModelContext, "the provider says that the request is too long"},
	{ModelNetwork, "the provider could not be reached, or the answer broke off"},
	{ModelMalformed, "the provider's answer could not be read"},
	{WorkspaceConflict, "a file was changed by somebody else meanwhile; nothing of the call was published"},
	{WorkspaceLocked, "another commit held the workspace until the deadline"},
	{WorkspaceRefused, "the workspace does not support this request"},
	{WorkspaceQuota, "more bytes or files than one call may stage"},
	{WorkspaceBusy, "a program still uses the staged files, or a file keeps changing"},
	{WorkspaceInDoubt, "an earlier commit of the workspace is not decided"},
	{WorkspaceUnsupported, "this host does not support the requested view of the workspace"},
	{WorkspaceMissing, "the workspace holds no such file, commit or transaction"},
	{WorkspaceDamaged, "the history of the workspace is damaged"},
	{WorkspaceFull, "the history of the workspace has reached its limit"},
	{WorkspaceEnded, "the workspace is closed"},
	{InvariantFailed, "a file would break an invariant; nothing of the call was published"},
	{EmptyAnswer, "the model gave neither text nor a tool call, twice"},
	{OutcomeUnknown, "the effect began and its end is unknown; it was not tried again"},
	{ProcessKilled, "the process was killed"},
	{ProcessEnding, "the process is finishing; only last words are admitted"},
	{ProcessExited, "the process has exited"},
	{Interrupted, "the call was stopped before its end"},
	{StorageFull, "the disk of the journal is full; nothing is admitted until there is room"},
	{StorageBroken, "the journal cannot be written; restart the daemon"},
	{DaemonGone, "the daemon ended during the request"},
	{ProgramFailed, "the program ended with an exit code other than 0, or by a signal"},
	{ProgramGone, "the client that ran the program went away, and the program was ended"},
	{TooManyRequests, "too many bytes of requests of this key are under way; ask again later"},
	{DaemonBusy, "too many bytes of requests of all programs are under way; ask again later"},
	{KeyFull, "the requests of this key have filled its part of the journal"},
	{Internal, "the kernel could not keep a promise; this is a defect"},
}

// Mistake reports whether the failure is a mistake of the caller: the call changed
// nothing, and the tool is not to blame.
func (c Code) Mistake() bool {
	switch c {
	case FileMissing, FileKind, FileTooLarge, FileRefused, EditNoMatch, EditAmbiguous:
		return true
	}
	return false
}

// Contention reports whether somebody else was in the way: the call changed nothing,
// and neither the caller nor the tool is to blame.
func (c Code) Contention() bool { return c == WorkspaceConflict || c == WorkspaceLocked }

// ToolFault reports whether the tool failed, so that another attempt may succeed.
func (c Code) ToolFault() bool { return c == ToolFailed || c == ToolTimeout }

// Momentary reports whether a refusal depends on the moment, not on the process.
func (c Code) Momentary() bool {
	return slices.Contains([]Code{DaemonGone, Interrupted, StorageFull, StorageBroken}, c)
}

// Ended reports whether the process has ended or is ending, so that a refused exit
// is not needed.
func (c Code) Ended() bool {
	_, limit := LimitOf(c)
	return limit || slices.Contains([]Code{WatchdogLoop, ProcessKilled, ProcessEnding, ProcessExited}, c)
}

// Watched reports whether the watchdog counts a refusal. It does not count
// refusals by a limit.
func (c Code) Watched() bool {
	return slices.Contains([]Code{InvalidArguments, UnknownTool, UnknownRow, NotGranted, ToolBlocked}, c)
}

// LimitCode returns the code of a refusal by the limit on u.
func LimitCode(u Unit) Code { return Code("LIMIT_" + strings.ToUpper(u.String())) }

// LimitOf returns the unit of a code that names a limit.
func LimitOf(c Code) (Unit, bool) {
	name, ok := strings.CutPrefix(string(c), "LIMIT_")
	if !ok {
		return 0, false
	}
	return UnitOf(strings.ToLower(name))
}

// An Error is what an agent sees when a call is refused or fails. The same
// object is register R4.
type Error struct {
	Code     Code            `json:"code"`
	Message  string          `json:"message"`
	Where    string          `json:"where,omitempty"`    // a JSON pointer, or a file position
	Expected json.RawMessage `json:"expected,omitempty"` // a schema, where there is one
	Got      string          `json:"got,omitempty"`      // what came, cut to a modest size
	Hint     string          `json:"hint,omitempty"`     // what to do next
}

func (e *Error) Error() string {
	s := e.Message
	if e.Where != "" {
		s += " (at " + e.Where + ")"
	}
	return s
}

// Retry reports whether the same call may succeed a little later.
func (e *Error) Retry() bool {
	switch e.Code {
	case ModelRateLimit, ModelOverloaded, ModelNetwork:
		return true
	}
	return false
}

// Clip shortens a text from outside for an error. It never cuts inside a character,
// and replaces bytes that are not UTF-8.
func Clip(s string) string {
	const limit = 200
	dots := ""
	if n := limit; len(s) > limit {
		for n > 0 && !utf8.RuneStart(s[n]) {
			n--
		}
		s, dots = s[:n], "..."
	}
	return strings.ToValidUTF8(s, "?") + dots
}
