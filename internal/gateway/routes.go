package gateway

import (
	"sync"
	"time"

	"github.com/kern-run/kern/internal/provider"
)

// A routeCache remembers the routes of each model for routeTime, so that a request does
// not read the configuration.
type routeCache struct {
	cfg provider.Config

	mu    sync.Mutex
	kept  map[[2]string][]*provider.Endpoint
	until time.Time
}

// routeTime is the age at which the cache reads prices and keys again.
const routeTime = time.Minute

// find returns the routes of a model, from the cache or the configuration.
func (c *routeCache) find(format, name string) ([]*provider.Endpoint, error) {
	key := [2]string{format, name}
	c.mu.Lock()
	defer c.mu.Unlock()
	if now := time.Now(); now.After(c.until) || len(c.kept) > 1000 {
		c.kept, c.until = make(map[[2]string][]*provider.Endpoint), now.Add(routeTime)
	}
	if r := c.kept[key]; r != nil {
		return r, nil
	}
	r, err := c.cfg.Routes(format, name)
	if err == nil {
		c.kept[key] = r
	}
	return r, err
}
