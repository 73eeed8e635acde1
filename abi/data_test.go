package abi

import (
	"bytes"
	"encoding/json"
	"testing"

	"github.com/kern-run/kern/internal/leaktest"
)

func TestMain(m *testing.M) { leaktest.Main(m) }

// Mutants that die here: JSON that is not compact written as JSON (its spaces
// are lost), markup written as JSON (it is escaped on the way), bytes that are
// no text written as text.
func TestDataReadsBackToTheByte(t *testing.T) {
	for _, c := range []struct{ in, shown string }{
		{``, `{}`},
		{`{"a":1}`, `{"json":{"a":1},"size":7}`},
		{`{"a": 1}`, `{"text":"{\"a\": 1}","size":8}`},
		{`["<b>"]`, `{"text":"[\"\u003cb\u003e\"]","size":7}`},
		{`hello`, `{"text":"hello","size":5}`},
		{`12`, `{"text":"12","size":2}`},
		{"\xff\x00", `{"bytes":"/wA=","size":2}`},
	} {
		d, _ := NewData([]byte(c.in))
		b, err := json.Marshal(d)
		if err != nil || string(b) != c.shown {
			t.Errorf("%q: %s, %v, want %s", c.in, b, err, c.shown)
		}
		var back Data
		if err := json.Unmarshal(b, &back); err != nil || !bytes.Equal(back.Bytes, []byte(c.in)) || back.Size != d.Size {
			t.Errorf("%q came back as %q, %v", c.in, back.Bytes, err)
		}
	}
}

func FuzzData(f *testing.F) {
	f.Add([]byte(`{"a":[1,"x"]}`))
	f.Add([]byte("[\"\u2028\"]"))
	f.Fuzz(func(t *testing.T, in []byte) {
		b, err := json.Marshal(Data{Bytes: in, Size: int64(len(in))})
		if err != nil {
			t.Fatal(err)
		}
		var back Data
		if err := json.Unmarshal(b, &back); err != nil || !bytes.Equal(back.Bytes, in) {
			t.Fatalf("%q came back as %q, %v", in, back.Bytes, err)
		}
	})
}

func TestKindsReadBack(t *testing.T) {
	for k := KindSpawned; k <= KindAccount; k++ {
		b, err := k.MarshalText()
		if err != nil {
			t.Fatal(err)
		}
		var back Kind
		if err := back.UnmarshalText(b); err != nil || back != k {
			t.Errorf("%s came back as %v, %v", b, back, err)
		}
	}
	if err := new(Kind).UnmarshalText([]byte("nonsense")); err == nil {
		t.Error("a kind that does not exist was read")
	}
}
