package schema

import (
	"fmt"
	"testing"
)

func TestQuick(t *testing.T) {
	s, err := Compile([]byte(`{"type":"object","properties":{"path":{"type":"string","minLength":1},"n":{"type":"integer","minimum":0,"maximum":100},"mode":{"enum":["a","b"]}},"required":["path","n"],"additionalProperties":false}`))
	if err != nil {
		t.Fatal(err)
	}
	for _, d := range []string{`{"path":"x","n":1}`, `{"path":"","n":1}`, `{"path":"x","n":1.5}`, `{"path":"x","n":101}`, `{"n":1}`, `{"path":"x","n":1,"zz":[1]}`, `{"path":"x","n":1,"n":2}`, `{"path":"x","n":1`, `{"path":"x","n":1,"mode":"c"}`, `[1]`, `{"path":"x","n":1} 2`} {
		v := s.Check([]byte(d))
		fmt.Printf("%s => %+v\n", d, v)
		if v != nil {
			fmt.Println(string(v.Expected))
		}
	}
	s2, err := Compile([]byte(`{"$defs":{"a":{"type":"integer"}},"properties":{"x":{"$ref":"#/$defs/a"},"y":{"oneOf":[{"type":"string"},{"type":"object","properties":{"k":{"type":"null"}}}]}},"additionalProperties":false}`))
	if err != nil {
		t.Fatal(err)
	}
	for _, d := range []string{`{"x":1}`, `{"x":"a"}`, `{"b":1,"a":2}`, `{"y":{"k":1}}`, `{"y":1}`} {
		v := s2.Check([]byte(d))
		fmt.Printf("%s => %+v\n", d, v)
		if v != nil {
			fmt.Println(string(v.Expected))
		}
	}
	for _, r := range []string{`{"type":"strin"}`, `{"$ref":"http://x.y/z"}`, `{"properties":{"a":{"minLength":-1}}}`, `{"pattern":"(?=a)"}`, `{"a":1,"a":2}`, `5`, `{"$ref":"#/nope"}`, `{"$schema":"http://foo.example/x"}`} {
		_, err := Compile([]byte(r))
		fmt.Println(r, "=>", err)
	}
	for _, r := range []string{`{"b":1.0,"a":[1e2, -0.0, 1.50,0.001,1e-7,123456789012345678901234567890,1e30]}`, `{"a!":1,"a":2,"":3,"\u0041":"\u00e9\/\n"}`} {
		c, err := Canonical(nil, []byte(r))
		fmt.Println(string(c), err)
	}
}
func BenchmarkFast(b *testing.B) {
	s, _ := Compile([]byte(`{"type":"object","properties":{"path":{"type":"string","minLength":1},"n":{"type":"integer","minimum":0,"maximum":100},"mode":{"enum":["a","b"]}},"required":["path","n"],"additionalProperties":false}`))
	d := []byte(`{"path":"src/main.go","n":42,"mode":"a"}`)
	b.ReportAllocs()
	for b.Loop() {
		if s.Check(d) != nil {
			b.Fatal()
		}
	}
}
func BenchmarkCanonical(b *testing.B) {
	d := []byte(`{"path":"src/main.go","n":42,"mode":"a"}`)
	var buf [256]byte
	b.ReportAllocs()
	for b.Loop() {
		if _, err := Canonical(buf[:0], d); err != nil {
			b.Fatal()
		}
	}
}
