package format

// words are the texts that nearly every record has. Each is written as its index. A
// new word is added at the end, and no word is ever changed or removed, because the
// indexes are on disk.
var words = [...]string{
	"",
	"ok", "failed", "unknown", "refused",
	"pure", "idempotent", "polling", "transactional", "compensable", "irreversible",
	"stop", "cont", "term", "kill",
	"done", "killed", "limit", "loop", "crashed",
	"system", "user", "assistant", "tool",
	"smart", "strict", "off",
	"model", "code", "spawn", "wait", "send", "recv", "sleep", "ask", "remember", "recall", "yield", "exit",
	"money", "tokens", "input_tokens", "output_tokens", "steps", "model_calls", "tool_calls", "cpu", "children",
	"output_bytes", "wall", "depth", "context",
	"LIMIT_MONEY", "LIMIT_TOKENS", "LIMIT_INPUT_TOKENS", "LIMIT_OUTPUT_TOKENS", "LIMIT_STEPS", "LIMIT_MODEL_CALLS",
	"LIMIT_TOOL_CALLS", "LIMIT_CPU", "LIMIT_CHILDREN", "LIMIT_OUTPUT_BYTES", "LIMIT_WALL", "LIMIT_DEPTH",
	"LIMIT_CONTEXT", "WATCHDOG_LOOP", "INVALID_CALL", "INVALID_ARGUMENTS", "INVALID_RESULT", "UNKNOWN_ROW",
	"UNKNOWN_TOOL", "UNKNOWN_MODEL", "UNKNOWN_PRICE", "UNKNOWN_PROCESS", "NOT_GRANTED", "NOT_APPROVED", "DIVERGED",
	"TOOL_FAILED", "TOOL_TIMEOUT", "TOOL_BLOCKED", "TOOL_GONE", "MODEL_RATE_LIMIT", "MODEL_OVERLOADED", "MODEL_AUTH",
	"MODEL_BAD_REQUEST", "MODEL_CONTEXT", "MODEL_NETWORK", "MODEL_MALFORMED", "EMPTY_ANSWER", "OUTCOME_UNKNOWN",
	"PROCESS_KILLED", "PROCESS_ENDING", "PROCESS_EXITED", "INTERRUPTED", "STORAGE_FULL", "STORAGE_BROKEN",
	"DAEMON_GONE", "INTERNAL",
}

var wordNumber = func() map[string]uint64 {
	m := make(map[string]uint64, len(words))
	for i, s := range words {
		m[s] = uint64(i)
	}
	return m
}()

// Words returns the frozen words, in order of their numbers.
func Words() []string { return words[:] }
