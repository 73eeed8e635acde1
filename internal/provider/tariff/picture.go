package tariff

import (
	"bytes"
	"encoding/base64"
	"encoding/binary"
	"image"
	"image/gif"
	"image/jpeg"
	"image/png"
	"io"
	"strings"

	"github.com/kern-run/kern/internal/jsontext"
)

// pictures is the table of the tokens that one picture uses. The first row that
// matches applies. A picture whose size is not known here counts as most, because
// models shrink large pictures; the others count by the rule of the provider.
var pictures = []struct {
	at   Format // the formats of the row; 0: all
	name string // beginnings of model names, separated by spaces; a $ at the end means the whole name
	most int64
	rule func(w, h int64) int64
}{
	{Messages, "claude-", 5_000, byArea}, // about 1,600, and 4,784 for models with a higher resolution
	{0, "gpt-4o-mini", 48_200, tiles(2_833, 5_667)},
	{0, "gpt-4.1-mini gpt-4.1-nano gpt-5-mini gpt-5-nano o4-mini gpt-5.1-codex-mini", 4_000, patches}, // up to 1,536 patches
	{0, "gpt-4o gpt-4.1 gpt-4-turbo o1 o3 gpt-5$ gpt-5-2 gpt-5.1", 1_500, tiles(85, 170)},
	{0, "gpt- o4 o5 chatgpt- codex-", 50_000, newest},
	{0, "", 50_000, anyRule},
}

// perPicture is added to a rule, for the words around a picture and for rounding. The
// least that anybody bills for a small picture is 85.
const perPicture = 100

// byArea is Anthropic's rule: a token for 750 pixels, or for a square of 28.
func byArea(w, h int64) int64 { return max((w*h+749)/750, over(w, 28)*over(h, 28)) }

// tiles returns OpenAI's rule for models that see squares of 512 pixels: the picture
// is shrunk to 2,048 pixels, and then to 768 for its shorter side.
func tiles(base, each int64) func(w, h int64) int64 {
	return func(w, h int64) int64 {
		w, h = shrunk(w, h, max(w, h), 2_048)
		w, h = shrunk(w, h, min(w, h), 768)
		return base + each*over(w, 512)*over(h, 512)
	}
}

// shrunk returns a size in which side is at most limit, rounded up.
func shrunk(w, h, side, limit int64) (int64, int64) {
	if side <= limit {
		return w, h
	}
	return over(w*limit, side), over(h*limit, side)
}

// patches is OpenAI's rule for models that see squares of 32 pixels, at the highest
// of its factors.
func patches(w, h int64) int64 { return over(over(w, 32)*over(h, 32)*246, 100) }

// newest bounds the picture at a model of OpenAI that is newer than this table.
func newest(w, h int64) int64 { return max(tiles(85, 170)(w, h), patches(w, h)) }

// anyRule bounds the picture at a model of which nothing is known. The finest squares
// in use have 16 pixels, with a mark for each row; some models take 1,120 tokens for
// a picture of any size.
func anyRule(w, h int64) int64 { return max(1_120, newest(w, h), (over(w, 16)+1)*over(h, 16)) }

func over(n, by int64) int64 { return (n + by - 1) / by }

// picture returns the most tokens that one picture uses at the model of r. file is
// the picture in base64; nil if the request does not contain it.
func (r *Request) picture(file []byte) int64 {
	for _, p := range pictures {
		if p.at != 0 && p.at&r.Format == 0 {
			continue
		}
		for name := range strings.SplitSeq(p.name, " ") {
			whole, exact := strings.CutSuffix(name, "$")
			if exact && whole != r.Model || !exact && !strings.HasPrefix(r.Model, name) {
				continue
			}
			if w, h, ok := pictureSize(base64.NewDecoder(base64.StdEncoding, bytes.NewReader(file))); ok {
				return min(p.most, p.rule(w, h)+perPicture)
			}
			return p.most
		}
	}
	return 0
}

// maxHead is the most bytes before the content in an address with the prefix "data:".
const maxHead = 256

// file returns the picture that an object contains, in base64, or nil.
func (o object) file() []byte {
	for _, name := range []string{"image_url", "source", "image", "result"} {
		v := o.get(name)
		for _, member := range []string{"url", "image_url", "data"} {
			if in := jsontext.Get(v, member); jsontext.Kind(in) == '"' {
				v = in
			}
		}
		data := jsontext.Bare(v)
		if rest, ok := bytes.CutPrefix(data, []byte("data:")); ok {
			comma := bytes.IndexByte(rest[:min(len(rest), maxHead)], ',')
			if comma < 0 || !bytes.HasSuffix(rest[:comma], []byte(";base64")) {
				return nil
			}
			return rest[comma+1:]
		}
		if len(data) > 0 {
			return data
		}
	}
	return nil
}

// maxSide is the longest side of a picture that is believed, so that no product
// overflows. A file that says more counts as most.
const maxSide = 1 << 20

// pictureSize reads the size of a picture from the beginning of its file.
func pictureSize(file io.Reader) (w, h int64, ok bool) {
	magic := make([]byte, 30)
	n, _ := io.ReadFull(file, magic) // what a short file lacks is zero
	file = io.MultiReader(bytes.NewReader(magic[:n]), file)
	var c image.Config
	var err error
	switch {
	case bytes.HasPrefix(magic, []byte("\x89PNG")):
		c, err = png.DecodeConfig(file)
	case bytes.HasPrefix(magic, []byte("\xff\xd8")):
		c, err = jpeg.DecodeConfig(file)
	case bytes.HasPrefix(magic, []byte("GIF8")):
		c, err = gif.DecodeConfig(file)
	case bytes.HasPrefix(magic, []byte("RIFF")) && string(magic[8:12]) == "WEBP":
		w, h = webpSize(magic)
	}
	if err != nil {
		return 0, 0, false
	}
	w, h = max(w, int64(c.Width)), max(h, int64(c.Height))
	return w, h, 0 < w && w <= maxSide && 0 < h && h <= maxSide
}

// webpSize reads the size of a WebP picture of any of its three kinds.
func webpSize(b []byte) (w, h int64) {
	le := binary.LittleEndian
	switch string(b[12:16]) {
	case "VP8 ":
		if string(b[23:26]) == "\x9d\x01\x2a" {
			w, h = int64(le.Uint16(b[26:])&0x3fff), int64(le.Uint16(b[28:])&0x3fff)
		}
	case "VP8L":
		if b[20] == 0x2f {
			bits := le.Uint32(b[21:])
			w, h = int64(bits&0x3fff)+1, int64(bits>>14&0x3fff)+1
		}
	case "VP8X":
		w, h = int64(le.Uint32(b[24:])&0xffffff)+1, int64(le.Uint32(b[26:])>>8)+1
	}
	return w, h
}
