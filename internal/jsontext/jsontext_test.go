package jsontext

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/kern-run/kern/internal/leaktest"
)

func TestMain(m *testing.M) { leaktest.Main(m) }

func TestCheck(t *testing.T) {
	for in, want := range map[string]string{
		`{"a":1}`: "",
		" [ 1 , -0.5e+3 , \"\\u00e9\" , null,true , false,{ } , [ ] ] ": "",
		``:                              "JSON value, cut",
		`{"a":`:                         "/a JSON value, cut",
		`{"a"`:                          "/a colon, cut",
		`{"a":1,}`:                      "a key in quotes",
		`[1,]`:                          "/1 JSON value",
		`[01]`:                          "/0 comma",
		`[1.]`:                          "/0 digit",
		`[.5]`:                          "/0 JSON value",
		`[1e]`:                          "/0 digit",
		`[-]`:                           "/0 digit",
		`["a` + "\n" + `"]`:             "/0 instead of a control",
		`["\x"]`:                        "/0 escape",
		`["\u12g4"]`:                    "/0 hexadecimal",
		`[tru]`:                         "/0 true",
		`{"a":{"b/~c":[0,{"x":]}]}}`:    "/a/b~1~0c/1/x JSON value",
		`{"a":1,"b":{"c":1,"c":2}}`:     "/b/c only once",
		`{"a":1,"\u0061":2}`:            "/a only once",
		`{"a":1} {"a":1}`:               "nothing after",
		`{"a":1}` + "\x00":              "nothing after",
		`[NaN]`:                         "/0 JSON value",
		strings.Repeat("[", MaxDepth+1): strings.Repeat("/0", MaxDepth-1) + " within each other",
	} {
		got := ""
		if f := Check([]byte(in), UniqueKeys); f != nil {
			got = f.Pointer + " " + f.Want
			if f.Cut {
				got += ", cut"
			}
		}
		where, what, _ := strings.Cut(want, " ")
		if !strings.HasPrefix(want, "/") {
			where, what = "", want
		}
		if (want == "") != (got == "") || !strings.HasPrefix(got, where) || !strings.Contains(got, strings.TrimSuffix(what, ", cut")) || strings.HasSuffix(want, ", cut") != strings.HasSuffix(got, ", cut") && len(in) < MaxDepth {
			t.Errorf("%.60s: %q, want %q", in, got, want)
		}
	}
	many := "{"
	for i := range 40 {
		many += fmt.Sprintf(`"k%d":1,`, i)
	}
	if Check([]byte(many+`"x":1}`), UniqueKeys) != nil {
		t.Error("an object of many keys is refused")
	}
	if f := Check([]byte(many+`"k\u0037":1}`), UniqueKeys); f == nil || f.Pointer != "/k7" {
		t.Errorf("of many keys the same one twice: %+v", f)
	}
	if Check([]byte(`{"a":1,"a":2}`), Lenient) != nil {
		t.Error("the same key twice is refused where it need not be")
	}
}

func TestWhole(t *testing.T) {
	for in, want := range map[string]string{
		`5`: "5 true", `-1`: "-1 true", `1e3`: "1000 true", `10.0`: "10 true", `1.5`: "0 false", `1e300`: "0 false",
		`9223372036854775807`: "9223372036854775807 true", `9223372036854775808`: "0 false", `"5"`: "0 false", `null`: "0 false", ``: "0 false",
	} {
		n, ok := Whole([]byte(in))
		if got := fmt.Sprint(n, " ", ok); got != want {
			t.Errorf("%s: %s, want %s", in, got, want)
		}
	}
}

// TestText holds what a text says to what the standard library reads.
func TestText(t *testing.T) {
	parts := []string{``, `a`, `\"`, `\\`, `\/`, `\b\f\n\r\t`, `\u0041`, `\u00e9`, `\uABcd`, `\u0000`, `\ud83d`, `\ude00`, `\ud83d\ude00`, `\ud83d\u0041`, `é`, "\x80", "\xe2\x82", `€`, `\u20AC`, `\uFFFD`}
	for _, a := range parts {
		for _, b := range parts {
			for _, c := range parts {
				v := []byte(`"` + a + b + c + `"`)
				var want string
				if err := json.Unmarshal(v, &want); err != nil {
					t.Fatal(err)
				}
				if got, ok := Text(v); got != want || !ok {
					t.Errorf("%s: %q, %v, want %q", v, got, ok, want)
				}
			}
		}
	}
	if s, ok := Text([]byte(`5`)); s != "" || ok {
		t.Errorf("a number is a text: %q", s)
	}
}

func TestCanonical(t *testing.T) {
	for in, want := range map[string]string{
		`1.0`: `1`, `1e2`: `100`, `-0`: `0`, `0e7`: `0`, `-0.0e-3`: `0`, `100`: `100`, `1E+2`: `100`, `1.50`: `1.5`, `0.001`: `0.001`, `0.00000123`: `0.00000123`, `1e-7`: `1e-7`,
		`12.5e-1`: `1.25`, `123456789012345678901234567890`: `123456789012345678901234567890`, `1e20`: `100000000000000000000`, `1e21`: `1e21`,
		`-12e300`: `-1.2e301`, `1000e-3`: `1`,
		`{"b":1,"a":2}`: `{"a":2,"b":1}`, `{ }`: `{}`, ` [ 1 , 2 ] `: `[1,2]`, `{"a!":1,"a":2}`: `{"a":2,"a!":1}`,
		`"\u0041\/\n\"\\\u00e9\ud83d\ude00\u007f"`:   "\"A/\\u000a\\\"\\\\é\U0001F600\x7f\"",
		`{"b":{"d":1,"c":[{"z":1,"y":2}]},"a":null}`: `{"a":null,"b":{"c":[{"y":2,"z":1}],"d":1}}`,
	} {
		got, err := Canonical(nil, []byte(in))
		if err != nil || string(got) != want {
			t.Errorf("Canonical(%s) = %s, %v; want %s", in, got, err, want)
		}
	}
}

// rebuild writes a text again by the functions that read it.
func rebuild(v []byte) []byte {
	var b bytes.Buffer
	switch Kind(v) {
	case '{':
		b.WriteByte('{')
		for k, val := range Members(v) {
			if b.Len() > 1 {
				b.WriteByte(',')
			}
			fmt.Fprintf(&b, "%s:%s", Quote(string(k)), rebuild(val))
		}
		b.WriteByte('}')
	case '[':
		b.WriteByte('[')
		for i, e := range Elements(v) {
			if i > 0 {
				b.WriteByte(',')
			}
			b.Write(rebuild(e))
		}
		b.WriteByte(']')
	case '"':
		b.Write(Quote(String(v)))
	default:
		b.Write(v)
	}
	return b.Bytes()
}

func FuzzCheck(f *testing.F) {
	for _, s := range []string{`{"a":[1,2.5e-7,{"b":"\ud83d\ude00\\\""},null,true,false]}`, `[`, `"\u12"`, "[\"\x80\"]", ` {"a" : {"a":""} , "b": -0 } `, `{"a":1,"a":1}`} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		bad := Check(data, Lenient)
		if bad == nil != json.Valid(data) && (bad == nil || !strings.Contains(bad.Want, "within each other")) {
			t.Fatalf("%+v, and for the standard library valid is %v", bad, json.Valid(data))
		}
		if bad != nil {
			return
		}
		if Check(data, UniqueKeys) == nil {
			// Read in pieces it means what it means as a whole.
			var x, y any
			if err := json.Unmarshal(data, &x); err != nil {
				return // a number that no float holds
			}
			if err := json.Unmarshal(rebuild(bytes.Trim(data, " \t\r\n")), &y); err != nil || fmt.Sprint(x) != fmt.Sprint(y) {
				t.Fatalf("%v: %v became %v", err, x, y)
			}
		}
	})
}
