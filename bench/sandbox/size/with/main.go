// Command with is command without and the sandbox.
package main

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"os"

	"github.com/kern-run/kern/internal/sandbox"
	"github.com/kern-run/kern/internal/sandbox/wasm"
)

func main() {
	b, err := wasm.New(wasm.Config{})
	if err == nil {
		_, err = b.Run(context.Background(), sandbox.Spec{Code: "print(1)"})
	}
	fmt.Fprintln(os.Stderr, err, http.ListenAndServe("", nil), json.NewEncoder(os.Stdout).Encode(1))
}
