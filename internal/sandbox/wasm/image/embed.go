package image

import _ "embed" // for the three files below

// Python is the packed image of the interpreter. Library is a zip of the modules that
// are not in the image. Sums holds the SHA-256 of both. The command tools/python-wasm
// makes all three.
var (
	//go:embed python.image
	Python string
	//go:embed library.zip
	Library string
	//go:embed SHA256SUMS
	Sums string
)
