package api

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/kern-run/kern/abi"
	"github.com/kern-run/kern/internal/program/lineage"
)

// An accountHandler answers requests about named accounts and calls in doubt.
type accountHandler struct{ server *Server }

func (h accountHandler) list(http.ResponseWriter, *http.Request) (any, error) {
	all := []Account{}
	for _, b := range h.server.Views.Accounts() {
		all = append(all, accountView(&b, time.Now()))
	}
	return all, nil
}

func (h accountHandler) set(w http.ResponseWriter, r *http.Request) (any, error) {
	name := r.PathValue("name")
	if !accountName.MatchString(name) {
		return nil, expected("/name", name, "up to 64 letters, digits, _, . or -, a letter or digit first")
	}
	var c Change
	if err := decode(w, r, maxRequest, &c); err != nil {
		return nil, err
	}
	if c.Priority != nil {
		return nil, expected("/priority", strconv.Itoa(*c.Priority), "nothing, because an account has no priority")
	}
	if err := addsUp(&c.Limits); err != nil {
		return nil, err
	}
	e, err := c.edit()
	if err != nil {
		return nil, err
	}
	if err := h.server.Kernel.SetAccount(r.Context(), name, e); err != nil {
		return nil, err
	}
	for _, b := range h.server.Views.Accounts() {
		if b.Name == name {
			return accountView(&b, time.Now()), nil
		}
	}
	return nil, &abi.Error{Code: abi.Internal, Message: "the account is not there"}
}

// settle settles a call in doubt, in the name of the user at the other end of the socket.
func (h accountHandler) settle(ctx context.Context, pid abi.Pid, s *abi.Settlement) (any, error) {
	if c, _ := ctx.Value(connKey{}).(net.Conn); c != nil {
		if uid, ok := lineage.UserOf(c); ok {
			s.By = strings.TrimSpace(fmt.Sprintf("%s (uid %d)", s.By, uid))
		}
	}
	if err := h.server.Kernel.Settle(ctx, pid, *s); err != nil {
		return nil, err
	}
	i, err := h.server.Views.Info(pid)
	if err != nil {
		return nil, err
	}
	return h.server.view(&i, time.Now())
}

// An AccountClient makes requests about named accounts.
type AccountClient struct{ conn *connection }

// List lists the named accounts.
func (c AccountClient) List(ctx context.Context) ([]Account, error) {
	return ask[[]Account](ctx, c.conn, "GET", acctsPath, nil)
}

// Set sets limits of a named account, and makes the account if it does not exist.
func (c AccountClient) Set(ctx context.Context, name string, ch Change) (Account, error) {
	return ask[Account](ctx, c.conn, "PUT", acctsPath+"/"+url.PathEscape(name), ch)
}

// Settle settles a call in doubt.
func (c AccountClient) Settle(ctx context.Context, pid abi.Pid, s abi.Settlement) (Process, error) {
	return ask[Process](ctx, c.conn, "POST", procPath(pid, "settle"), s)
}
