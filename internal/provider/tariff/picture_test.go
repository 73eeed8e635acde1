package tariff

import (
	"bytes"
	"encoding/base64"
	"encoding/binary"
	"errors"
	"image"
	"image/gif"
	"image/jpeg"
	"image/png"
	"testing"

	"pgregory.net/rapid"
)

// drawnFiles returns a picture of a size in every kind of file that is read.
func drawnFiles(t testing.TB, w, h int) map[string][]byte {
	t.Helper()
	m := image.NewGray(image.Rect(0, 0, w, h))
	var p, j, g bytes.Buffer
	if err := errors.Join(png.Encode(&p, m), jpeg.Encode(&j, m, nil), gif.Encode(&g, m, nil)); err != nil {
		t.Fatal(err)
	}
	le := binary.LittleEndian
	webp := func(kind string, size []byte) []byte {
		return append(append([]byte("RIFF\x00\x00\x00\x00WEBP"+kind+"\x00\x00\x00\x00"), size...), 0, 0, 0)
	}
	x := append(le.AppendUint32(make([]byte, 4), uint32(w-1))[:7], le.AppendUint32(nil, uint32(h-1))[:3]...)
	return map[string][]byte{
		"png": p.Bytes(), "jpeg": j.Bytes(), "gif": g.Bytes(), "webp with more": webp("VP8X", x),
		"webp":       webp("VP8 ", le.AppendUint16(le.AppendUint16([]byte("\x10\x00\x00\x9d\x01\x2a"), uint16(w)), uint16(h))),
		"exact webp": webp("VP8L", le.AppendUint32([]byte{0x2f}, uint32(w-1)|uint32(h-1)<<14)),
	}
}

// TestPictureSizes bounds pictures by their size. billed is what the provider's rule
// gives for it.
//
// Mutants that die here: a side read from the wrong place in any kind of file, tiles
// that are not shrunk, a rule of another family.
func TestPictureSizes(t *testing.T) {
	for _, c := range []struct {
		at           Format
		name         string
		w, h         int
		billed, most int64
	}{
		{Messages, "claude-sonnet-4-5", 1, 1, 85, 110}, {Messages, "claude-sonnet-4-5", 200, 200, 54, 170}, {Messages, "claude-opus-4-8", 1000, 1000, 1_334, 1_450}, {Messages, "claude-opus-4-8", 3000, 2500, 4_784, 5_000},
		{Chat, "gpt-4o", 1, 1, 255, 360}, {Chat, "gpt-4o", 1024, 1024, 765, 870}, {Chat, "gpt-4o", 2048, 4096, 1_105, 1_210}, {Chat, "gpt-4o-mini", 1024, 1024, 25_501, 25_610},
		{Responses, "gpt-5", 512, 512, 210, 360}, {Responses, "gpt-5-mini", 1024, 1024, 1_659, 2_650}, {Responses, "gpt-5-nano", 1024, 1024, 2_520, 2_650}, {Responses, "gpt-5-nano", 4000, 4000, 3_779, 4_000},
		{Responses, "gpt-6-luna", 1, 1, 255, 360}, {Responses, "gpt-6-luna", 1920, 1080, 5_019, 5_200}, {Chat, "gpt-test", 1, 1, 255, 360},
		{Chat, "llava", 1, 1, 1_120, 1_220}, {Chat, "llava", 1024, 1024, 4_160, 4_300},
	} {
		for kind, file := range drawnFiles(t, c.w, c.h) {
			data := base64.StdEncoding.EncodeToString(file)
			for way, part := range map[string]string{
				"chat": `{"type":"image_url","image_url":{"url":"data:image/x;base64,` + data + `","detail":"high"}}`, "responses": `{"type":"input_image","image_url":"data:image/x;base64,` + data + `"}`,
				"messages": `{"type":"image","source":{"type":"base64","media_type":"image/x","data":"` + data + `"}}`, "a result": `{"type":"image_generation_call","result":"` + data + `"}`,
			} {
				w := weigher{r: &Request{Format: c.at, Model: c.name}, b: Bound{Known: true}}
				if w.part([]byte(part)); w.beside < c.billed || w.beside > c.most {
					t.Errorf("%s of %d x %d as %s by %s: %d tokens, want %d to %d", kind, c.w, c.h, way, c.name, w.beside, c.billed, c.most)
				}
			}
		}
	}
}

// TestPictureUnread: a picture that cannot be read counts as the most there is.
func TestPictureUnread(t *testing.T) {
	small := base64.StdEncoding.EncodeToString(drawnFiles(t, 1, 1)["png"])
	for _, source := range []string{
		`{"type":"url","url":"https://example.org/a.png"}`, `{"type":"file","file_id":"f"}`, `{"type":"base64","data":""}`, `{"type":"base64","data":"AAAA"}`, `{"type":"base64","data":"` + small[:12] + `"}`,
		`{"type":"base64","data":"!` + small + `"}`, `{"type":"base64","data":"data:image/png,` + small + `"}`, `"` + small[:20] + `"`, `7`,
	} {
		w := weigher{r: &Request{Format: Messages, Model: "claude-opus-4-8"}, b: Bound{Known: true}}
		if w.part([]byte(`{"type":"image","source":` + source + `}`)); w.beside != 5_000 {
			t.Errorf("%s: %d tokens", source, w.beside)
		}
	}
}

// TestPictureRules: no size makes a rule give less for more, or panic.
func TestPictureRules(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		w, h := rapid.Int64Range(1, maxSide).Draw(t, "w"), rapid.Int64Range(1, maxSide).Draw(t, "h")
		for _, p := range pictures {
			if n, turned := p.rule(w, h), p.rule(h, w); n < 1 || p.name != "" && n != turned {
				t.Fatalf("%s: %d tokens for %d x %d, and %d when it is turned", p.name, n, w, h, turned)
			}
		}
	})
	rapid.Check(t, func(t *rapid.T) {
		_, _, _ = pictureSize(bytes.NewReader(rapid.SliceOf(rapid.Byte()).Draw(t, "file")))
	})
}
