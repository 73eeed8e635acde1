package api

import (
	"context"
	"net/http"

	"github.com/kern-run/kern/abi"
)

// removing returns the endpoint that removes processes.
func removing(remove func(context.Context, abi.Removal) (abi.RemovalResult, error)) endpoint {
	return func(w http.ResponseWriter, r *http.Request) (any, error) {
		var req abi.Removal
		if err := decode(w, r, maxRequest, &req); err != nil {
			return nil, err
		}
		if len(req.Pids) == 0 && req.Before == 0 && req.Keep <= 0 {
			return nil, expected("/pids", "[]", "processes, a time before which they ended, or how many to keep")
		}
		return remove(r.Context(), req)
	}
}

// Remove removes finished processes with everything that they said.
func (c *Client) Remove(ctx context.Context, r abi.Removal) (abi.RemovalResult, error) {
	return ask[abi.RemovalResult](ctx, c.conn, "POST", "/v1/remove", r)
}
