package tariff

import (
	"slices"
	"strings"

	"github.com/kern-run/kern/internal/jsontext"
)

// row says what a provider may bill for a field of a body. A row with only a name is
// a free field, which no model reads.
type row struct {
	name string // the field, or several separated by spaces; "a/b" is the member b of the field a
	at   Format // the formats of the row; 0: all. In other formats the next row with the name applies; without one the field is unknown

	off   func(v []byte) bool            // reports that the value asks for nothing
	sold  string                         // why the field is an extra: not paid in tokens, or without a bound
	as    string                         // the name of the extra; empty: the name of the field
	kept  string                         // the thing that the provider stores, of unknown length
	known func(*weigher, []byte) bool    // adds the stored thing if its length is known after all
	read  func(*weigher, string, []byte) // counts the tokens that the model reads of the field; nil: none
	moves func(v []byte) bool            // reports that the model may read more or less of the next request
}

// Reasons that several rows share for being an extra.
const (
	answers  = "more answers may be made and billed than are counted"
	another  = "another model may answer, at another price"
	dearer   = "a dearer host of the model may answer"
	media    = "sound and images have prices of their own"
	own      = "this has a price of its own"
	searches = "searches are billed by the piece, and what they find as input"
	summary  = "what it takes to sum up a conversation is billed beside the answer"
	unheard  = "Kern does not know this field, and it may switch on a service with a price of its own"
	theirs   = "the provider calls tools itself, and bills what they give as input"
)

// fields is the table of body fields: of OpenAI, of Anthropic, of resellers and of
// open-source servers. A field without a row counts, because a model may read it, and
// is an extra unless its value can switch nothing on. If the table has members of a
// field, the same holds for its other members.
var fields = []row{
	{name: "model stream stream_options max_tokens max_completion_tokens max_output_tokens n_predict max_new_tokens"},
	{name: "temperature top_p top_k min_p top_a frequency_penalty presence_penalty seed random_seed stop stop_sequences stop_token_ids"},
	{name: "repetition_penalty repeat_penalty repeat_last_n length_penalty typical_p tfs_z min_tokens min_keep ignore_eos bad_words logit_bias"},
	{name: "mirostat mirostat_tau mirostat_eta mirostat_lr mirostat_target dynatemp_range dynatemp_exponent xtc_probability xtc_threshold top_n_sigma samplers do_sample allowed_token_ids"},
	{name: "dry_multiplier dry_base dry_allowed_length dry_penalty_last_n dry_sequence_breakers"},
	{name: "logprobs top_logprobs prompt_logprobs n_probs return_token_ids return_tokens_as_token_ids return_progress timings_per_token"},
	{name: "skip_special_tokens spaces_between_special_tokens include_stop_str_in_output no_stop_trim add_generation_prompt continue_final_message add_special_tokens"},
	{name: "user user_id user_profile_id workspace_id metadata client_metadata store parallel_tool_calls disable_tool_validation max_tool_calls include"},
	{name: "background background_options diagnostics safety_identifier fallback_credit_token anthropic_version"},
	{name: "session_id trace debug usage usage/include request_id cache_prompt cache_salt id_slot keep_alive citation_options tool_stream raw_output perf_metrics_in_response"},
	{name: "prompt_cache_key prompt_cache_isolation_key prompt_cache_max_len verbosity encoding_format dimensions output_dimension embedding_type input_type truncate task normalized"},

	{name: "guided_decoding_backend guided_whitespace_pattern kv_transfer_params detokenize echo stop_regex logits_processors priority lora lora_path draft_model ttl"},
	{name: "return_hidden_states return_tokens response_fields parse_tool_calls post_sampling_probs t_max_predict_ms rid session_params"},
	{name: "litellm_session_id litellm_trace_id litellm_metadata tags drop_params num_retries caching"},

	{name: "messages input system instructions", read: (*weigher).talk},
	{name: "options vllm_xargs mm_processor_kwargs custom_params", read: (*weigher).anything},
	{name: "format", read: shape},
	{name: "think", off: no, read: silent},
	{name: "tools functions", read: (*weigher).tools},
	{name: "tool_choice function_call documents suffix grammar json_schema guided_json guided_regex guided_choice guided_grammar structured_outputs regex ebnf", read: (*weigher).anything},
	{name: "chat_template chat_template_kwargs", read: (*weigher).anything},
	{name: "response_format text output_format output_config", read: shape},
	{name: "safe_prompt prompt_mode", read: told},
	{name: "cache_control prompt_cache_options", read: (*weigher).cache},
	{name: "prompt_cache_retention", off: among("in_memory", "in-memory"), read: lasting},

	{name: "reasoning thinking", read: thinking},
	{name: "reasoning/effort reasoning/summary reasoning/generate_summary reasoning/context reasoning/max_tokens reasoning/exclude reasoning/enabled"},
	{name: "reasoning/mode", off: among("", "standard"), as: "reasoning mode", sold: "this mode thinks more than an output maximum tells"},
	{name: "thinking/type thinking/budget_tokens thinking/display thinking/clear_thinking"},
	{name: "reasoning_effort", off: among("none"), read: silent},
	{name: "enable_thinking", off: no, read: silent},
	{name: "include_reasoning reasoning_format reasoning_split separate_reasoning stream_reasoning thinking_budget thinking_token_budget", read: silent},

	{name: "previous_response_id", at: Responses, kept: "previous_response_id", known: (*weigher).kept},
	{name: "conversation", at: Responses, kept: "conversation", moves: always},
	{name: "prompt", at: Responses, kept: "prompt", moves: always},
	{name: "prompt", read: (*weigher).anything},
	{name: "thread", off: with("type", "create"), kept: "a thread", moves: always},
	{name: "cached_content extra_body/google/cached_content", kept: "cached content", read: (*weigher).anything},
	{name: "extra_body/google/safety_settings extra_body/google/thought_tag_marker"},
	{name: "extra_body/google/thinking_config", read: silent},

	{name: "truncation", moves: but("disabled")},
	{name: "transforms truncate_prompt_tokens prompt_truncate_len context_length_exceeded_behavior", moves: always},
	{name: "context_management compaction", off: clears, sold: summary, moves: dropsMore},

	{name: "n", at: Chat}, // Bound.Choices counts the answers
	{name: "n best_of", off: one, sold: answers},
	{name: "use_beam_search", off: no, sold: answers},
	{name: "service_tier", off: among("auto", "default", "standard", "standard_only", "on_demand", "flex"), sold: "this tier has a price of its own"},
	{name: "speed inference_geo", off: among("standard", "global"), sold: own},
	{name: "models fallbacks preset access_programs route safety_model", sold: another},
	{name: "provider/max_price provider/allow_fallbacks"},
	{name: "provider/sort", off: among("price"), sold: dearer},
	{name: "provider/data_collection", off: among("allow"), sold: dearer},
	{name: "provider/require_parameters provider/zdr provider/enforce_distillable_text", off: no, sold: dearer},
	{name: "provider/order provider/only provider/ignore provider/quantizations provider/preferred_min_throughput provider/preferred_max_latency", sold: dearer},
	{name: "multi_agent", sold: "the provider runs further agents, and bills all that they read and write"},
	{name: "prediction speculation", sold: "a prediction that does not come true is billed as output", read: content},
	{name: "plugins", off: repairs, sold: searches, moves: always},
	{name: "web_search_options data_sources search_options", sold: searches},
	{name: "search_parameters search_settings enable_search web_search compound_custom enable_code_interpreter", off: no, sold: searches},
	{name: "mcp_servers container", sold: theirs},
	{name: "deferred", off: no, sold: "an answer that is fetched later is not seen here"},
	{name: "audio image_config", as: "audio", sold: media},
	{name: "modalities", off: words, as: "audio", sold: media},
}

// router is the field that selects the hosts that may answer. An unknown member of it
// is an extra, because it may lead to a more expensive host.
const router = "provider"

// searching lists parts of model names. Such models do more than answer, and the
// provider bills the additional work.
var searching = []struct{ part, why string }{
	{":online", searches},
	{"-search-preview", searches},
	{"-search-api", searches},
	{"deep-research", searches},
	{"sonar", searches},
	{"groq/compound", theirs},
	{"openrouter/", another}, // OpenRouter chooses the model
	{"@preset", another},
}

// offer is a type of tool that the client runs, so that it costs only the tokens of
// its text.
type offer struct {
	name   string
	family bool   // the type is name followed by a date of eight digits
	at     Format // the formats that have the type; 0: all
	taught bool   // the provider describes the tool to the model in its own words too
}

// offers is the table of tools that the client runs. The provider runs a tool of any
// other type, at a price of its own.
var offers = []offer{
	{name: "function"},
	{name: "custom"},
	{name: "local_shell", at: Responses, taught: true},
	{name: "apply_patch", at: Responses, taught: true},
	{name: "computer", at: Responses, taught: true},
	{name: "computer_use_preview", at: Responses, taught: true},
	{name: "bash_", family: true, at: Messages, taught: true},
	{name: "text_editor_", family: true, at: Messages, taught: true},
	{name: "computer_", family: true, at: Messages, taught: true},
	{name: "memory_", family: true, at: Messages, taught: true},
}

// hosted lists the calls of Responses that the provider runs itself. A call of another
// kind counts as the client's, because then the kernel must admit it.
var hosted = []string{"web_search_call", "file_search_call", "code_interpreter_call", "image_generation_call", "mcp_call", "tool_search_call"}

// OwnItem reports whether the client runs a call of Responses, by the type of the item.
func OwnItem(kind string) bool { return !slices.Contains(hosted, kind) }

// measure says what a provider bills for a part of a message besides its text.
type measure uint8

const (
	plain     measure = iota // nothing
	picture                  // the tokens of a picture; its bytes are not text
	drawn                    // the tokens of a picture that the provider made
	sound                    // sound, at a price of its own
	document                 // a document; only a text document has a bound
	unbounded                // a file or a video; there is no bound
	defined                  // the definition of a tool
	brought                  // a list of tools
	referred                 // an offered tool that the model reads again
	reference                // an item that the provider stores under its id
)

// parts is the table of message parts that cost more than their text, by type.
var parts = map[string]measure{
	"image_url":             picture,
	"input_image":           picture,
	"image":                 picture,
	"computer_screenshot":   picture,
	"image_generation_call": drawn,
	"input_audio":           sound,
	"audio":                 sound,
	"audio_url":             sound,
	"document":              document,
	"document_url":          unbounded,
	"file":                  unbounded,
	"input_file":            unbounded,
	"container_upload":      unbounded,
	"video":                 unbounded,
	"video_url":             unbounded,
	"input_video":           unbounded,
	"tool_definition":       defined,
	"additional_tools":      brought,
	"tool_search_output":    brought,
	"tool_reference":        referred,
	"item_reference":        reference,
	"compaction":            reference,
}

// The functions below examine the value of a field for the off and moves of a row.

// among returns a function that reports whether a value is one of these words.
func among(words ...string) func([]byte) bool {
	return func(v []byte) bool { return jsontext.Kind(v) == '"' && slices.Contains(words, jsontext.String(v)) }
}

// with returns a function that reports whether a member of the value is this word.
func with(name, word string) func([]byte) bool {
	return func(v []byte) bool { return jsontext.String(jsontext.Get(v, name)) == word }
}

// always reports true for every value.
func always([]byte) bool { return true }

// but returns a function that reports whether a value is not this word.
func but(word string) func([]byte) bool {
	return func(v []byte) bool { return jsontext.String(v) != word }
}

// repairs reports whether all plugins only repair the form of an answer or shorten
// a context that is too long.
func repairs(v []byte) bool {
	for _, p := range jsontext.Elements(v) {
		if id := jsontext.String(jsontext.Get(p, "id")); id != "response-healing" && id != "context-compression" {
			return false
		}
	}
	return jsontext.Kind(v) == '['
}

// no reports whether a value is false.
func no(v []byte) bool { return jsontext.Kind(v) == 'f' }

// one reports whether a value is the number 1.
func one(v []byte) bool {
	n, _ := jsontext.Whole(v)
	return n == 1
}

// words reports whether the modalities ask for neither sound nor pictures.
func words(v []byte) bool {
	return !strings.Contains(string(v), "audio") && !strings.Contains(string(v), "image")
}

// dropsMore reports whether context edits may drop more than old thoughts from the
// next request. Old thoughts are safe: the provider keeps those of the last turns, so
// a longer conversation never has more thoughts of its beginning than a shorter one.
func dropsMore(v []byte) bool {
	thoughts := false
	for _, e := range jsontext.Elements(jsontext.Get(v, "edits")) {
		if thoughts = strings.HasPrefix(jsontext.String(jsontext.Get(e, "type")), "clear_thinking_"); !thoughts {
			return true
		}
	}
	return !thoughts
}

// clears reports whether all context edits only remove parts of the context.
func clears(v []byte) bool {
	edits := jsontext.Get(v, "edits")
	for _, e := range jsontext.Elements(edits) {
		if !strings.HasPrefix(jsontext.String(jsontext.Get(e, "type")), "clear_") {
			return false
		}
	}
	return edits != nil
}

// rows is the table of fields by name. inner holds the fields whose members have rows.
var rows, inner = func() (map[string][]row, map[string]bool) {
	all, inner := make(map[string][]row), make(map[string]bool)
	for _, f := range fields {
		for name := range strings.SplitSeq(f.name, " ") {
			all[name] = append(all[name], f)
			for i := strings.LastIndexByte(name, '/'); i > 0; i = strings.LastIndexByte(name[:i], '/') {
				inner[name[:i]] = true
			}
		}
	}
	return all, inner
}()

// find returns the row of a field in a format, or nil.
func find(name string, at Format) *row {
	for i := range rows[name] {
		if f := &rows[name][i]; f.at == 0 || f.at&at != 0 {
			return f
		}
	}
	return nil
}

// Named returns the names of the top-level fields in the table that are not free.
func Named() (names []string) {
	for _, f := range fields {
		if f.sold == "" && f.kept == "" && f.read == nil && f.moves == nil {
			continue
		}
		for name := range strings.SplitSeq(f.name, " ") {
			if name, _, _ = strings.Cut(name, "/"); !slices.Contains(names, name) {
				names = append(names, name)
			}
		}
	}
	return names
}
