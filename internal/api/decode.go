package api

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/kern-run/kern/abi"
	"github.com/kern-run/kern/internal/jsontext"
)

// bodyTime is how long a client may take to send a request.
const bodyTime = 30 * time.Second

// decode reads the body of a request into v, strictly. It removes the deadline only
// after a whole body, because the HTTP server reads the rest of an incomplete body
// before it answers.
func decode(w http.ResponseWriter, r *http.Request, most int64, v any) error {
	c := http.NewResponseController(w)
	_ = c.SetReadDeadline(time.Now().Add(bodyTime)) // fails for the recorder of a test, which needs none
	b, err := io.ReadAll(http.MaxBytesReader(w, r.Body, most))
	var big *http.MaxBytesError
	switch {
	case errors.As(err, &big):
		return &abi.Error{Code: abi.InvalidArguments, Message: fmt.Sprintf("the request is larger than %d bytes", most)}
	case err != nil:
		return &abi.Error{Code: abi.InvalidArguments, Message: "the request broke off: " + err.Error()}
	}
	_ = c.SetReadDeadline(time.Time{}) // as above
	return read(b, v)
}

// read reads one JSON object into v. It refuses what encoding/json accepts: repeated
// keys, keys in another case, and bytes that are not UTF-8.
func read(b []byte, v any) error {
	if bad := jsontext.Check(b, jsontext.Strict); bad != nil {
		return &abi.Error{Code: abi.InvalidArguments, Message: "the request is not JSON: " + bad.Error(), Got: abi.Clip(string(b))}
	}
	t := bytes.TrimSpace(b)
	if t[0] != '{' {
		return &abi.Error{Code: abi.InvalidArguments, Message: "expected an object", Got: abi.Clip(string(b))}
	}
	for key := range jsontext.Members(t) {
		if bytes.ContainsFunc(key, func(c rune) bool { return c != '_' && (c < 'a' || c > 'z') }) {
			return &abi.Error{Code: abi.InvalidArguments, Message: fmt.Sprintf("unknown field %q", abi.Clip(string(key))), Got: abi.Clip(string(b))}
		}
	}
	d := json.NewDecoder(bytes.NewReader(b))
	d.DisallowUnknownFields()
	err := d.Decode(v)
	var te *json.UnmarshalTypeError
	switch {
	case errors.As(err, &te):
		return expected("/"+strings.ReplaceAll(te.Field, ".", "/"), te.Value, kindOf(te.Type))
	case err != nil:
		return &abi.Error{Code: abi.InvalidArguments, Message: strings.TrimPrefix(err.Error(), "json: "), Got: abi.Clip(string(b))}
	}
	return nil
}

// kindOf names the JSON values of a Go type.
func kindOf(t reflect.Type) string {
	switch t.Kind() {
	case reflect.Bool:
		return "true or false"
	case reflect.String:
		return "a text"
	case reflect.Slice, reflect.Array:
		return "a list"
	case reflect.Struct, reflect.Map, reflect.Pointer:
		return "an object"
	case reflect.Uint, reflect.Uint8, reflect.Uint16, reflect.Uint32, reflect.Uint64:
		return "a whole number, 0 or more"
	}
	return "a whole number"
}

// expected refuses a value, and says what was expected.
func expected(where, got, want string) *abi.Error {
	name := strings.TrimPrefix(where, "/")
	return &abi.Error{Code: abi.InvalidArguments, Message: fmt.Sprintf("%s is %q, expected %s", name, abi.Clip(got), want), Where: where, Got: abi.Clip(got)}
}

func pidOf(r *http.Request) (abi.Pid, error) {
	s := r.PathValue("pid")
	n, err := strconv.ParseInt(s, 10, 64)
	if err != nil || n < 1 || strconv.FormatInt(n, 10) != s {
		return 0, expected("/pid", s, "the number of a process")
	}
	return abi.Pid(n), nil
}

// query refuses parameters that are not in names, and repeated ones.
func query(r *http.Request, names ...string) error {
	for name, values := range r.URL.Query() {
		if !slices.Contains(names, name) || len(values) > 1 {
			return expected("/"+name, strings.Join(values, ","), fmt.Sprintf("only the parameters %v, each once", names))
		}
	}
	return nil
}

func flag(r *http.Request, name string) (bool, error) {
	switch s := r.URL.Query().Get(name); s {
	case "", "0":
		return false, nil
	case "1":
		return true, nil
	default:
		return false, expected("/"+name, s, "0 or 1")
	}
}

var accountName = regexp.MustCompile(`^[a-zA-Z0-9][a-zA-Z0-9_.-]{0,63}$`)

// checkRun refuses a run that no kernel can start.
func checkRun(r *abi.Run) error {
	if err := priority(&r.Priority); err != nil {
		return err
	}
	if err := enforceable(&r.Limits); err != nil {
		return err
	}
	switch w := r.Watchdog; {
	case !slices.Contains([]string{"", "smart", "strict", "off"}, w.Profile):
		return expected("/watchdog/profile", w.Profile, "smart, strict or off")
	case w.Repeat != 0 && w.Repeat < 2:
		return expected("/watchdog/repeat", strconv.Itoa(w.Repeat), "2 or more")
	case r.Parent != 0 && r.Account != "":
		return expected("/account", r.Account, "none, because a child is charged to its parent")
	case r.Program.Model == "":
		return expected("/program/model", "", "script:FILE, openai:NAME or anthropic:NAME")
	case r.Program.Parallel < 0:
		return expected("/program/parallel", strconv.Itoa(r.Program.Parallel), "0 or more")
	case r.Program.Hosted:
		return expected("/program/hosted", "true", "false, because no client is connected that could run the loop")
	}
	for i, t := range r.Program.Tools {
		if len(t.Command) == 0 {
			return expected(fmt.Sprintf("/program/tools/%d/command", i), t.Name, "a program and its arguments")
		}
	}
	for i, row := range r.Program.Rows {
		if !slices.Contains(abi.ModelRows(), row) {
			return expected(fmt.Sprintf("/program/rows/%d", i), row, "one of "+strings.Join(abi.ModelRows(), ", "))
		}
	}
	return nil
}

func priority(p *int) error {
	if p != nil && (*p < 0 || *p > abi.MaxPriority) {
		return expected("/priority", strconv.Itoa(*p), fmt.Sprintf("0 (the most urgent) to %d", abi.MaxPriority))
	}
	return nil
}

// enforceable refuses limits that nothing enforces.
func enforceable(l *abi.Limits) (err error) {
	l.Each(func(u abi.Unit, n int64) {
		if !slices.Contains(abi.SettableUnits(), u) && err == nil {
			err = expected("/limits/"+u.String(), abi.FormatUnit(u, n), "no such limit, because this host cannot enforce it")
		}
	})
	return err
}

// addsUp refuses limits that several processes cannot share.
func addsUp(l *abi.Limits) error {
	err := enforceable(l)
	l.Each(func(u abi.Unit, n int64) {
		if u >= abi.Units && err == nil {
			err = expected("/limits/"+u.String(), abi.FormatUnit(u, n), "no such limit on an account, because it does not add up over processes")
		}
	})
	return err
}
