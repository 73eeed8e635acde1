package image

import _ "embed" // for the three files below

// Python is the packed image of the interpreter, Library a zip of the modules
// that the image does not hold, and Sums the SHA-256 of both. tools/python-wasm
// makes them.
var (
	//go:embed python.image
	Python string
	//go:embed library.zip
	Library string
	//go:embed SHA256SUMS
	Sums string
)
